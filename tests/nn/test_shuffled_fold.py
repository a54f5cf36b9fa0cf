"""feed_forward_fold="shuffled": the ordinary feed-forward on features that a permutation by hand has put elsewhere."""

import pytest
import torch

from lformer.nn import LDecoderLayer, LEncoderLayer, LFeedForward, fold_slices, unfold_slices

from .cases import (
    FEW_CASES,
    assert_block_diagonal,
    assert_close,
    assert_differs,
    assert_parity,
    by_kernels,
    case_ids,
    leaf,
    make_config,
    randn,
    randomize,
)

B, T = 2, 3
over_few = pytest.mark.parametrize(("name", "p"), FEW_CASES, ids=case_ids(FEW_CASES))


def config(name="dct", p=4, **changes):
    """Slices of 2 P features, so that a chunk has two."""
    sizes = {"hidden_size": 2 * p * p, "num_attention_heads": 2 * p, "intermediate_size": 3 * p * p}
    return make_config(name, p, **{"feed_forward_fold": "shuffled", **sizes, **changes})


def order(p, chunk=2):
    """For each feature of the shuffled fold the one it comes from: slice k, chunk l is slice l, chunk k before."""
    return torch.tensor(
        [
            (from_slice * p + from_chunk) * chunk + i
            for from_chunk in range(p)
            for from_slice in range(p)
            for i in range(chunk)
        ]
    )


@over_few
@pytest.mark.parametrize("domain", ["transform", "original"])
def test_the_feed_forward_is_the_ordinary_one_between_two_permutations(name, p, domain):
    layer = randomize(LFeedForward(config(name, p, activation_domain=domain)))
    plain = LFeedForward(config(name, p, activation_domain=domain, feed_forward_fold="same")).double()
    plain.load_state_dict(layer.state_dict())
    x = leaf(B, T, 2 * p * p)
    there = order(p)
    back = there.argsort()
    expected = plain(x[..., there])[..., back]
    assert_parity(layer(x), expected, [x, *layer.parameters()], [x, *plain.parameters()])
    assert_differs(layer(x), plain(x))


def by_hand(layer, x, memory=None):
    """The layer's sublayers one after the other, each in the original domain: (B, T, D) -> (B, T, D)."""
    p, d = layer.config.tube_length, layer.config.hidden_size
    plain = LFeedForward(config(layer.config.transform, p, feed_forward_fold="same")).double()
    plain.load_state_dict(layer.feed_forward.state_dict())
    there = order(p)
    causal = isinstance(layer, LDecoderLayer)
    steps = [(lambda s: layer.attention(s, is_causal=causal)[0], layer.attention_norm)]
    if memory is not None:
        steps.append((lambda s: layer.cross_attention(s, memory)[0], layer.cross_attention_norm))
    steps.append((lambda s: plain(s[..., there])[..., there.argsort()], layer.feed_forward_norm))
    for sublayer, norm in steps:
        x = norm(x + sublayer(x)) if layer.is_post else x + sublayer(norm(x))
    assert x.shape[-1] == d
    return x


@over_few
@pytest.mark.parametrize("placement", ["post", "pre"])
def test_an_encoder_layer(name, p, placement):
    layer = randomize(LEncoderLayer(config(name, p, norm_placement=placement)))
    x = leaf(B, T, 2 * p * p)
    expected = by_hand(layer, x)
    leaves = [x, *layer.attention.parameters(), *layer.attention_norm.parameters()]
    assert_parity(layer(x)[0], expected, leaves)


@pytest.mark.parametrize("placement", ["post", "pre"])
@pytest.mark.parametrize("cross", [False, True])
def test_a_decoder_layer(placement, cross):
    layer = randomize(LDecoderLayer(config(norm_placement=placement), cross_attention=cross))
    x, memory = leaf(B, T, 32), randn(B, 2, 32, seed=1) if cross else None
    assert_parity(layer(x, memory)[0], by_hand(layer, x, memory), [x, *layer.attention.parameters()])


@pytest.mark.parametrize("placement", ["post", "pre"])
def test_a_layer_that_makes_the_input_of_the_next(placement):
    """Two layers of which the first does the norm and L of the second in passing."""
    first, second = (randomize(LEncoderLayer(config(norm_placement=placement)), seed) for seed in (0, 1))
    x = randn(B, T, 32)
    slices, _, xh = first(fold_slices(x, 4), following=second.entry)
    joined = second(slices, xh=xh)[0]
    assert_close(unfold_slices(joined, 32), by_hand(second, by_hand(first, x)))


@pytest.mark.parametrize("placement", ["post", "pre"])
def test_the_kernels(placement):
    changes = {"norm_placement": placement, "gated": True}
    expected = randomize(LEncoderLayer(config(**changes)))
    layer = LEncoderLayer(config(backend="triton", **changes))
    layer.load_state_dict(expected.state_dict())
    x = randn(B, T, 32)
    assert_close(by_kernels(layer, x), expected(x)[0], 1e-5)


def test_one_slice_has_nothing_to_exchange():
    layer = randomize(LEncoderLayer(make_config("dct", 1, feed_forward_fold="shuffled")))
    plain = randomize(LEncoderLayer(make_config("dct", 1)))
    x = randn(B, T, 4)
    assert torch.equal(layer(x)[0], plain(x)[0])


def test_under_the_identity_the_feed_forward_is_block_diagonal_in_its_own_fold():
    layer = randomize(LFeedForward(config("identity")))
    x, there = randn(B, T, 32), order(4)
    moved = torch.stack([layer(x) - layer(x + torch.eye(32)[feature]) for feature in range(32)]).abs().amax((1, 2))
    own = torch.zeros(32, dtype=torch.long)
    own[there] = torch.arange(32) // 8  # the slice in which a feature stands after the shuffle
    apart = own[:, None] != own[None, :]
    assert moved[apart].max() == 0
    assert (moved[~apart] > 0).double().mean() > 0.9


def test_under_the_identity_the_layer_mixes_slices_and_without_it_does_not():
    assert_block_diagonal(randomize(LEncoderLayer(config("identity", feed_forward_fold="same"))))
    with pytest.raises(AssertionError, match="other slices moved"):
        assert_block_diagonal(randomize(LEncoderLayer(config("identity"))))
    everything = {"qk_norm": True, "gated": True, "linear_rank": 3, "hidden_act": "silu", "norm_placement": "pre"}
    assert_block_diagonal(randomize(LEncoderLayer(config("identity", feed_forward_fold="same", **everything))))
