"""tube_length=1 is the standard Transformer: equal to torch.nn's layers with copied weights, gradients included."""

import pytest
import torch
from torch import nn

from lformer.nn import LDecoderLayer, LEncoderLayer

from .cases import assert_close, assert_parity, leaf, make_config, randn

B, T, S, D, HEADS, INNER = 3, 5, 4, 8, 2, 12
placements = pytest.mark.parametrize("placement", ["post", "pre"])
activations = pytest.mark.parametrize("activation", ["relu", "gelu"])


def make_pair(kind, activation, placement):
    """torch's layer and ours with the same random weights, and the pairs [ours], theirs."""
    kinds = {"encoder": nn.TransformerEncoderLayer, "decoder": nn.TransformerDecoderLayer}
    theirs = kinds[kind](
        D, HEADS, INNER, dropout=0.0, activation=activation, batch_first=True, norm_first=placement == "pre"
    ).double()
    with torch.no_grad():
        for index, parameter in enumerate(theirs.parameters()):
            parameter.add_(0.3 * randn(*parameter.shape, seed=index))
    config = make_config(
        "dct",
        1,
        hidden_size=D,
        num_attention_heads=HEADS,
        intermediate_size=INNER,
        hidden_act=activation,
        norm_placement=placement,
    )
    if kind == "encoder":
        ours = LEncoderLayer(config).double()
    else:
        ours = LDecoderLayer(config, cross_attention=True).double()
    pairs = parameter_pairs(ours, theirs)
    with torch.no_grad():
        for mine, other in pairs:
            rows = other.split([part.shape[1] for part in mine])
            for part, value in zip(mine, rows, strict=True):
                part.copy_(value[None])
    assert sum(part.numel() for mine, _ in pairs for part in mine) == sum(p.numel() for p in ours.parameters())
    assert sum(other.numel() for _, other in pairs) == sum(p.numel() for p in theirs.parameters())
    return ours, theirs, pairs


def parameter_pairs(ours, theirs):
    modules = [
        ([ours.attention.output], theirs.self_attn.out_proj),
        ([ours.feed_forward.inner], theirs.linear1),
        ([ours.feed_forward.outer], theirs.linear2),
        ([ours.attention_norm], theirs.norm1),
        ([ours.feed_forward_norm], theirs.norm2 if isinstance(ours, LEncoderLayer) else theirs.norm3),
    ]
    projections = [([ours.attention.query_key_value], theirs.self_attn)]
    if isinstance(ours, LDecoderLayer):
        modules.append(([ours.cross_attention.output], theirs.multihead_attn.out_proj))
        modules.append(([ours.cross_attention_norm], theirs.norm2))
        projections.append(([ours.cross_attention.query, ours.cross_attention.key_value], theirs.multihead_attn))
    pairs = [([m.weight for m in mine], other.weight) for mine, other in modules]
    pairs += [([m.bias for m in mine], other.bias) for mine, other in modules]
    pairs += [([m.weight for m in mine], other.in_proj_weight) for mine, other in projections]
    pairs += [([m.bias for m in mine], other.in_proj_bias) for mine, other in projections]
    return pairs


def assert_same_layer(actual, expected, pairs, inputs):
    assert_parity(actual, expected, inputs)
    cotangent = randn(*actual.shape, seed=98)
    mine = torch.autograd.grad(actual, [part for group, _ in pairs for part in group], cotangent)
    theirs = torch.autograd.grad(expected, [other for _, other in pairs], cotangent)
    mine = iter(mine)
    for (group, _), grad in zip(pairs, theirs, strict=True):
        assert_close(torch.cat([next(mine)[0] for _ in group]), grad)


def padding(lengths, size):
    """(B, size), True for tokens."""
    return torch.arange(size)[None] < torch.tensor(lengths)[:, None]


def causal(size):
    return torch.ones(size, size, dtype=torch.bool).tril()


