"""Fourier mixing: the double sum of cosines, slice by slice, with padding that carries no content."""

import math

import pytest
import torch

from lformer.nn import FourierMixing, LDecoderLayer, LEncoderLayer, fold_slices, unfold_slices

from .cases import assert_close, assert_differs, leaf, make_config, randn, randomize

B, T = 2, 5
FOURIER = {"token_mixing": "fourier"}


def cosine_sums(x):
    """Y(t, j) = sum_{s, i} X(s, i) cos(2 pi (t s / T + j i / M)), the angles in the open: (..., T, M) -> same."""
    t, m = x.shape[-2:]
    tokens = torch.arange(t).outer(torch.arange(t)).double() / t
    features = torch.arange(m).outer(torch.arange(m)).double() / m
    angle = 2 * math.pi * (tokens[:, :, None, None] + features)  # (t, s, j, i)
    return torch.einsum("...si,tsji->...tj", x, angle.cos())


@pytest.mark.parametrize("p", [1, 3, 4])
def test_it_is_the_sum_of_cosines_in_every_slice(p):
    x = leaf(p, B, T, 6)
    y, maps = FourierMixing().slices(x)
    assert maps is None
    assert_close(y, cosine_sums(x))
    (gradient,) = torch.autograd.grad(y, x, randn(p, B, T, 6, seed=1))
    assert_close(gradient, cosine_sums(randn(p, B, T, 6, seed=1)))  # the matrices are symmetric


@pytest.mark.parametrize("p", [1, 4])
@pytest.mark.parametrize("placement", ["post", "pre"])
@pytest.mark.parametrize("scope", ["sublayer", "block"])
@pytest.mark.parametrize("name", ["dct", "dft", "learned-orthogonal"])
def test_a_layer_mixes_then_feeds_forward(name, p, placement, scope):
    """Also that L around the mixing cancels: here it is written out."""
    layer = randomize(LEncoderLayer(make_config(name, p, norm_placement=placement, transform_scope=scope, **FOURIER)))
    x = randn(B, T, layer.config.hidden_size)
    folded = fold_slices(x, p)
    around = layer.transform or layer.feed_forward.transform  # any L will do for the mixing

    def mix(s):
        return cosine_sums(s) if scope == "block" else around.inverse(cosine_sums(around(s)))

    def feed(s):
        return layer.feed_forward.slices(s) if scope == "block" else layer.feed_forward(s)

    stream = layer.transform(folded) if scope == "block" else folded
    for sublayer, norm in ((mix, layer.attention_norm), (feed, layer.feed_forward_norm)):
        stream = norm(stream + sublayer(stream)) if placement == "post" else stream + sublayer(norm(stream))
    if scope == "block":
        stream = layer.transform.inverse(stream)
    y, maps = layer(x)
    assert maps is None
    assert_close(y, unfold_slices(stream, layer.config.hidden_size), 1e-9)


def test_its_layer_has_the_parameters_of_the_rest():
    p, m, f = 4, 4, 6
    layer = LEncoderLayer(make_config(**FOURIER))
    assert sum(value.numel() for value in layer.parameters()) == p * (2 * m * f + f + m + 4 * m)
    assert not list(FourierMixing().parameters())


def test_padding_has_no_content_but_a_length():
    x = randn(4, B, T, 6)
    mask = torch.arange(T)[None] < torch.tensor([[T], [3]])
    y, _ = FourierMixing().slices(x, mask=mask[:, None, None])
    changed = x.clone()
    changed[:, 1, 3:] = float("nan")
    assert torch.equal(y, FourierMixing().slices(changed, mask=mask[:, None, None])[0])
    assert_close(y[:, 1], cosine_sums(torch.cat([x[:, 1, :3], torch.zeros(4, 2, 6)], dim=1)))
    assert_close(y[:, 0], cosine_sums(x[:, 0]))
    shorter, _ = FourierMixing().slices(x[:, 1:, :3])
    assert_differs(y[:, 1:, :3], shorter)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype):
    x = randn(2, B, 8, 6, dtype=dtype)
    y, _ = FourierMixing().slices(x)
    assert_close(y, cosine_sums(x.double()).to(dtype), 1e-2)
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(FourierMixing().slices(x)[0], cosine_sums(x.double()).float(), 1e-6)


@pytest.mark.parametrize("options", [{"is_causal": True}, {"cache": object()}])
def test_it_is_not_causal(options):
    with pytest.raises(ValueError, match="cannot be causal or cached"):
        FourierMixing().slices(randn(1, B, T, 4), **options)


@pytest.mark.parametrize("mask", [torch.ones(B, 1, T, T).bool(), torch.zeros(B, 1, 1, T)])
def test_a_mask_for_pairs_of_tokens_is_refused(mask):
    with pytest.raises(ValueError, match=r"which tokens are padding, \(batch, length\)"):
        FourierMixing().slices(randn(1, B, T, 4), mask=mask)


def test_a_decoder_layer_refuses_it():
    with pytest.raises(ValueError, match="it is for encoders; use token_mixing='attention'"):
        LDecoderLayer(make_config(**FOURIER))
