"""L and its inverse, as maps and as objects."""

import copy
import pickle

import pytest
import torch

from lformer.algebra import (
    Transform,
    get_transform,
    lproduct,
    matrices,
    mode_product,
    nuclear_norm,
    reference,
    transforms,
)
from lformer.algebra.slices import slice_domain

from .cases import (
    CASES,
    DTYPES,
    FEW_CASES,
    NAMED,
    NAMES,
    ORTHOGONAL,
    SCALED,
    SIZES,
    assert_close,
    case_ids,
    make,
    make_matrix,
    matrix_of,
    randn,
    wide,
)


@pytest.mark.parametrize(("name", "p"), CASES, ids=case_ids(CASES))
def test_laws_of_a_transform(name, p):
    transform = get_transform(make(name, p), p)
    z, a, b = transform.matrix, randn(3, 2, p, seed=1), randn(3, 2, p, seed=2)
    ah = transform.forward(a)
    assert z.dtype == (torch.complex128 if transform.is_complex else torch.float64)
    assert_close(ah, reference.forward(a, z))
    assert_close(ah, mode_product(a, z, 2))
    assert_close(transform.inverse(ah), a.to(ah.dtype))
    assert_close(transform.forward(transform.inverse(a)), a.to(ah.dtype))
    assert_close(transform.forward(2 * a - b), 2 * ah - transform.forward(b))
    assert_close(z @ transform.inverse_matrix, torch.eye(p, dtype=z.dtype))


@pytest.mark.parametrize(("name", "p"), CASES, ids=case_ids(CASES))
def test_norm_is_preserved_if_and_only_if_orthogonal(name, p):
    transform = get_transform(make(name, p), p)
    a = randn(4, 4, p)
    ratio = float(transform.forward(a).norm() / a.norm())
    if name in ORTHOGONAL:
        assert transform.is_orthogonal
        assert transform.gram_scale == 1.0
        assert ratio == pytest.approx(1, abs=1e-12)
    elif name in SCALED:
        assert transform.gram_scale == float(p)
        assert transform.is_orthogonal == (p == 1)
        assert ratio == pytest.approx(p**0.5, abs=1e-12)
    elif p > 1:
        assert transform.gram_scale is None
        assert not transform.is_orthogonal
        assert abs(ratio - 1) > 1e-3


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_round_trip_in_every_dtype(name, dtype):
    a = randn(2, 3, 2, 4, dtype=dtype)
    transform = get_transform(make(name, 4), 4)
    back = transform.inverse(transform.forward(a))
    if transform.is_complex:
        assert back.is_complex()
        assert_close(back, wide(a).to(back.dtype))
    else:
        assert_close(back, a)


@pytest.mark.parametrize("name", NAMED)
def test_half_precision_loses_only_its_own_rounding(name):
    """Against float64: the matrix is cast from float64 once, not computed in half precision."""
    a = randn(3, 2, 16, dtype=torch.bfloat16)
    exact = get_transform(name, 16).forward(a.double())
    assert_close(get_transform(name, 16).forward(a), exact, 1e-2, same_dtype=False)


@pytest.mark.parametrize(("name", "p"), FEW_CASES, ids=case_ids(FEW_CASES))
@pytest.mark.parametrize("dim", [0, 1, 2, -3])
def test_any_dimension(name, p, dim):
    transform = get_transform(make(name, p), p)
    a = randn(2, 3, p)
    moved = a.movedim(-1, dim)
    assert_close(transform.forward(moved, dim=dim), transform.forward(a).movedim(-1, dim))
    assert_close(transform.inverse(moved, dim=dim), transform.inverse(a).movedim(-1, dim))


def test_integers_become_floats():
    assert_close(get_transform("dct", 4).forward(torch.ones(4, dtype=torch.int64)), torch.tensor([2.0, 0, 0, 0]))


def test_haar_is_the_classical_matrix():
    h = 0.5**0.5
    expected = torch.tensor([[0.5, 0.5, 0.5, 0.5], [0.5, 0.5, -0.5, -0.5], [h, -h, 0, 0], [0, 0, h, -h]])
    assert_close(matrices.haar_matrix(4), expected.double(), 1e-7)


def test_random_follows_its_seed():
    first = get_transform("random", 5, seed=1).matrix
    assert torch.equal(first, get_transform("random", 5, seed=1).matrix)
    assert float((first - get_transform("random", 5, seed=2).matrix).abs().max()) > 0.1


def test_dtype_of_the_public_matrices():
    assert get_transform("dct", 4, dtype=torch.float32).matrix.dtype == torch.float32
    assert get_transform("dft", 4, dtype=torch.float32).inverse_matrix.dtype == torch.complex64
    assert get_transform("dct", 4, device="cpu").matrix.device == torch.device("cpu")


def test_a_transform_is_made_once_and_passes_through():
    transform = get_transform("dct", 4)
    assert get_transform("dct", 4) is transform
    assert get_transform(transform) is transform
    assert get_transform(transform, 4) is transform
    assert repr(transform) == "Transform('dct', p=4)"
    assert isinstance(transform, Transform)