@placements
@activations
@pytest.mark.parametrize("masked", ["nothing", "padding", "causal", "causal and padding"])
def test_encoder_layer(activation, placement, masked):
    ours, theirs, pairs = make_pair("encoder", activation, placement)
    x = leaf(B, T, D)
    real = padding([T, 3, 2], T)
    mask, options, is_causal = None, {}, False
    if masked == "padding":
        mask, options = real[:, None, None], {"src_key_padding_mask": ~real}
    elif masked == "causal":
        is_causal, options = True, {"src_mask": ~causal(T)}
    elif masked == "causal and padding":
        mask = (real[:, None] & causal(T))[:, None]
        options = {"src_mask": ~causal(T), "src_key_padding_mask": ~real}
    assert_same_layer(ours(x, mask, is_causal=is_causal)[0], theirs(x, **options), pairs, [x])


@placements
@activations
@pytest.mark.parametrize("masked", ["memory", "target and memory", "memory positions"])
def test_decoder_layer(activation, placement, masked):
    ours, theirs, pairs = make_pair("decoder", activation, placement)
    x, memory = leaf(B, T, D), leaf(B, S, D, seed=1)
    options = {"tgt_mask": ~causal(T)}
    target, source = padding([T, 3, 2], T), padding([2, S, 1], S)
    mask = None
    if masked == "memory positions":
        allowed = torch.ones(T, S, dtype=torch.bool)
        allowed[:3, 2:] = False
        options["memory_mask"] = ~allowed
        memory_mask = allowed[None, None]
    else:
        options["memory_key_padding_mask"] = ~source
        memory_mask = source[:, None, None]
    if masked == "target and memory":
        options["tgt_key_padding_mask"] = ~target
        mask = (target[:, None] & causal(T))[:, None]
    assert_same_layer(ours(x, memory, mask, memory_mask)[0], theirs(x, memory, **options), pairs, [x, memory])


def test_a_wrong_mask_a_wrong_weight_or_the_other_placement_is_seen():
    ours, theirs, pairs = make_pair("encoder", "relu", "post")
    x = leaf(B, T, D)
    with pytest.raises(AssertionError, match="differs by"):
        assert_same_layer(ours(x, is_causal=True)[0], theirs(x), pairs, [x])
    other = make_pair("encoder", "relu", "pre")[1]
    with pytest.raises(AssertionError, match="differs by"):
        assert_same_layer(ours(x)[0], other(x), pairs, [x])
    with torch.no_grad():
        ours.feed_forward.outer.bias[0, 0] += 1e-6
    with pytest.raises(AssertionError, match="differs by"):
        assert_same_layer(ours(x)[0], theirs(x), pairs, [x])


@pytest.mark.parametrize("name", ["dct", "dst", "hartley", "hadamard", "haar", "dft", "fft", "identity", "random"])
@pytest.mark.parametrize("scope", ["sublayer", "block"])
def test_every_transform_of_one_element_is_the_standard_layer(name, scope):
    ours, theirs, _ = make_pair("encoder", "relu", "post")
    other = LEncoderLayer(make_config(name, 1, transform_scope=scope, hidden_size=D, intermediate_size=INNER)).double()
    other.load_state_dict(ours.state_dict())
    x = randn(B, T, D)
    assert_close(other(x)[0], theirs(x))


def test_one_slice_is_computed_by_plain_linear_and_layer_norm():
    """No batched product, no transform: the operations are those of a dense layer."""
    names = {"encoder": set(), "torch": set()}
    ours, theirs, _ = make_pair("encoder", "relu", "post")
    x = randn(B, T, D)
    for key, layer in (("encoder", ours), ("torch", theirs)):
        # torch 2.11 warns of events that it throws away, of which there are none here, unless it is told to keep all.
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profile:
            layer(x.requires_grad_())
        names[key] = {event.key for event in profile.key_averages()}
    assert "aten::bmm" not in names["encoder"]
    assert {"aten::linear", "aten::layer_norm"} <= names["encoder"] & names["torch"]
