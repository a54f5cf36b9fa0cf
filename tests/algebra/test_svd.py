"""The L-SVD, its truncations and what they promise."""

import pytest
import torch

from lformer.algebra import (
    frobenius_norm,
    get_transform,
    is_fdiagonal,
    lidentity,
    lproduct,
    lqr,
    lsvd,
    lsvd_energy,
    lsvd_truncated,
    ltranspose,
    multi_rank,
    reference,
    singular_tubes,
    tubal_rank,
)

from .cases import (
    CASES,
    DTYPES,
    FEW_CASES,
    KIND_CASES,
    NAMES,
    REAL_RESULT,
    SCALED,
    SHAPES,
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
SCALED_CASES = [(name, p) for name, p in FEW_CASES if name in SCALED]
over_scaled_cases = pytest.mark.parametrize(("name", "p"), SCALED_CASES, ids=case_ids(SCALED_CASES))


def rebuild(u, s, v, t):
    return lproduct(lproduct(u, s, t), ltranspose(v, t), t)


def assert_orthonormal_columns(u, t, tolerance=None):
    one = lidentity(u.shape[-2], u.shape[-1], t, dtype=u.dtype)
    assert_close(lproduct(ltranspose(u, t), u, t), one.expand(*u.shape[:-3], -1, -1, -1), tolerance)


@over_kinds
def test_laws_of_the_decomposition(kind, name, p):
    """Wide, tall and square; reduced and full; also where slices vanish and their singular vectors are arbitrary."""
    t = make(name, p)
    for m, n in SHAPES:
        a = tensor_of_kind(kind, t, m, n, p)
        for full in (False, True):
            u, s, v = lsvd(a, t, full_matrices=full)
            r = min(m, n)
            assert u.shape == (m, m if full else r, p)
            assert s.shape == ((m, n, p) if full else (r, r, p))
            assert v.shape == (n, n if full else r, p)
            for factor in (u, s, v):
                assert factor.is_complex() == (name not in REAL_RESULT)
            assert_close(rebuild(u, s, v, t), a.to(u.dtype))
            assert_orthonormal_columns(u, t)
            assert_orthonormal_columns(v, t)
            assert is_fdiagonal(s, t)
            tubes = singular_tubes(a, t)
            assert_close(s.diagonal(dim1=-3, dim2=-2).mT, tubes)
            norms = tubes.norm(dim=-1)
            assert (norms[1:] <= norms[:-1] * (1 + 1e-12) + 1e-12).all()


@over_cases
def test_parity_with_the_reference(name, p):
    """Singular vectors are free in sign or phase: compared are the tubes and the projections onto U and V."""
    t = make(name, p)
    z = matrix_of(t, p)
    a = randn(3, 2, p)
    _, s, _ = reference.lsvd(a, z)
    tubes = torch.stack([s[i, i] for i in range(2)])
    tubes = tubes[tubes.norm(dim=-1).argsort(descending=True)]
    assert_matches_reference(singular_tubes(a, t), tubes)
    u, s, v = lsvd(a, t)
    assert_matches_reference(rebuild(u, s, v, t), a)
    if name in SCALED:  # the reference leaves tubes in the order of the slices, which is theirs only here
        ref_u, _, ref_v = reference.lsvd(a, z)
        for got, expected in ((u, ref_u), (v, ref_v)):
            one = got[:, :1]
            projection = lproduct(one, ltranspose(one, t), t)
            ref_one = expected[:, :1]
            assert_matches_reference(projection, reference.lproduct(ref_one, reference.ltranspose(ref_one, z), z))


def test_tubes_are_sorted_by_their_norm_in_the_original_domain():
    """Under a Z that is not orthogonal, sorting each slice does not do it: Z chosen so that the order flips."""
    z = torch.tensor([[1.0, 1.0], [1.0, 1.1]], dtype=torch.float64)
    values = torch.tensor([[2.0, 2.2], [1.0, 0.0]], dtype=torch.float64)  # of tube i in slice k, descending in i
    a = get_transform(z).inverse(torch.diag_embed(values.T).movedim(0, -1))
    by_slice = get_transform(z).inverse(values).norm(dim=-1)
    assert by_slice[1] > 2 * by_slice[0]
    norms = singular_tubes(a, z).norm(dim=-1)
    assert_close(norms, by_slice.flip(0))
    u, s, v = lsvd(a, z)
    assert_close(rebuild(u, s, v, z), a)
    assert_close(s.diagonal().mT.norm(dim=-1), norms)
    u, s, v = lsvd(a, z, full_matrices=True)
    assert_close(rebuild(u, s, v, z), a)
    one = lsvd_truncated(a, 1, z)
    assert_close(one[1][0, 0].norm(), norms[0])


@over_few_cases
def test_a_batch_is_decomposed_one_by_one(name, p):
    t = make(name, p)
    a = randn(2, 1, 3, 2, p)
    u, s, v = lsvd(a, t)
    assert u.shape == (2, 1, 3, 2, p)
    assert s.shape == v.shape == (2, 1, 2, 2, p)
    assert_close(rebuild(u, s, v, t), a.to(u.dtype))
    assert_close(s[1, 0], lsvd(a[1, 0], t)[1])
    assert_close(singular_tubes(a, t)[1, 0], singular_tubes(a[1, 0], t))
    u, s, v = lsvd_truncated(a, 1, t)
    assert_close(rebuild(u, s, v, t)[1, 0], rebuild(*lsvd_truncated(a[1, 0], 1, t), t))
    u, s, v = lsvd_energy(a, 0.8, t)
    assert_close(rebuild(u, s, v, t)[1, 0], rebuild(*lsvd_energy(a[1, 0], 0.8, t), t))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [1, 4])