def test_a_matrix_may_be_numpy_or_integer():
    hadamard = torch.tensor([[1, 1], [1, -1]])
    a, b = randn(2, 2, 2, seed=1), randn(2, 2, 2, seed=2)
    expected = lproduct(a, b, hadamard.double())
    assert_close(lproduct(a, b, hadamard), expected)
    assert_close(lproduct(a, b, hadamard.double().numpy()), expected)
    assert get_transform(hadamard).gram_scale == pytest.approx(2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_orthogonality_is_judged_in_the_precision_of_the_matrix(dtype):
    """A rounded orthogonal matrix counts as orthogonal, but is undone by its own inverse, not by its transpose."""
    transform = get_transform(matrices.random_matrix(6).to(dtype))
    assert transform.is_orthogonal
    assert_close(transform.matrix @ transform.inverse_matrix, torch.eye(6, dtype=torch.float64))


@pytest.mark.parametrize("name", [*NAMED, "real", "paired"])
def test_copies_and_pickles(name):
    transform = get_transform(make(name, 4), 4)
    a = randn(3, 3, 4)
    expected = lproduct(a, a, transform)
    for other in (copy.deepcopy(transform), pickle.loads(pickle.dumps(transform))):
        assert torch.equal(lproduct(a, a, other), expected)
        assert torch.equal(other.matrix, transform.matrix)


@pytest.mark.parametrize(("name", "p"), [*((name, 8) for name in NAMES), ("dft", 640), ("hadamard", 512)])
def test_a_transform_first_used_in_inference_mode_can_train(name, p):
    """What is cached then must not be an inference tensor, which autograd refuses."""
    is_named = name in NAMED
    transform = transforms._make_named(name, p, 0, None, None) if is_named else get_transform(make_matrix(name, p))
    a = randn(2, 2, p)
    with torch.inference_mode():
        lproduct(a, a, transform)
        nuclear_norm(a, transform)
    x = a.clone().requires_grad_()
    (lproduct(x, x, transform).abs().sum() + nuclear_norm(x, transform)).backward()
    assert torch.isfinite(x.grad).all()


def test_fast_tables_first_made_in_inference_mode_can_train():
    from lformer.algebra import fast

    fast._phase.cache_clear()
    fast._dct_weight.cache_clear()
    a = randn(2, 514)
    with torch.inference_mode():
        fast.idct(fast.dct(a))
    x = a.clone().requires_grad_()
    fast.idct(fast.dct(x)).sum().backward()
    assert_close(x.grad, torch.ones_like(a))


def test_a_matrix_given_in_inference_mode_can_train():
    z = make_matrix("real", 3)
    with torch.inference_mode():
        transform = get_transform(z)
        lproduct(randn(2, 2, 3), randn(2, 2, 3), transform)
    x = randn(2, 2, 3).requires_grad_()
    lproduct(x, x, transform).sum().backward()
    assert torch.isfinite(x.grad).all()


def test_a_transform_keeps_the_matrix_it_was_given():
    z = make_matrix("real", 3)
    transform = get_transform(z)
    a = randn(2, 2, 3)
    before = lproduct(a, a, transform)
    z.mul_(3)
    assert torch.equal(lproduct(a, a, transform), before)
    assert_close(transform.inverse(transform.forward(a)), a)


@pytest.mark.parametrize("name", ["real", "complex", "paired"])
def test_a_learned_matrix_takes_several_backward_passes(name):
    """Also after a use without gradients: nothing that belongs to one pass may be kept for the next."""
    z = make_matrix(name, 4).requires_grad_()
    transform = get_transform(z)
    a, b = randn(2, 2, 4, seed=1), randn(2, 2, 4, seed=2)
    with torch.no_grad():
        lproduct(a, b, transform)
    with torch.inference_mode():
        lproduct(a, b, transform)
    gradients = [torch.autograd.grad(lproduct(a, b, transform).abs().square().sum(), z)[0] for _ in range(2)]
    assert_close(gradients[0], gradients[1])
    fresh = torch.autograd.grad(lproduct(a, b, z).abs().square().sum(), z)[0]
    assert_close(gradients[0], fresh)


PAIRED = [(name, p) for name in ("dft", "fft", "paired") for p in (*SIZES, 64, 65) if name != "paired" or p in SIZES]


@pytest.mark.parametrize(("name", "p"), PAIRED, ids=case_ids(PAIRED))
def test_real_tensors_use_half_of_the_slices(name, p):
    """p // 2 + 1 slices for the DFT; with an even p the last of them, the Nyquist slice, is real and counts once."""
    transform = make(name, p)
    a = randn(3, 2, p)
    domain = slice_domain("test", transform, a)
    half = domain.forward(a)
    assert half.shape == (p // 2 + 1, 3, 2)
    full = slice_domain("test", transform, a.to(torch.complex128)).forward(a.to(torch.complex128))
    assert full.shape == (p, 3, 2)
    assert_close(domain.expand(half), full)
    assert domain.weights(half).flatten().sum() == p
    assert_close(domain.inverse(half), a)  # exactly real, by dtype
    alone = domain.weights(half).flatten() == 1
    assert alone.sum() == (1 if p % 2 else 2)
    assert half[alone].imag.abs().max() == 0  # exactly real, by value


def test_a_real_or_an_unpaired_matrix_keeps_every_slice():
    a = randn(3, 2, 4)
    assert slice_domain("test", "dct", a).forward(a).shape == (4, 3, 2)
    assert slice_domain("test", make("complex", 4), a).forward(a).shape == (4, 3, 2)


@pytest.mark.parametrize("p", [3, 4])
def test_conjugate_rows_are_recognised_in_any_order(p):
    z = make_matrix("paired", p)
    partner = get_transform(z).conjugate_partner
    assert_close(z[partner], z.conj())
    assert get_transform(make("complex", p)).conjugate_partner is None
    assert get_transform("dct", p).conjugate_partner is None


@pytest.mark.parametrize("name", NAMES)
def test_the_matrix_of_p_1_is_a_number(name):
    assert matrix_of(make(name, 1), 1).shape == (1, 1)
    if name in NAMED:
        assert float(matrix_of(name, 1).abs()) == 1.0
