"""Tensor layer normalisation against its formula."""

import pytest
import torch
from torch import nn

from lformer.nn import TensorLayerNorm, reference

from .cases import assert_close, assert_parity, leaf, randn, randomize


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("p", "d"), [(1, 6), (2, 6), (3, 6), (4, 10), (5, 5)])
def test_the_formula(p, d, shared):
    norm = randomize(TensorLayerNorm(d, p, shared=shared, eps=0.1))
    x = leaf(4, d)
    expected = reference.matricize(reference.layer_norm(norm, reference.tensorize(x, p)), d)
    if d == p:  # one feature minus its mean is nothing: the gradient of the input vanishes
        assert_parity(norm(x[None])[0], expected, [norm.bias])
    else:
        assert_parity(norm(x[None])[0], expected, [x, norm.weight, norm.bias])


def test_every_token_and_slice_is_normed_alone():
    norm = TensorLayerNorm(12, 3).double()
    x = randn(2, 4, 12)
    y = norm(x).unflatten(-1, (3, 4))
    assert_close(y.mean(-1), torch.zeros(2, 4, 3, dtype=torch.float64))
    assert_close(y.var(-1, correction=0), torch.ones(2, 4, 3, dtype=torch.float64), 1e-3)
    changed = x.clone()
    changed[0, 0, :4] += 5 * randn(4)
    assert torch.equal(norm(changed)[..., 4:], norm(x)[..., 4:])


def test_one_slice_is_nn_layer_norm():
    norm = randomize(TensorLayerNorm(6, 1, eps=0.1))
    expected = nn.LayerNorm(6, eps=0.1).double()
    expected.load_state_dict({"weight": norm.weight.detach()[0], "bias": norm.bias.detach()[0]})
    x = leaf(2, 3, 6)
    assert_parity(norm(x), expected(x), [x])
    with pytest.raises(AssertionError, match="differs by"):
        assert_close(randomize(TensorLayerNorm(6, 1))(x), expected(x))  # another eps


def test_parameters():
    assert [tuple(p.shape) for p in TensorLayerNorm(12, 3).parameters()] == [(3, 4), (3, 4)]
    assert [tuple(p.shape) for p in TensorLayerNorm(12, 3, shared=True).parameters()] == [(1, 4), (1, 4)]
