"""Positional encodings against the formula of the paper, counted from 1 as there; rotary positions against Llama's."""

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from lformer.kernels import rotate
from lformer.nn import LAttention, RotaryPositions, TubePositionalEncoding, reference
from lformer.nn.positions import alphas

from .cases import assert_close, assert_differs, leaf, make_config, randn, randomize

ALPHA = {
    "standard": lambda k, p: 1.0,
    "linear": lambda k, p: k / p,
    "exponential": lambda k, p: 2 ** ((k - 1) / (p - 1)) if p > 1 else 1.0,
    "harmonic": lambda k, p: float(k),
    "learned-alpha": lambda k, p: 1.0,
}
over_strategies = pytest.mark.parametrize("strategy", ALPHA)
over_p = pytest.mark.parametrize("p", [1, 2, 3, 4])


def literal(strategy, length, width, p):
    return reference.positional_encoding(length, width, [ALPHA[strategy](k, p) for k in range(1, p + 1)])


@over_strategies
@over_p
@pytest.mark.parametrize("width", [1, 4, 5])
def test_the_formula(strategy, p, width):
    layer = TubePositionalEncoding(p * width, p, 9, strategy).double()
    expected = literal(strategy, 7, width, p)
    assert_close(layer.encoding(7)[:, 0], expected)
    x = randn(2, 7, p * width)
    added = layer(x) - x
    for k in range(p):
        assert_close(added[:, :, k * width : (k + 1) * width], expected[k].expand(2, -1, -1), 1e-9)


def test_the_strategies_differ():
    tables = [TubePositionalEncoding(12, 3, 9, name).encoding(9) for name in ALPHA if name != "learned-alpha"]
    for index, table in enumerate(tables):
        for other in tables[:index]:
            assert_differs(table, other, 0.05)
    with pytest.raises(AssertionError, match="differs by"):
        assert_close(tables[1].double()[:, 0], literal("harmonic", 9, 4, 3))


def test_the_exponential_scale_of_one_slice_is_one():
    assert alphas("exponential", 1).tolist() == [1.0]
    assert alphas("exponential", 3).tolist() == pytest.approx([1, 2**0.5, 2])


def test_one_slice_is_the_usual_sinusoid():
    table = TubePositionalEncoding(6, 1, 5).double().encoding(5)[0, 0]
    t = torch.arange(1, 6, dtype=torch.float64)[:, None]
    angle = t / 10000 ** (torch.arange(0, 6, 2) / 6.0)
    assert_close(table[:, 0::2], angle.sin(), 1e-7)
    assert_close(table[:, 1::2], angle.cos(), 1e-7)


@pytest.mark.parametrize("strategy", [*ALPHA, "learned"])
def test_position_ids_pick_positions(strategy):
    layer = TubePositionalEncoding(12, 3, 9, strategy).double()
    ids = torch.tensor([[0, 0, 1, 2], [5, 8, 3, 0]])
    x = randn(2, 4, 12)
    whole = layer.encoding(9).expand(3, 2, 9, 4)
    for row in range(2):
        assert_close(layer.encoding(4, ids)[:, row], whole[:, row, ids[row]])
    assert_differs(layer(x, ids), layer(x))


def test_learned_scales_get_the_gradient_of_the_formula():
    layer = randomize(TubePositionalEncoding(12, 3, 9, "learned-alpha"))
    assert [tuple(parameter.shape) for parameter in layer.parameters()] == [(3,)]
    cotangent = randn(3, 5, 4)
    (grad,) = torch.autograd.grad((layer.encoding(5)[:, 0] * cotangent).sum(), layer.alpha)
    alpha, step = layer.alpha.detach(), 1e-6
    assert_close(layer.encoding(5)[:, 0], reference.positional_encoding(5, 4, alpha.tolist()))
    for k in range(3):
        moved = []
        for sign in (1, -1):
            changed = alpha.clone()
            changed[k] += sign * step
            moved.append(float((reference.positional_encoding(5, 4, changed.tolist()) * cotangent).sum()))
        assert abs(float(grad[k]) - (moved[0] - moved[1]) / (2 * step)) < 1e-6 * (1 + abs(float(grad[k])))


def test_a_learned_table_is_one_whole_tensor():
    layer = TubePositionalEncoding(10, 4, 9, "learned")
    assert [tuple(parameter.shape) for parameter in layer.parameters()] == [(4, 9, 3)]
    layer(torch.zeros(1, 5, 10)).sum().backward()
    assert layer.table.grad[:, :5].abs().sum() > 0
    assert layer.table.grad[:, 5:].abs().sum() == 0


@pytest.mark.parametrize("strategy", ["rope", "none"])
def test_nothing_is_added_elsewhere(strategy):
    layer = TubePositionalEncoding(12, 3, 2, strategy)
    x = torch.randn(2, 7, 12)
    assert layer(x) is x
    assert not [*layer.parameters(), *layer.buffers()]


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"10 tokens, but max_position_embeddings=9; truncate"):
        TubePositionalEncoding(12, 3, 9)(torch.zeros(1, 10, 12))
    with pytest.raises(ValueError, match=r"positional='cosine' is not one of 'standard', 'linear'"):
        TubePositionalEncoding(12, 3, 9, "cosine")
    with pytest.raises(ValueError, match="the head size 3 must be even"):
        RotaryPositions(3)


@pytest.mark.parametrize("strategy", [*ALPHA, "rope"])
def test_far_positions_keep_their_digits_in_half_precision(strategy):
    """Angles are computed in float32: the 900th position in bfloat16 is off by rounding only."""
    if strategy == "rope":
        exact, rounded = (RotaryPositions(8).to(dtype)(torch.tensor([[900]]))[0] for dtype in (None, torch.bfloat16))
    else:
        exact, rounded = (
            TubePositionalEncoding(8, 2, 1000, strategy).to(dtype).encoding(1, torch.tensor([[900]]))
            for dtype in (None, torch.bfloat16)
        )
    assert_close(rounded.float(), exact, 5e-3)


def test_rotary_positions_are_those_of_llama():
    b, t, h, e = 2, 6, 3, 8
    config = LlamaConfig(hidden_size=h * e, num_attention_heads=h, max_position_embeddings=64)
    ids = torch.tensor([[0, 1, 2, 3, 4, 5], [0, 0, 0, 7, 8, 20]])
    q, k = randn(b, h, t, e, dtype=torch.float32), randn(b, h, t, e, seed=1, dtype=torch.float32)
    expected = apply_rotary_pos_emb(q, k, *LlamaRotaryEmbedding(config)(q, ids))
    rotary = RotaryPositions(e)(ids)
    for part, other in zip((q, k), expected, strict=True):
        assert_close(rotate(part.transpose(1, 2)[None], rotary)[0].transpose(1, 2), other, 1e-6)
    with pytest.raises(AssertionError, match="differs by"):
        assert_close(rotate(q.transpose(1, 2)[None], RotaryPositions(e)(ids + 1))[0].transpose(1, 2), expected[0], 1e-6)


@pytest.mark.parametrize("name", ["dct", "dft"])
@pytest.mark.parametrize("p", [1, 4])
def test_rotary_attention_sees_distances_only(name, p):
    layer = randomize(LAttention(make_config(name, p)))
    x, ids = leaf(2, 5, 4 * p), torch.arange(5)[None]
    rotary = RotaryPositions(2)
    near, far, other = (layer(x, rotary=rotary(where))[0] for where in (ids, ids + 11, 2 * ids))
    assert_close(near, far, 1e-5)
    assert_differs(near, other)
    assert_differs(near, layer(x)[0])
