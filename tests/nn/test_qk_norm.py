"""Queries and keys of unit root mean square: attention written by hand, slice by slice and head by head."""

import pytest
import torch

from lformer.nn import HeadNorm, LAttention, LDecoderLayer, RotaryPositions

from .cases import (
    HEAD_SIZE,
    HEADS,
    WIDTH,
    assert_block_diagonal,
    assert_close,
    assert_differs,
    assert_parity,
    from_slices,
    leaf,
    make_config,
    matrix_pair,
    randn,
    randomize,
    to_slices,
)

B, T, S = 2, 5, 3
QK = {"qk_norm": True}


def normed(x, scale, eps=1e-5):
    return scale * x / torch.sqrt((x * x).sum(-1, keepdim=True) / x.shape[-1] + eps)


def turned(x, theta=10000.0):
    """Features j and j + E/2 of token t, turned together by the angle t theta^(-2j/E)."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2]).double()[:, None] * theta ** (-torch.arange(half).double() / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], dim=-1)


def by_hand(layer, xh, source, *, causal=False, rope=False):
    """softmax(norm(q) norm(k)^T / sqrt(E)) v in every slice and head: (P, B, T, M) -> (P, B, T, M)."""
    outputs = []
    for k in range(len(xh)):
        if layer.cross:
            weight = torch.cat([layer.query.weight[k], layer.key_value.weight[k]])
            bias = torch.cat([layer.query.bias[k], layer.key_value.bias[k]])
        else:
            weight, bias = layer.query_key_value.weight[k], layer.query_key_value.bias[k]
        inputs = (xh[k], source[k], source[k])
        q, keys, v = (part @ w.T + b for part, w, b in zip(inputs, weight.chunk(3), bias.chunk(3), strict=True))
        heads = []
        for h in range(HEADS):
            columns = slice(h * HEAD_SIZE, (h + 1) * HEAD_SIZE)
            q_h = normed(q[..., columns], layer.query_norm.weight[k])
            k_h = normed(keys[..., columns], layer.key_norm.weight[k])
            if rope:
                q_h, k_h = turned(q_h), turned(k_h)
            scores = q_h @ k_h.mT / HEAD_SIZE**0.5
            if causal:
                scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf)
            heads.append(scores.softmax(-1) @ v[..., columns])
        outputs.append(torch.cat(heads, -1) @ layer.output.weight[k].T + layer.output.bias[k])
    return torch.stack(outputs)


@pytest.mark.parametrize("p", [1, 4])
@pytest.mark.parametrize("kind", ["self", "causal", "cross", "rope"])
def test_attention(p, kind):
    layer = randomize(LAttention(make_config("dct", p, **QK), cross=kind == "cross"))
    z, z_inverse = matrix_pair("dct", p)
    x, memory = leaf(B, T, p * WIDTH), leaf(B, S, p * WIDTH, seed=1)
    xh = to_slices(z, x, p)
    source = to_slices(z, memory, p) if kind == "cross" else xh
    options = {"is_causal": True} if kind == "causal" else {}
    if kind == "rope":
        options["rotary"] = [part.double() for part in RotaryPositions(HEAD_SIZE)(torch.arange(T)[None])]
    y, _ = layer(x, memory if kind == "cross" else None, **options)
    expected = from_slices(z_inverse, by_hand(layer, xh, source, causal=kind == "causal", rope=kind == "rope"))
    leaves = [x, *layer.parameters()] + ([memory] if kind == "cross" else [])
    assert_parity(y, expected, leaves, tolerance=1e-6 if kind == "rope" else 1e-10)  # its angles are in float32


@pytest.mark.parametrize("options", [{"is_causal": True}, {"mask": torch.ones(B, 1, T, T).bool().tril()}, {}])
def test_maps_in_the_open_give_the_same(options):
    layer = randomize(LAttention(make_config(**QK)))
    x = randn(B, T, 16)
    y, maps = layer(x, output_attentions=True, **options)
    assert_close(y, layer(x, **options)[0])
    assert maps.shape == (B, 8, T, T)


def test_the_size_of_queries_and_keys_does_not_matter_and_their_scale_does():
    layer = randomize(LAttention(make_config(layer_norm_eps=1e-12, **QK)))
    x = randn(B, T, 16)
    before = layer(x)[0]
    with torch.no_grad():
        for part in (layer.query_key_value.weight, layer.query_key_value.bias):
            part[:, : 2 * WIDTH] *= 3
    assert_close(layer(x)[0], before)
    with torch.no_grad():
        layer.key_norm.weight *= 3
    assert_differs(layer(x)[0], before)


def test_a_decoder_layer_norms_in_both_attentions():
    layer = LDecoderLayer(make_config(**QK), cross_attention=True)
    norms = {name: tuple(module.weight.shape) for name, module in layer.named_modules() if isinstance(module, HeadNorm)}
    assert norms == {
        f"{attention}.{part}_norm": (4, HEAD_SIZE)
        for attention in ("attention", "cross_attention")
        for part in ("query", "key")
    }


def test_heads_in_the_original_domain_are_real_under_the_dft_too():
    with pytest.raises(ValueError, match="attention_domain='original'"):
        make_config("dft", **QK)
    layer = randomize(LAttention(make_config("dft", attention_domain="original", **QK)))
    x = randn(B, T, 16)
    y, _ = layer(x, output_attentions=True)
    assert_close(y, layer(x)[0])
    with torch.no_grad():
        layer.query_norm.weight *= 2
    assert_differs(layer(x)[0], y)


def test_half_precision_is_normed_in_float32():
    x = 1e4 * randn(2, B, T, 2, 8, dtype=torch.float16)  # squares that float16 cannot hold
    assert_close(HeadNorm(2, 8)(x), normed(x.double(), 1.0).half(), 2e-3)


def test_slices_stay_apart():
    assert_block_diagonal(randomize(LAttention(make_config("identity", 4, **QK))))
