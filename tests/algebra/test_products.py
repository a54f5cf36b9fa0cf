"""The algebra of the L-product: a ring with identity, transpose, inverse and pseudo-inverse, for every transform."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from lformer.algebra import facewise, lidentity, linverse, lpinv, lproduct, ltranspose, reference

from .cases import (
    CASES,
    DTYPES,
    FEW_CASES,
    NAMES,
    REAL_RESULT,
    SHAPES,
    assert_close,
    assert_matches_reference,
    case_ids,
    low_rank,
    make,
    make_matrix,
    matrix_of,
    randn,
    tensor_of_kind,
    wide,
)

over_cases = pytest.mark.parametrize(("name", "p"), CASES, ids=case_ids(CASES))
over_few_cases = pytest.mark.parametrize(("name", "p"), FEW_CASES, ids=case_ids(FEW_CASES))


@over_cases
def test_ring_laws(name, p):
    t = make(name, p)
    a, b, b2, c = randn(3, 2, p, seed=1), randn(2, 4, p, seed=2), randn(2, 4, p, seed=3), randn(4, 2, p, seed=4)
    ab = lproduct(a, b, t)
    assert ab.shape == (3, 4, p)
    assert ab.is_complex() == (name not in REAL_RESULT)
    assert_close(lproduct(ab, c, t), lproduct(a, lproduct(b, c, t), t))
    assert_close(lproduct(a, b + b2, t), ab + lproduct(a, b2, t))
    assert_close(lproduct(2 * a, b, t), 2 * ab)
    left, right = (lidentity(m, p, t, dtype=torch.float64) for m in (3, 2))
    assert_close(lproduct(left, a, t), a.to(ab.dtype))
    assert_close(lproduct(a, right, t), a.to(ab.dtype))


@over_cases
def test_transpose_laws(name, p):
    t = make(name, p)
    a, b = randn(3, 2, p, seed=1), randn(2, 4, p, seed=2)
    at, bt = ltranspose(a, t), ltranspose(b, t)
    assert at.shape == (2, 3, p)
    assert at.is_complex() == (name not in REAL_RESULT)
    assert_close(ltranspose(at, t), a.to(at.dtype))
    assert_close(ltranspose(lproduct(a, b, t), t), lproduct(bt, at, t))
    assert_close(ltranspose(2 * a, t), 2 * at)


@over_cases
def test_parity_with_the_reference(name, p):
    t = make(name, p)
    z = matrix_of(t, p)
    a, b = randn(3, 2, p, seed=1), randn(2, 4, p, seed=2)
    assert_matches_reference(lproduct(a, b, t), reference.lproduct(a, b, z))
    assert_matches_reference(ltranspose(a, t), reference.ltranspose(a, z))
    assert_matches_reference(lidentity(3, p, t, dtype=torch.float64), reference.lidentity(3, z))
    assert_matches_reference(lpinv(a, t), reference.lpinv(a, z))
    ac, bc = a + 1j * randn(3, 2, p, seed=3), b - 1j * randn(2, 4, p, seed=4)
    assert_matches_reference(lproduct(ac, bc, t), reference.lproduct(ac, bc, z))
    assert_matches_reference(ltranspose(ac, t), reference.ltranspose(ac, z))
    assert_matches_reference(lpinv(ac, t), reference.lpinv(ac, z))


def test_facewise_is_the_reference_and_the_product_under_identity():
    a, b = randn(3, 2, 5, seed=1), randn(2, 4, 5, seed=2)
    assert_close(facewise(a, b), reference.facewise(a, b))
    assert_close(lproduct(a, b, "identity"), facewise(a, b))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "dct"])
def test_the_default_transform_is_the_dct_and_no_other(name):
    a, b = randn(3, 2, 4, seed=1), randn(2, 4, 4, seed=2)
    assert torch.equal(lproduct(a, b), lproduct(a, b, "dct"))
    assert float((lproduct(a, b) - lproduct(a, b, make(name, 4))).abs().max()) > 1e-2


@over_cases
def test_inverse_laws(name, p):
    t = make(name, p)
    a, b = (randn(3, 3, p, seed=seed) + 4 * lidentity(3, p, t, dtype=torch.float64) for seed in (1, 2))
    inverse, one = linverse(a, t), lidentity(3, p, t, dtype=torch.float64)
    one = one.to(inverse.dtype)
    assert_close(lproduct(a, inverse, t), one)
    assert_close(lproduct(inverse, a, t), one)
    assert_close(linverse(lproduct(a, b, t), t), lproduct(linverse(b, t), inverse, t))
    assert_close(linverse(ltranspose(a, t), t), ltranspose(inverse, t))
    assert_close(lpinv(a, t), inverse)


@over_few_cases
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["random", "rank-deficient", "zero", "constant-tubes"])
def test_pseudo_inverse_meets_the_four_penrose_conditions(name, p, shape, kind):
    t = make(name, p)
    a = tensor_of_kind(kind, t, *shape, p)
    x = lpinv(a, t)
    a = a.to(x.dtype)
    ax, xa = lproduct(a, x, t), lproduct(x, a, t)
    assert_close(lproduct(ax, a, t), a, 1e-9)
    assert_close(lproduct(xa, x, t), x, 1e-9)
    assert_close(ltranspose(ax, t), ax, 1e-9)
    assert_close(ltranspose(xa, t), xa, 1e-9)


def test_pseudo_inverse_follows_its_tolerances():
    a = torch.diag(torch.tensor([1.0, 1e-3])).double()[..., None]
    whole = torch.diag(torch.tensor([1.0, 1e3])).double()[..., None]
    cut = torch.diag(torch.tensor([1.0, 0.0])).double()[..., None]
    assert_close(lpinv(a, "identity"), whole, 1e-6)
    assert_close(lpinv(a, "identity", atol=1e-2), cut, 1e-6)
    assert_close(lpinv(a, "identity", rtol=1e-2), cut, 1e-6)
    assert_close(lpinv(a, "identity", atol=1e-4), whole, 1e-6)


def test_a_slice_that_is_zero_up_to_rounding_is_not_inverted():
    a = randn(3, 3, 1).expand(3, 3, 4).contiguous()  # all slices of the DCT but the first vanish, up to 1e-16
    assert float(lpinv(a, "dct").abs().max()) < 100


BATCHES = [((2,), (2,)), ((2,), ()), ((), (2,)), ((2, 1), (3,)), ((1,), (3, 2)), ((0,), ())]


@over_few_cases
@pytest.mark.parametrize(("batch_a", "batch_b"), BATCHES)
def test_batches_broadcast_as_in_matmul(name, p, batch_a, batch_b):
    t = make(name, p)
    a, b = randn(*batch_a, 3, 2, p, seed=1), randn(*batch_b, 2, 4, p, seed=2)
    batch = torch.broadcast_shapes(batch_a, batch_b)
    out = lproduct(a, b, t)
    assert out.shape == (*batch, 3, 4, p)
    flat_a = a.expand(*batch, 3, 2, p).reshape(-1, 3, 2, p)
    flat_b = b.expand(*batch, 2, 4, p).reshape(-1, 2, 4, p)
    for got, one_a, one_b in zip(out.reshape(-1, 3, 4, p), flat_a, flat_b, strict=True):
        assert_close(got, lproduct(one_a, one_b, t))
    assert_close(facewise(a, b), lproduct(a, b, "identity"))


@over_few_cases
@pytest.mark.parametrize("batch", [(2,), (2, 1)])
def test_functions_of_one_tensor_act_on_each_of_a_batch(name, p, batch):
    t = make(name, p)
    a = randn(*batch, 3, 3, p)
    for function in (ltranspose, linverse, lpinv):
        out = function(a, t)
        assert out.shape == a.shape
        for got, one in zip(out.reshape(-1, 3, 3, p), a.reshape(-1, 3, 3, p), strict=True):
            assert_close(got, function(one, t), 1e-9)


def test_a_batch_member_of_another_scale_keeps_its_own_tolerance():
    a = torch.stack([1e12 * randn(2, 2, 3, seed=1), randn(2, 2, 3, seed=2)])
    assert_close(lpinv(a)[1], lpinv(a[1]))
    assert_close(linverse(a)[1], linverse(a[1]))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [1, 8])
def test_products_in_every_dtype(name, dtype, p):
    """The result has the dtype that came in, is complex only where it must be, and is right to its precision."""
    t = make(name, p)
    z = matrix_of(t, p)
    a, b = 0.5 * randn(3, 2, p, seed=1), 0.5 * randn(2, 3, p, seed=2)
    a, b = a.to(dtype), b.to(dtype)
    expected_dtype = dtype
    if name == "complex" and not dtype.is_complex:
        expected_dtype = torch.complex128 if dtype == torch.float64 else torch.complex64
    tolerance = None if expected_dtype == dtype else {torch.float64: 1e-11}.get(dtype, 1e-1)
    for got, reference_ in (
        (lproduct(a, b, t), reference.lproduct(wide(a), wide(b), z)),
        (ltranspose(a, t), reference.ltranspose(wide(a), z)),
        (lpinv(a + (a == a).to(dtype), t), reference.lpinv(wide(a + (a == a).to(dtype)), z)),
        (lidentity(2, p, t, dtype=dtype), reference.lidentity(2, z)),
    ):
        assert got.dtype == expected_dtype
        assert_matches_reference(got, reference_, tolerance)


def test_mixed_dtypes_promote():
    a, b = randn(2, 2, 3, dtype=torch.float32), randn(2, 2, 3, dtype=torch.float64)
    assert lproduct(a, b).dtype == torch.float64
    assert lproduct(a.bfloat16(), a).dtype == torch.float32
    assert lproduct(a, b + 0j).dtype == torch.complex128
    assert lproduct(torch.ones(2, 2, 3, dtype=torch.int64), a).dtype == torch.float32
    assert facewise(a, b).dtype == torch.float64


@pytest.mark.parametrize("name", ["dct", "dft", "real"])
def test_empty_tensors(name):
    t = make(name, 3)
    assert_close(lproduct(randn(4, 0, 3), randn(0, 2, 3), t), torch.zeros(4, 2, 3, dtype=torch.float64))
    assert lproduct(randn(0, 2, 3), randn(2, 2, 3), t).shape == (0, 2, 3)
    assert lidentity(0, 3, t).shape == (0, 0, 3)
    assert linverse(randn(0, 0, 3), t).shape == (0, 0, 3)
    assert lpinv(randn(0, 2, 3), t).shape == (2, 0, 3)
    assert ltranspose(randn(0, 2, 3), t).shape == (2, 0, 3)


def test_the_size_of_the_identity_may_come_from_the_transform():
    z = make_matrix("real", 3)
    assert_close(lidentity(2, transform=z), lidentity(2, 3, z))


def test_inputs_need_not_be_contiguous():
    a, b = randn(5, 3, 2, seed=1), randn(2, 4, 5, seed=2)
    assert_close(lproduct(a.permute(1, 2, 0), b, "dft"), lproduct(a.permute(1, 2, 0).contiguous(), b, "dft"))


dims = st.integers(1, 4)


@settings(deadline=None, max_examples=40, derandomize=True)
@given(name=st.sampled_from(NAMES), p=st.integers(1, 9), m=dims, inner=dims, n=dims, data=st.data())
def test_any_shape_against_the_reference(name, p, m, inner, n, data):
    if name == "hadamard":
        p = data.draw(st.sampled_from([1, 2, 4, 8, 16]))
    batch = data.draw(st.sampled_from([(), (1,), (2,)]))
    t = make(name, p)
    a, b = randn(*batch, m, inner, p, seed=1), randn(inner, n, p, seed=2)
    out = lproduct(a, b, t)
    assert out.shape == (*batch, m, n, p)
    one_a, one_out = a.reshape(-1, m, inner, p)[0], out.reshape(-1, m, n, p)[0]
    assert_matches_reference(one_out, reference.lproduct(one_a, b, matrix_of(t, p)))


def test_low_rank_helper_has_the_rank_it_says():
    a = low_rank("dct", 4, 4, 3, rank=2)
    assert int((reference.singular_values(a, matrix_of("dct", 3)) > 1e-10).sum()) == 6
