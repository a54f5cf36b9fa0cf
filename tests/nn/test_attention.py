"""Attention maps, masks and the DFT's half: what the parity tests do not look at."""

import pytest
import torch
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

from lformer.nn import LAttention, LDecoderLayer, LEncoderLayer

from .cases import (
    FEW_CASES,
    HEADS,
    WIDTH,
    assert_close,
    assert_differs,
    case_ids,
    make_config,
    randn,
    randomize,
)
from .test_slicewise import standard_attention

over_few = pytest.mark.parametrize(("name", "p"), FEW_CASES, ids=case_ids(FEW_CASES))
B, T = 2, 5
TOKENS = torch.arange(T)[None] < torch.tensor([[T], [3]])
CAUSAL = torch.ones(T, T, dtype=torch.bool).tril()


@over_few
@pytest.mark.parametrize("masked", ["nothing", "padding", "causal", "float"])
def test_asking_for_maps_changes_nothing_else(name, p, masked):
    layer = randomize(LAttention(make_config(name, p)))
    x = randn(B, T, p * WIDTH)
    options = {
        "nothing": {},
        "padding": {"mask": TOKENS[:, None, None]},
        "causal": {"is_causal": True},
        "float": {"mask": randn(B, 1, T, T)},
    }[masked]
    y, no_maps = layer(x, **options)
    y_again, maps = layer(x, output_attentions=True, **options)
    assert no_maps is None
    assert_close(y_again, y)
    c = layer.config.num_complex  # a complex slice has one map for both of its parts
    assert maps.shape == (B, (p - c) * HEADS, T, T)
    assert_close(maps.sum(-1), torch.ones_like(maps[..., 0]))
    if masked == "padding":
        assert maps[1, ..., 3:].abs().max() == 0
    if masked == "causal":
        assert maps.triu(1).abs().max() == 0


@pytest.mark.parametrize("p", [1, 3])
def test_maps_are_of_slice_one_first_and_its_heads(p):
    layer = randomize(LAttention(make_config("dct", p)))
    xh = randn(p, B, T, WIDTH)
    _, maps = layer.slices(xh, output_attentions=True)
    for i in range(p):
        _, expected = standard_attention(layer, i)(xh[i], xh[i], xh[i], average_attn_weights=False)
        assert_close(maps[:, i * HEADS : (i + 1) * HEADS], expected)


@over_few
def test_a_mask_as_numbers_is_the_mask_as_booleans(name, p):
    layer = randomize(LAttention(make_config(name, p)))
    x = randn(B, T, p * WIDTH)
    mask = (TOKENS[:, None] & CAUSAL)[:, None]
    added = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, float("-inf"))
    assert_close(layer(x, mask=mask)[0], layer(x, mask=added)[0])
    assert_close(layer(x, mask=CAUSAL[None, None])[0], layer(x, is_causal=True)[0])
    assert_differs(layer(x, mask=mask)[0], layer(x)[0])


@over_few
def test_a_row_of_padding_alone_is_finite(name, p):
    layer = randomize(LEncoderLayer(make_config(name, p)))
    mask = torch.ones(B, 1, 1, T, dtype=torch.bool)
    mask[1] = False
    x = randn(B, T, p * WIDTH).requires_grad_()
    for output_attentions in (False, True):
        y = layer(x, mask, output_attentions=output_attentions)[0]
        assert torch.isfinite(y).all()
        assert torch.isfinite(torch.autograd.grad(y.sum(), x)[0]).all()
        assert_close(y[:1], layer(x[:1])[0])


def test_attention_dropout_acts_in_training_only():
    layer = randomize(LAttention(make_config(attention_probs_dropout_prob=0.5)))
    x = randn(B, T, 16)
    for options in ({}, {"output_attentions": True}):
        torch.manual_seed(0)
        first, second = layer.train()(x, **options)[0], layer(x, **options)[0]
        assert_differs(first, second)
        torch.manual_seed(0)
        assert torch.equal(layer(x, **options)[0], first)
        assert torch.equal(layer.eval()(x, **options)[0], layer(x, **options)[0])


@pytest.mark.parametrize("p", [2, 3, 4, 5, 8])
def test_the_dft_stores_and_computes_half_of_its_slices(p):
    """P real channels hold what P complex slices would say twice: as many parameters as a real transform."""
    real, complex_ = (LEncoderLayer(make_config(name, p)) for name in ("dct", "dft"))
    shapes = [{name: value.shape for name, value in layer.state_dict().items()} for layer in (real, complex_)]
    assert shapes[0] == shapes[1]
    assert not any(parameter.is_complex() for parameter in complex_.parameters())
    x = torch.randn(2, 3, p * WIDTH)
    assert complex_(x)[0].dtype == torch.float32


@over_few
def test_a_decoder_layer_token_by_token_with_a_cache(name, p):
    layer = randomize(LDecoderLayer(make_config(name, p), cross_attention=True))
    x, memory = randn(B, T, p * WIDTH), randn(B, 3, p * WIDTH, seed=1)
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    steps = [layer(x[:, t : t + 1], memory, cache=cache)[0] for t in range(T)]
    assert_close(torch.cat(steps, dim=1), layer(x, memory)[0])