def test_every_dtype(name, dtype, p):
    t = make(name, p)
    a = randn(3, 2, p, dtype=dtype)
    u, s, v = lsvd(a, t)
    if name in REAL_RESULT or dtype.is_complex:
        assert u.dtype == v.dtype == dtype
        assert s.dtype == dtype
    rebuilt = rebuild(u, s, v, t)
    assert_close(rebuilt, a.to(rebuilt.dtype), TOLERANCE[dtype])
    assert_orthonormal_columns(u, t, TOLERANCE[dtype])
    assert_close(singular_tubes(a, t), s.diagonal(dim1=-3, dim2=-2).mT, TOLERANCE[dtype])


@pytest.mark.parametrize("name", ["dft", "fft", "paired"])
@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 8])
def test_half_of_the_slices_gives_what_all_of_them_give(name, p):
    t = make(name, p)
    a = randn(3, 2, p)
    whole = a.to(torch.complex128)
    assert_matches_reference(singular_tubes(a, t), singular_tubes(whole, t))
    for k in (1, 2):
        half, full = (rebuild(*lsvd_truncated(x, k, t), t) for x in (a, whole))
        assert half.dtype == torch.float64
        assert_matches_reference(half, full)


def competitors(a, k, u, t):
    """100 approximations of tubal rank k: the best in each of 40 random subspaces and of 60 near the optimal one."""
    m, p = a.shape[-3], a.shape[-1]
    random = randn(40, m, k, p, seed=1)
    scale = torch.logspace(-4, -0.5, 60, dtype=torch.float64)[:, None, None, None]
    near = u + scale * randn(60, m, k, p, seed=2)
    q, _ = lqr(torch.cat([random, near]), t)
    return lproduct(q, lproduct(ltranspose(q, t), a, t), t)


