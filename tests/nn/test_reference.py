"""Parity with the literal loops of reference.py (Algorithm 1): outputs, and gradients of the input and every weight."""

import pytest
import torch

from lformer.nn import LAttention, LEncoderLayer, LFeedForward, reference

from .cases import (
    COMPLEX_CASES,
    FEW_CASES,
    LEARNED_CASES,
    REAL_CASES,
    WIDTH,
    assert_close,
    assert_parity,
    case_ids,
    leaf,
    make_config,
    randn,
    randomize,
)

ALL_CASES = [*REAL_CASES, *COMPLEX_CASES, *LEARNED_CASES]
over_all = pytest.mark.parametrize(("name", "p"), ALL_CASES, ids=case_ids(ALL_CASES))
over_few = pytest.mark.parametrize(("name", "p"), FEW_CASES, ids=case_ids(FEW_CASES))
T, S = 4, 3


def with_reference(function, layer, x, *rest):
    """A function of reference.py on ordinary activations of one text, (T, D) -> (T, D)."""
    p, d = layer.config.tube_length, layer.config.hidden_size
    slices = [reference.tensorize(part, p) if part is not None else None for part in (x, *rest[:1])]
    return reference.matricize(function(layer, *slices, *rest[1:]), d)


@over_all
def test_attention(name, p):
    layer = randomize(LAttention(make_config(name, p)))
    x = leaf(T, p * WIDTH)
    expected = with_reference(reference.attention, layer, x)
    assert_parity(layer(x[None])[0][0], expected, [x, *layer.parameters()])


@over_all
def test_masked_cross_attention(name, p):
    layer = randomize(LAttention(make_config(name, p), cross=True))
    x, memory = leaf(T, p * WIDTH), leaf(S, p * WIDTH, seed=1)
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [0, 1, 1], [0, 0, 1]]).bool()
    expected = with_reference(reference.attention, layer, x, memory, mask)
    y = layer(x[None], memory[None], mask=mask[None, None])[0][0]
    assert_parity(y, expected, [x, memory, *layer.parameters()])


@over_all
@pytest.mark.parametrize("domain", ["transform", "original"])
def test_feed_forward(name, p, domain):
    layer = randomize(LFeedForward(make_config(name, p, activation_domain=domain, hidden_act="gelu")))
    x = leaf(T, p * WIDTH)
    expected = with_reference(reference.feed_forward, layer, x)
    assert_parity(layer(x[None])[0], expected, [x, *layer.parameters()])


@over_all
@pytest.mark.parametrize("scope", ["sublayer", "block"])
def test_encoder_layer(name, p, scope):
    layer = randomize(LEncoderLayer(make_config(name, p, transform_scope=scope)))
    x = leaf(T, p * WIDTH)
    assert_parity(layer(x[None])[0][0], reference.encoder_layer(layer, x), [x, *layer.parameters()])


@over_few
@pytest.mark.parametrize("scope", ["sublayer", "block"])
@pytest.mark.parametrize(
    "changes",
    [
        {"norm_placement": "pre", "hidden_act": "gelu"},
        {"activation_domain": "original"},
        {"paper_counts": True},
        {"layer_norm_eps": 0.1},
        {"interleave": True, "activation_domain": "original"},
        {"interleave": True},
        {"attention_domain": "original"},
        {"attention_domain": "original", "activation_domain": "original", "interleave": True},
    ],
    ids=lambda changes: "-".join(f"{value}" for value in changes.values()),
)
def test_encoder_layer_variants(name, p, scope, changes):
    if scope == "block" and "attention_domain" in changes:
        pytest.skip("attention has no L of its own there")
    if changes.get("interleave"):
        changes = {**changes, "hidden_size": 2 * p * p, "intermediate_size": 3 * p * p, "num_attention_heads": 2 * p}
    layer = randomize(LEncoderLayer(make_config(name, p, transform_scope=scope, **changes)))
    x = leaf(T, layer.config.hidden_size)
    assert_parity(layer(x[None])[0][0], reference.encoder_layer(layer, x), [x, *layer.parameters()])


@over_few
def test_a_width_that_the_tube_length_does_not_divide(name, p):
    layer = randomize(LEncoderLayer(make_config(name, p, hidden_size=p * WIDTH - 1, intermediate_size=p * 6 - 1)))
    x = leaf(T, p * WIDTH - 1)
    assert_parity(layer(x[None])[0][0], reference.encoder_layer(layer, x), [x, *layer.parameters()])


@over_few
def test_a_batch_is_its_members_one_by_one_each_with_its_mask(name, p):
    layer = randomize(LEncoderLayer(make_config(name, p)))
    x = randn(3, T, p * WIDTH)
    tokens = torch.arange(T)[None] < torch.tensor([[T], [2], [3]])
    batch = layer(x, tokens[:, None, None])[0]
    for member, text, row in zip(batch, x, tokens, strict=True):
        assert_close(member, reference.encoder_layer(layer, text, row[None].expand(T, T)))


def test_a_layer_with_other_weights_fails():
    layer, other = (randomize(LEncoderLayer(make_config()), seed) for seed in (0, 1))
    x = leaf(T, 16)
    with pytest.raises(AssertionError, match="differs by"):
        assert_parity(layer(x[None])[0][0], reference.encoder_layer(other, x), [x])
