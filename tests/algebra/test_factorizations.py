"""QR, LU and the symmetric eigendecomposition."""

import pytest
import torch

from lformer.algebra import get_transform, is_fdiagonal, is_orthogonal, leigh, lidentity, llu, lproduct, lqr, ltranspose

from .cases import (
    CASES,
    DTYPES,
    FEW_CASES,
    KIND_CASES,
    NAMES,
    REAL_RESULT,
    SHAPES,
    TOLERANCE,
    assert_close,
    case_ids,
    make,
    randn,
    tensor_of_kind,
)

over_kinds = pytest.mark.parametrize(("kind", "name", "p"), KIND_CASES, ids=case_ids(KIND_CASES))
over_cases = pytest.mark.parametrize(("name", "p"), CASES, ids=case_ids(CASES))


def slices(a, t):
    return get_transform(t, a.shape[-1]).forward(a).movedim(-1, 0)


@over_kinds
def test_qr(kind, name, p):
    t = make(name, p)
    for m, n in SHAPES:
        a = tensor_of_kind(kind, t, m, n, p)
        for mode, k in (("reduced", min(m, n)), ("complete", m)):
            q, r = lqr(a, t, mode=mode)
            assert q.shape == (m, k, p)
            assert r.shape == (k, n, p)
            assert q.is_complex() == (name not in REAL_RESULT)
            assert_close(lproduct(q, r, t), a.to(q.dtype))
            assert_close(lproduct(ltranspose(q, t), q, t), lidentity(k, p, t, dtype=q.dtype))
            assert_close(slices(r, t).tril(-1), torch.zeros_like(slices(r, t)))


@over_kinds
def test_lu(kind, name, p):
    t = make(name, p)
    for m, n in SHAPES:
        a = tensor_of_kind(kind, t, m, n, p)
        permutation, lower, upper = llu(a, t)
        k = min(m, n)
        assert permutation.shape == (m, m, p)
        assert lower.shape == (m, k, p)
        assert upper.shape == (k, n, p)
        assert_close(lproduct(lproduct(permutation, lower, t), upper, t), a.to(upper.dtype))
        ph, lh, uh = (slices(x, t) for x in (permutation, lower, upper))
        ones = ph.abs() > 0.5
        assert_close(ph, ones.to(ph.dtype))
        assert (ones.sum(-1) == 1).all()
        assert (ones.sum(-2) == 1).all()
        assert_close(lh.triu(1), torch.zeros_like(lh))
        assert_close(lh.diagonal(dim1=-2, dim2=-1), torch.ones(p, k, dtype=lh.dtype))
        assert_close(uh.tril(-1), torch.zeros_like(uh))
        assert float(lh.abs().max()) <= 2**0.5 + 1e-9  # pivoting; for complex numbers by |Re| + |Im|


@over_kinds
def test_eigh(kind, name, p):
    t = make(name, p)
    a = tensor_of_kind(kind, t, 3, 3, p)
    a = a + ltranspose(a, t)
    w, v = leigh(a, t)
    assert w.shape == v.shape == (3, 3, p)
    assert v.is_complex() == (name not in REAL_RESULT)
    assert is_fdiagonal(w, t)
    assert is_orthogonal(v, t)
    assert_close(lproduct(lproduct(v, w, t), ltranspose(v, t), t), a.to(v.dtype))
    values = slices(w, t).diagonal(dim1=-2, dim2=-1)
    assert_close(values, values.real.sort(-1).values.to(values.dtype))  # real and ascending


def test_eigh_averages_rounding_out():
    a = randn(3, 3, 4)
    a = a + ltranspose(a)
    noise = 1e-9 * randn(3, 3, 4, seed=1)
    assert_close(leigh(a + noise)[0], leigh(a)[0], 1e-7)


FEW = pytest.mark.parametrize(("name", "p"), FEW_CASES, ids=case_ids(FEW_CASES))


@FEW
def test_batches_are_factored_one_by_one(name, p):
    t = make(name, p)
    a = randn(2, 1, 3, 3, p)
    symmetric = a + ltranspose(a, t)
    for got, expected in ((lqr(a, t), lqr(a[1, 0], t)), (llu(a, t), llu(a[1, 0], t))):
        for whole, one in zip(got, expected, strict=True):
            assert_close(whole[1, 0], one)
    assert_close(leigh(symmetric, t)[0][1, 0], leigh(symmetric[1, 0], t)[0])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(name, dtype):
    t = make(name, 4)
    a = randn(3, 3, 4, dtype=dtype)
    q, r = lqr(a, t)
    permutation, lower, upper = llu(a, t)
    symmetric = a + ltranspose(a, t)
    w, v = leigh(symmetric, t)
    if name in REAL_RESULT or dtype.is_complex:
        assert {x.dtype for x in (q, r, permutation, lower, upper, w, v)} == {dtype}
    tolerance = 2 * TOLERANCE[dtype]
    assert_close(lproduct(q, r, t), a.to(q.dtype), tolerance)
    assert_close(lproduct(lproduct(permutation, lower, t), upper, t), a.to(q.dtype), tolerance)
    assert_close(lproduct(lproduct(v, w, t), ltranspose(v, t), t), symmetric.to(q.dtype), tolerance)