@over_scaled_cases
@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3)])
@pytest.mark.parametrize("k", [1, 2])
def test_truncation_is_optimal(name, p, shape, k):
    """Eckart-Young: no competitor of the same tubal rank is nearer, and the squared error is the tail of the tubes."""
    t = make(name, p)
    a = randn(*shape, p)
    u, s, v = lsvd_truncated(a, k, t)
    assert u.shape == (shape[0], k, p)
    assert s.shape == (k, k, p)
    assert v.shape == (shape[1], k, p)
    best = rebuild(u, s, v, t)
    assert int(tubal_rank(best, t, rtol=1e-10)) == k
    error = frobenius_norm(a - best)
    tail = singular_tubes(a, t)[k:].norm()
    assert_close(error, tail)
    others = competitors(a, k, u, t)
    assert len(others) == 100
    assert (tubal_rank(others, t, rtol=1e-9) == k).all()
    errors = frobenius_norm(a - others)
    assert (errors > error).all()
    assert errors.min() < error * (1 + 1e-3)  # some came near: the comparison is not an empty one


@over_few_cases
def test_truncation_at_full_rank_is_the_decomposition(name, p):
    t = make(name, p)
    a = randn(3, 2, p)
    assert_close(rebuild(*lsvd_truncated(a, 2, t), t), lproduct(a, lidentity(2, p, t, dtype=a.dtype), t))
    b = low_rank(t, 4, 4, p, rank=2).real
    if name in REAL_RESULT:
        assert_close(rebuild(*lsvd_truncated(b, 2, t), t), b)


def energies(a, t):
    """The squares of all singular values of all slices, ascending."""
    values = reference.singular_values(a, matrix_of(t, a.shape[-1])).square().flatten()
    return values.sort().values


@over_few_cases
@pytest.mark.parametrize("fraction", [0.3, 0.9, 0.999])
def test_energy_truncation_keeps_enough_and_no_more(name, p, fraction):
    t = make(name, p)
    a = randn(4, 3, p)
    u, s, v = lsvd_energy(a, fraction, t)
    approximation = rebuild(u, s, v, t)
    assert u.is_complex() == (name not in REAL_RESULT)
    forward = get_transform(t, p).forward
    total = forward(a).abs().square().sum()
    kept = forward(approximation).abs().square().sum()
    error = (forward(a) - forward(approximation)).abs().square().sum()
    assert_close(kept + error, total)  # each slice is cut orthogonally
    assert kept >= fraction * total * (1 - 1e-12)
    values = energies(a, t)
    count = int(multi_rank(approximation, t, rtol=1e-9).sum())
    assert_close(kept, values[-count:].sum())  # the largest values, of all slices
    smallest = values[-count]
    lost = values[(values - smallest).abs() <= 1e-9 * smallest].sum()  # with its conjugate slice
    assert kept - lost < fraction * total
    rho = multi_rank(approximation, t, rtol=1e-9)
    assert u.shape == (4, int(rho.max()), p)
    assert s.shape == (int(rho.max()), int(rho.max()), p)
    assert v.shape == (3, int(rho.max()), p)


@over_scaled_cases
def test_energy_truncation_bounds_the_error(name, p):
    t = make(name, p)
    a = randn(4, 3, p)
    for fraction in (0.5, 0.95, 1.0):
        error = frobenius_norm(a - rebuild(*lsvd_energy(a, fraction, t), t))
        assert error.square() <= (1 - fraction) * frobenius_norm(a).square() + 1e-12


@over_few_cases
def test_energy_of_low_rank_and_of_zero(name, p):
    t = make(name, p)
    a = low_rank(t, 4, 3, p)
    u, s, v = lsvd_energy(a, 1 - 1e-12, t)
    assert u.shape[1] == 1
    assert_close(rebuild(u, s, v, t), a, 1e-5)
    u, s, v = lsvd_energy(torch.zeros(4, 3, p), 0.9, t)
    assert (u.shape, s.shape, v.shape) == ((4, 0, p), (0, 0, p), (3, 0, p))
    assert not rebuild(u, s, v, t).any()


def test_empty_tensors():
    u, s, v = lsvd(randn(0, 2, 3))
    assert (u.shape, s.shape, v.shape) == ((0, 0, 3), (0, 0, 3), (2, 0, 3))
    assert singular_tubes(randn(0, 2, 3)).shape == (0, 3)
