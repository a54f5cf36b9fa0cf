"""What kind of tensor, and the block matrices that stand for one."""

import pytest
import torch

from lformer.algebra import (
    block_circulant,
    block_diagonal,
    get_transform,
    is_fdiagonal,
    is_invertible,
    is_orthogonal,
    lidentity,
    lproduct,
    lqr,
    lsvd,
    ltranspose,
    reference,
)

from .cases import CASES, FEW_CASES, NAMES, SIZES, assert_close, case_ids, low_rank, make, randn

over_cases = pytest.mark.parametrize(("name", "p"), CASES, ids=case_ids(CASES))


@over_cases
def test_orthogonal_tensors(name, p):
    t = make(name, p)
    q, _ = lqr(randn(3, 3, p), t)
    assert is_orthogonal(q, t)
    assert is_orthogonal(ltranspose(q, t), t)
    assert is_orthogonal(lidentity(3, p, t, dtype=torch.float64), t)
    assert not is_orthogonal(q + 1e-6, t)
    assert is_orthogonal(q + 1e-6, t, atol=1e-3)
    assert not is_orthogonal(2 * q, t)
    assert not is_orthogonal(q[:, :2], t)
    assert is_orthogonal(torch.stack([q, q]), t)
    assert not is_orthogonal(torch.stack([q, 2 * q]), t)


@over_cases
def test_fdiagonal_tensors(name, p):
    t = make(name, p)
    _, s, _ = lsvd(randn(3, 2, p), t, full_matrices=True)
    assert s.shape == (3, 2, p)
    assert is_fdiagonal(s, t)
    assert is_fdiagonal(torch.zeros(3, 2, p), t)
    off = s.clone()
    off[1, 0, 0] += 1e-3
    assert not is_fdiagonal(off, t)
    assert is_fdiagonal(off, t, atol=1e-1)


@over_cases
def test_invertible_tensors(name, p):
    t = make(name, p)
    a = randn(3, 3, p) + 4 * lidentity(3, p, t, dtype=torch.float64)
    assert is_invertible(a, t)
    assert not is_invertible(low_rank(t, 3, 3, p, rank=2), t)
    assert not is_invertible(torch.zeros(2, 2, p), t)
    assert not is_invertible(a, t, rtol=1.0)
    assert not is_invertible(torch.stack([a, 0 * a]), t)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_default_tolerances_follow_the_dtype(dtype):
    q, _ = lqr(randn(3, 3, 4, dtype=dtype))
    assert is_orthogonal(q)
    assert is_invertible(q)
    assert is_fdiagonal(lsvd(q)[1])
    assert not is_orthogonal(1.5 * q)


@pytest.mark.parametrize("p", SIZES)
def test_block_circulant_is_the_t_product(p):
    """Kilmer: fold(bcirc(A) unfold(B)); the L-product under "fft", and sqrt(p) times that under the unitary "dft"."""
    a, b = randn(3, 2, p, seed=1), randn(2, 4, p, seed=2)
    stacked = block_circulant(a) @ b.movedim(-1, 0).reshape(p * 2, 4)
    t_product = stacked.reshape(p, 3, 4).movedim(0, -1)
    assert_close(t_product, reference.t_product(a, b))
    assert_close(lproduct(a, b, "fft"), t_product)
    assert_close(lproduct(a, b, "dft"), t_product / p**0.5)


@pytest.mark.parametrize("p", SIZES)
def test_the_fourier_transform_diagonalises_block_circulants(p):
    """(F (x) I) bcirc(A) (F^H (x) I) = bdiag(L(A)), with F unitary and L the transform without scaling."""
    a = randn(3, 2, p)
    f = get_transform("dft", p).matrix
    left = torch.kron(f, torch.eye(3, dtype=f.dtype))
    right = torch.kron(f.mH.contiguous(), torch.eye(2, dtype=f.dtype))
    assert_close(left @ block_circulant(a).to(f.dtype) @ right, block_diagonal(a, "fft"))


def test_block_circulant_of_a_batch():
    a = randn(2, 3, 2, 4)
    assert_close(block_circulant(a)[1], block_circulant(a[1]))


FEW = pytest.mark.parametrize(("name", "p"), FEW_CASES, ids=case_ids(FEW_CASES))


@FEW
def test_block_diagonal_turns_the_product_into_one_of_matrices(name, p):
    t = make(name, p)
    a, b = randn(2, 3, 2, p, seed=1), randn(2, 2, 4, p, seed=2)
    blocks = block_diagonal(a, t)
    assert blocks.shape == (2, 3 * p, 2 * p)
    product = block_diagonal(lproduct(a, b, t), t)
    assert_close(blocks @ block_diagonal(b, t), product)


@pytest.mark.parametrize("name", NAMES)
def test_block_diagonal_holds_the_slices_and_zeros(name):
    t = make(name, 4)
    a = randn(3, 2, 4)
    for blocks, slices in ((block_diagonal(a), a), (block_diagonal(a, t), get_transform(t, 4).forward(a))):
        expected = torch.block_diag(*slices.unbind(-1))
        assert_close(blocks, expected)
