"""Norms, their duality and proximal map; ranks and their tolerances."""

import pytest
import torch

from lformer.algebra import (
    average_rank,
    frobenius_norm,
    get_transform,
    lidentity,
    lproduct,
    lqr,
    lsvd,
    ltranspose,
    multi_rank,
    nuclear_norm,
    prox_nuclear,
    reference,
    spectral_norm,
    tubal_rank,
)

from .cases import (
    CASES,
    DTYPES,
    FEW_CASES,
    KIND_CASES,
    NAMES,
    SCALED,
    TOLERANCE,
    assert_close,
    assert_matches_reference,
    case_ids,
    low_rank,
    make,
    matrix_of,
    randn,
    tensor_of_kind,
)

over_kinds = pytest.mark.parametrize(("kind", "name", "p"), KIND_CASES, ids=case_ids(KIND_CASES))
over_cases = pytest.mark.parametrize(("name", "p"), CASES, ids=case_ids(CASES))
over_few_cases = pytest.mark.parametrize(("name", "p"), FEW_CASES, ids=case_ids(FEW_CASES))
SCALED_CASES = [(name, p) for name, p in CASES if name in SCALED]
over_scaled_cases = pytest.mark.parametrize(("name", "p"), SCALED_CASES, ids=case_ids(SCALED_CASES))


@over_kinds
def test_parity_with_the_reference(kind, name, p):
    t = make(name, p)
    z = matrix_of(t, p)
    a = tensor_of_kind(kind, t, 4, 3, p)
    scale = get_transform(t, p).gram_scale or 1.0
    assert_close(frobenius_norm(a), reference.frobenius_norm(a), same_dtype=False)
    assert_close(nuclear_norm(a, t), reference.nuclear_norm(a, z, scale), same_dtype=False)
    assert_close(spectral_norm(a, t), reference.spectral_norm(a, z), same_dtype=False)
    assert_matches_reference(prox_nuclear(a, 0.7, t), reference.prox_nuclear(a, 0.7, z))
    assert multi_rank(a, t).tolist() == reference.multi_rank(a, z, 1e-12)
    assert float(average_rank(a, t)) == pytest.approx(reference.average_rank(a, z, 1e-12))
    assert int(tubal_rank(a, t)) == reference.tubal_rank(a, z, 1e-12)


@over_scaled_cases
def test_nuclear_and_spectral_norm_are_dual(name, p):
    """|<A, B>| <= ||A||_* ||B||, with equality at B = U * V^T."""
    t = make(name, p)
    a = randn(3, 4, p)
    u, _, v = lsvd(a, t)
    b = lproduct(u, ltranspose(v, t), t)
    assert_close(spectral_norm(b, t), 1.0)
    assert_close((a * b).sum(), nuclear_norm(a, t))
    others = randn(50, 3, 4, p, seed=1)
    inner = (a * others).sum((-3, -2, -1)).abs()
    assert (inner <= nuclear_norm(a, t) * spectral_norm(others, t)).all()


@over_cases
def test_laws_of_the_norms(name, p):
    t = make(name, p)
    a, b = randn(3, 2, p, seed=1), randn(3, 2, p, seed=2)
    for norm in (nuclear_norm, spectral_norm):
        assert_close(norm(-2 * a, t), 2 * norm(a, t))
        assert norm(a + b, t) <= norm(a, t) + norm(b, t)
        assert norm(torch.zeros_like(a), t) == 0
        assert_close(norm(ltranspose(a, t), t), norm(a, t))
    q, _ = lqr(randn(3, 3, p, seed=3), t)
    assert_close(spectral_norm(lproduct(q, a, t), t), spectral_norm(a, t))
    assert_close(nuclear_norm(lproduct(q, a, t), t), nuclear_norm(a, t))
    assert spectral_norm(lproduct(ltranspose(a, t), b, t), t) <= spectral_norm(a, t) * spectral_norm(b, t) * (1 + 1e-12)
    assert_close(spectral_norm(lidentity(3, p, t, dtype=torch.float64), t), 1.0)


@over_few_cases
@pytest.mark.parametrize("batch", [(2,), (2, 3)])
def test_batches(name, p, batch):
    t = make(name, p)
    a = randn(*batch, 3, 2, p)
    for function in (nuclear_norm, spectral_norm, average_rank, tubal_rank):
        assert function(a, t).shape == batch
        assert_close(function(a, t)[(-1,) * len(batch)], function(a[(-1,) * len(batch)], t))
    assert frobenius_norm(a).shape == batch
    assert multi_rank(a, t).shape == (*batch, p)
    assert_close(prox_nuclear(a, 0.5, t)[(-1,) * len(batch)], prox_nuclear(a[(-1,) * len(batch)], 0.5, t))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(name, dtype):
    t = make(name, 4)
    a = randn(3, 2, 4, dtype=dtype)
    exact = a.to(torch.complex128 if dtype.is_complex else torch.float64)
    real = dtype.to_real() if dtype.is_complex else dtype
    for norm in (nuclear_norm, spectral_norm):
        assert norm(a, t).dtype == real
        assert_close(norm(a, t), norm(exact, t), TOLERANCE[dtype], same_dtype=False)
    assert_close(prox_nuclear(a, 0.5, t), prox_nuclear(exact, 0.5, t), TOLERANCE[dtype], same_dtype=False)
    assert frobenius_norm(a).dtype == real
    assert multi_rank(a, t).tolist() == [2] * 4
    assert int(tubal_rank(a, t)) == 2


