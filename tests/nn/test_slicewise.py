"""The slice-wise theorem: every slice of L-MHA and L-FFN is a standard layer of width d_s, run alone."""

import pytest
import torch
from torch import nn

from lformer.nn import LAttention, LFeedForward

from .cases import (
    HEADS,
    INNER,
    REAL_CASES,
    WIDTH,
    assert_close,
    assert_differs,
    case_ids,
    from_slices,
    make_config,
    matrix_pair,
    randn,
    randomize,
    to_slices,
)

over_cases = pytest.mark.parametrize(("name", "p"), REAL_CASES, ids=case_ids(REAL_CASES))
B, T, S = 2, 5, 3


@torch.no_grad()
def standard_attention(layer, i):
    """nn.MultiheadAttention of width M with the weights of slice i."""
    alone = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).double()
    parts = [layer.query, layer.key_value] if layer.cross else [layer.query_key_value]
    alone.in_proj_weight.copy_(torch.cat([part.weight[i] for part in parts]))
    alone.in_proj_bias.copy_(torch.cat([part.bias[i] for part in parts]))
    alone.out_proj.weight.copy_(layer.output.weight[i])
    alone.out_proj.bias.copy_(layer.output.bias[i])
    return alone


@torch.no_grad()
def standard_feed_forward(layer, i, activation):
    alone = nn.Sequential(nn.Linear(WIDTH, INNER), activation, nn.Linear(INNER, WIDTH)).double()
    for linear, source in ((alone[0], layer.inner), (alone[2], layer.outer)):
        linear.weight.copy_(source.weight[i])
        linear.bias.copy_(source.bias[i])
    return alone


@over_cases
@pytest.mark.parametrize("kind", ["self", "causal", "padded", "cross"])
def test_attention(name, p, kind):
    layer = randomize(LAttention(make_config(name, p), cross=kind == "cross"))
    z, z_inverse = matrix_pair(name, p)
    x, memory = randn(B, T, p * WIDTH), randn(B, S, p * WIDTH, seed=1)
    xh = to_slices(z, x, p)
    source = to_slices(z, memory, p) if kind == "cross" else xh
    tokens = torch.arange(T)[None] < torch.tensor([[T], [2]])
    options, alone_options = {}, {}
    if kind == "causal":
        options, alone_options = {"is_causal": True}, {"attn_mask": torch.ones(T, T, dtype=torch.bool).triu(1)}
    if kind == "padded":
        options, alone_options = {"mask": tokens[:, None, None]}, {"key_padding_mask": ~tokens}
    alone = [
        standard_attention(layer, i)(xh[i], source[i], source[i], need_weights=False, **alone_options)[0]
        for i in range(p)
    ]
    given = source if kind == "cross" else None
    assert_close(layer.slices(xh, given, **options)[0], torch.stack(alone))
    y = layer(x, memory if kind == "cross" else None, **options)[0]
    assert_close(y, from_slices(z_inverse, torch.stack(alone)))


@over_cases
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_feed_forward(name, p, activation):
    layer = randomize(LFeedForward(make_config(name, p, hidden_act=activation)))
    z, z_inverse = matrix_pair(name, p)
    x = randn(B, T, p * WIDTH)
    xh = to_slices(z, x, p)
    sigma = nn.ReLU() if activation == "relu" else nn.GELU()
    alone = torch.stack([standard_feed_forward(layer, i, sigma)(xh[i]) for i in range(p)])
    assert_close(layer.slices(xh), alone)
    assert_close(layer(x), from_slices(z_inverse, alone))


@over_cases
def test_no_slice_hears_of_another(name, p):
    """Change one slice of the input in the transform domain: the others of the output stay bit for bit."""
    for layer in (randomize(LAttention(make_config(name, p))), randomize(LFeedForward(make_config(name, p)))):
        xh = randn(p, B, T, WIDTH)
        changed = xh.clone()
        changed[1] += 1
        before, after = layer.slices(xh), layer.slices(changed)
        if isinstance(before, tuple):
            before, after = before[0], after[0]
        others = [i for i in range(p) if i != 1]
        assert torch.equal(before[others], after[others])
        assert_differs(before[1], after[1])


def test_the_weights_of_another_slice_are_seen():
    layer = randomize(LAttention(make_config("dct", 4)))
    xh = randn(4, B, T, WIDTH)
    with pytest.raises(AssertionError, match="differs by"):
        assert_close(layer.slices(xh)[0][0], standard_attention(layer, 1)(xh[0], xh[0], xh[0])[0])


@pytest.mark.parametrize("name", ["dct", "hartley"])
def test_sigma_in_the_original_domain_is_another_model(name):
    """Eq. (TFFN) and the theorem differ: sigma does not commute with L, except under the identity."""
    x = randn(B, T, 4 * WIDTH)
    theorem = randomize(LFeedForward(make_config(name, 4)))
    equation = randomize(LFeedForward(make_config(name, 4, activation_domain="original")))
    assert_differs(theorem(x), equation(x))
    z, z_inverse = matrix_pair(name, 4)
    hidden = from_slices(z_inverse, theorem.inner.slices(to_slices(z, x, 4)))
    expected = from_slices(z_inverse, theorem.outer.slices(to_slices(z, hidden.relu(), 4)))
    assert_close(equation(x), expected)
    same = [randomize(LFeedForward(make_config("identity", 4, activation_domain=d))) for d in ("transform", "original")]
    assert_close(same[0](x), same[1](x))
