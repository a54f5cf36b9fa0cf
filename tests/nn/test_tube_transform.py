"""L and L^-1 as a module: fixed, learned, learned and orthogonal; complex transforms as real channels."""

import itertools

import pytest
import torch

from lformer.algebra import get_transform
from lformer.nn import LDecoderLayer, TubeTransform
from lformer.nn.tube_transform import rotation

from .cases import (
    COMPLEX_CASES,
    LEARNED_CASES,
    REAL_CASES,
    assert_close,
    assert_differs,
    case_ids,
    make_config,
    randn,
    randomize,
)

ALL_CASES = [*REAL_CASES, *COMPLEX_CASES, *LEARNED_CASES]


@pytest.mark.parametrize(("name", "p"), ALL_CASES, ids=case_ids(ALL_CASES))
def test_round_trip(name, p):
    layer = TubeTransform(p, name).double()
    x = randn(p, 2, 3, 4)
    tolerance = 1e-6 if name == "learned" else 1e-10  # parameters are made in float32 and cast
    assert_close(layer.inverse(layer(x)), x, tolerance)
    assert_close(layer(layer.inverse(x)), x, tolerance)
    assert layer(x).shape == x.shape


@pytest.mark.parametrize(("name", "p"), REAL_CASES, ids=case_ids(REAL_CASES))
def test_fixed_is_the_transform_of_the_algebra(name, p):
    x = randn(p, 2, 3)
    assert_close(TubeTransform(p, name).double()(x), get_transform(name, p).forward(x, dim=0))
    assert_close(TubeTransform(p, name).double().inverse(x), get_transform(name, p).inverse(x, dim=0))
    assert not list(TubeTransform(p, name).parameters())
    assert not TubeTransform(p, name).state_dict()  # known numbers are not saved


@pytest.mark.parametrize(("name", "p"), COMPLEX_CASES, ids=case_ids(COMPLEX_CASES))
def test_complex_slices_are_real_parts_then_imaginary_parts(name, p):
    x = randn(p, 2, 3)
    slices = get_transform(name, p).forward(x, dim=0)
    c = (p - 1) // 2
    kept = [0, p // 2] if p % 2 == 0 else [0]
    pairs = slices[1 : c + 1]
    expected = torch.cat([slices[kept].real, pairs.real, pairs.imag])
    assert len(expected) == p
    layer = TubeTransform(p, name).double()
    assert layer.num_complex == c
    assert_close(layer(x), expected)
    assert_close(layer.inverse(expected), x)


@pytest.mark.parametrize("p", [1, 2, 3, 4, 8])
def test_learned_starts_as_the_dct_pair_and_has_two_matrices(p):
    layer = TubeTransform(p, "learned").double()
    assert sum(parameter.numel() for parameter in layer.parameters()) == 2 * p * p
    assert_close(layer.matrix, get_transform("dct", p).matrix, 1e-7)
    assert_close(layer.inverse_matrix, get_transform("dct", p).inverse_matrix, 1e-7)


@pytest.mark.parametrize("p", [2, 3, 4, 8])
def test_learned_orthogonal_starts_as_the_dct_and_stays_orthogonal(p):
    layer = TubeTransform(p, "learned-orthogonal").double()
    assert_close(layer.matrices()[0], get_transform("dct", p).matrix)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    x, target = randn(p, 20), randn(p, 20, seed=1)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = (layer(x) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.01
    z, back = layer.matrices()
    assert_differs(z, get_transform("dct", p).matrix, 0.05)
    assert_close(z @ z.T, torch.eye(p, dtype=torch.float64))
    assert_close(back, z.T)


def test_a_free_pair_does_not_stay_inverse():
    layer = randomize(TubeTransform(4, "learned"))
    with pytest.raises(AssertionError, match="differs by"):
        assert_close(layer.inverse(layer(randn(4, 5))), randn(4, 5))


@pytest.mark.parametrize("name", ["dct", "dft", "learned", "learned-orthogonal"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_dtypes(name, dtype):
    """The result has the dtype of the activations, whatever that of the module is, and is right to its precision."""
    x = randn(4, 2, 3)
    exact = TubeTransform(4, name).double()(x)
    tolerance = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}[dtype]
    for layer in (TubeTransform(4, name), TubeTransform(4, name).to(dtype)):
        assert layer(x.to(dtype)).dtype == dtype
        assert_close(layer(x.to(dtype)).double(), exact, tolerance)
        assert_close(layer.inverse(exact.to(dtype)).double(), x, tolerance)


@pytest.mark.parametrize("name", ["dct", "random", "dft"])
def test_a_cast_and_back_loses_no_digit(name):
    first = TubeTransform(4, name).double()
    again = TubeTransform(4, name).bfloat16().double()
    assert torch.equal(first.matrix, again.matrix)
    assert torch.equal(first.inverse_matrix, again.inverse_matrix)


def test_a_cast_keeps_what_was_learned():
    layer = randomize(TubeTransform(4, "learned"))
    expected = layer.matrix.detach().clone()
    assert_close(layer.float().double().matrix, expected, 1e-6)
    assert_differs(layer.matrix, get_transform("dct", 4).matrix, 0.1)


@pytest.mark.parametrize(("name", "p"), [("identity", 4), ("dct", 1), ("hadamard", 1), ("dft", 1)])
def test_an_identity_costs_nothing(name, p):
    layer = TubeTransform(p, name)
    x = torch.randn(p, 2, 3)
    assert layer(x) is x
    assert layer.inverse(x) is x
    assert not list(layer.buffers())


def test_what_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="no transform is called 'wavelet'"):
        TubeTransform(4, "wavelet")
    with pytest.raises(ValueError, match="power"):
        TubeTransform(3, "hadamard")


@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("p", [1, 2, 5, 16])
def test_rotation_is_the_matrix_exponential(p, scale):
    generator = scale * torch.randn(p, p, dtype=torch.float64)
    expected = torch.linalg.matrix_exp(generator - generator.T)
    torch.testing.assert_close(rotation(generator), expected, rtol=0, atol=1e-11)
    single = rotation(generator.float())
    torch.testing.assert_close(single @ single.T, torch.eye(p), rtol=0, atol=2e-6)


def test_every_sublayer_learns_its_own():
    """Three sublayers, three pairs (Z, W) that start equal and have gradients of their own."""
    layer = LDecoderLayer(make_config("learned", 4), cross_attention=True).double()
    transforms = [layer.attention.transform, layer.cross_attention.transform, layer.feed_forward.transform]
    assert sum(p.numel() for name, p in layer.named_parameters() if "transform" in name) == 3 * 2 * 16
    x, memory = randn(2, 3, 16), randn(2, 2, 16, seed=1)
    layer(x, memory)[0].square().mul(randn(16, seed=2)).sum().backward()
    for one, other in itertools.combinations(transforms, 2):
        assert torch.equal(one.matrix, other.matrix)
        assert_differs(one.matrix.grad, other.matrix.grad)
        assert_differs(one.inverse_matrix.grad, other.inverse_matrix.grad)