def objective(x, a, tau, t):
    return tau * nuclear_norm(x, t) + frobenius_norm(x - a).square() / 2


@over_scaled_cases
def test_prox_minimises_its_objective(name, p):
    """Against perturbations of every size, dense and of rank one, and against A and 0."""
    t = make(name, p)
    a, tau = randn(4, 3, p), 0.7
    best = prox_nuclear(a, tau, t)
    assert best.dtype == torch.float64
    scale = torch.logspace(-4, 1, 30, dtype=torch.float64)[:, None, None, None]
    dense = scale * randn(30, 4, 3, p, seed=1)
    thin = scale * lproduct(randn(30, 4, 1, p, seed=2), randn(30, 1, 3, p, seed=3), t)
    others = torch.cat([best + dense, best - thin, a[None], torch.zeros_like(a)[None]])
    values = objective(others, a, tau, t)
    value = objective(best, a, tau, t)
    assert (values >= value - 1e-12).all()
    assert values.min() < value + 1e-2  # some came near


@over_scaled_cases
def test_prox_laws(name, p):
    t = make(name, p)
    a, b, tau = randn(4, 3, p, seed=1), randn(4, 3, p, seed=2), 0.8
    pa, pb = prox_nuclear(a, tau, t), prox_nuclear(b, tau, t)
    # What it takes away lies in the ball of the dual norm, and taking it away twice is taking twice as much.
    assert spectral_norm(a - pa, t) <= tau * (1 + 1e-12)
    assert_close(prox_nuclear(a - pa, tau, t), torch.zeros_like(a))
    assert_close(prox_nuclear(pa, tau, t), prox_nuclear(a, 2 * tau, t))
    assert frobenius_norm(pa - pb).square() <= ((pa - pb) * (a - b)).sum() * (1 + 1e-12)  # firmly nonexpansive
    assert_close(prox_nuclear(a, 0.0, t), a)
    assert not prox_nuclear(a, float(spectral_norm(a, t)) * 1.001, t).any()


@over_cases
def test_ranks_of_tensors_of_known_rank(name, p):
    t = make(name, p)
    for rank in (1, 2):
        a = low_rank(t, 4, 3, p, rank=rank)
        assert int(tubal_rank(a, t)) == rank
        assert multi_rank(a, t).tolist() == [rank] * p
        assert float(average_rank(a, t)) == rank
    zero = torch.zeros(4, 3, p)
    assert int(tubal_rank(zero, t)) == 0
    assert multi_rank(zero, t).tolist() == [0] * p


def test_the_three_ranks_differ_where_slices_do():
    ah = torch.zeros(3, 3, 4, dtype=torch.float64)
    ah[..., 0] = torch.eye(3)
    ah[0, 0, 1] = 2.0
    a = get_transform("dct", 4).inverse(ah)
    assert multi_rank(a).tolist() == [3, 1, 0, 0]
    assert float(average_rank(a)) == 1.0
    assert int(tubal_rank(a)) == 3


@pytest.mark.parametrize("p", [4, 5])
def test_the_ranks_of_conjugate_slices_are_equal(p):
    ah = torch.fft.fft(randn(3, 3, p))
    ah[:, :, 1], ah[:, :, p - 1] = 0, 0
    assert multi_rank(torch.fft.ifft(ah).real, "fft").tolist() == [3, 0, *[3] * (p - 3), 0]


def test_ranks_follow_their_tolerances():
    a = torch.diag(torch.tensor([1.0, 1e-3, 1e-20])).double()[..., None].expand(3, 3, 2)
    for rank in (tubal_rank, lambda *args, **kw: multi_rank(*args, **kw)[0], average_rank):
        assert float(rank(a, "identity")) == 2
        assert float(rank(a, "identity", atol=1e-2)) == 1
        assert float(rank(a, "identity", rtol=1e-2)) == 1
        assert float(rank(a, "identity", atol=0.0)) == 3
        assert float(rank(1e6 * a, "identity", atol=1e-2)) == 2
        assert float(rank(a, "identity", atol=1e-2, rtol=1e-9)) == 1
        assert float(rank(a, "identity", atol=10.0)) == 0


def test_noise_below_the_tolerance_does_not_count():
    a = low_rank("dct", 5, 5, 4, rank=2) + 1e-8 * randn(5, 5, 4)
    assert int(tubal_rank(a)) == 5
    assert int(tubal_rank(a, rtol=1e-6)) == 2
    assert multi_rank(a, rtol=1e-6).tolist() == [2] * 4


def test_ranks_take_integers_and_gradients():
    assert int(tubal_rank(torch.ones(3, 3, 2, dtype=torch.int64))) == 1
    assert multi_rank(randn(2, 2, 3).requires_grad_()).tolist() == [2, 2, 2]


def test_empty_tensors():
    assert int(tubal_rank(torch.zeros(0, 2, 3))) == 0
    assert multi_rank(torch.zeros(0, 2, 3)).tolist() == [0, 0, 0]
    assert float(nuclear_norm(torch.zeros(0, 2, 3))) == 0
