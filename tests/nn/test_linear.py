"""LLinear alone is the L-product with a tensor of weights; and a fraction 1/P of a dense layer's parameters."""

from types import SimpleNamespace

import pytest
import torch

from lformer.algebra import get_transform, lproduct, matricize, tensorize
from lformer.nn import LLinear, reference

from .cases import COMPLEX_CASES, REAL_CASES, assert_close, assert_parity, case_ids, leaf, randn, randomize

CASES = [*REAL_CASES, *COMPLEX_CASES]


def original_domain(layer, name, p):
    """W (M, N, P) and B (1, N, P) of the L-product Y = X * W + B."""
    stored = SimpleNamespace(num_complex=layer.num_complex)
    tensors = []
    for parameter in (layer.weight.mT, layer.bias[:, None]):
        slices = [part.to(torch.complex128) for part in reference._all_slices(parameter, stored)]
        tensor = get_transform(name, p).inverse(torch.stack(slices, dim=-1))
        assert float(tensor.detach().imag.abs().max()) < 1e-12
        tensors.append(tensor.real)
    return tensors


@pytest.mark.parametrize(("name", "p"), CASES, ids=case_ids(CASES))
@pytest.mark.parametrize(("n_in", "n_out"), [(16, 8), (7, 10), (3, 1)])
def test_it_is_the_l_product(name, p, n_in, n_out):
    layer = randomize(LLinear(n_in, n_out, p, transform=name))
    weight, bias = original_domain(layer, name, p)
    x = leaf(2, 3, n_in)
    expected = matricize(lproduct(tensorize(x, p), weight, name) + bias, n_out)
    assert layer(x).shape == (2, 3, n_out)
    assert_parity(layer(x), expected, [x, layer.weight, layer.bias])


def test_another_transform_is_another_product():
    layer = randomize(LLinear(16, 8, 4, transform="dct"))
    weight, bias = original_domain(layer, "dct", 4)
    x = randn(3, 16)
    with pytest.raises(AssertionError, match="differs by"):
        assert_close(layer(x[None])[0], matricize(lproduct(tensorize(x, 4), weight, "hartley") + bias, 8))


@pytest.mark.parametrize(("n_in", "n_out", "p"), [(16, 8, 4), (7, 10, 4), (5, 5, 5), (6, 4, 1)])
@pytest.mark.parametrize("name", ["dct", "dft"])
def test_parameters(n_in, n_out, p, name):
    m, n = -(-n_in // p), -(-n_out // p)
    layer = LLinear(n_in, n_out, p, transform=name)
    assert layer.weight.shape == (p, n, m)
    assert layer.bias.shape == (p, n)
    assert sum(parameter.numel() for parameter in layer.parameters()) == p * (m * n + n)
    assert LLinear(n_in, n_out, p, bias=False, transform=name).bias is None


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 2, 3)])
def test_any_leading_dimensions(shape):
    layer = randomize(LLinear(8, 12, 4))
    x = randn(*shape, 8)
    rows = layer(x.reshape(1, -1, 8)).reshape(*shape, 12)
    assert_close(layer(x), rows)


def test_one_slice_is_nn_linear():
    layer = randomize(LLinear(6, 4, 1))
    x = randn(2, 3, 6)
    assert_close(layer(x), torch.nn.functional.linear(x, layer.weight[0], layer.bias[0]))


def test_complex_weights_start_as_large_as_real_ones():
    torch.manual_seed(0)
    layer = LLinear(512, 512, 4, transform="dft")
    energy = layer.weight.detach().square().mean(dim=(1, 2))
    assert float(energy[2] + energy[3]) == pytest.approx(float(energy[0]), rel=0.05)
