"""What kind of tensor is this, and the block matrices that stand for it."""

import torch
from torch import Tensor

from lformer.algebra.slices import require_square, slice_domain
from lformer.algebra.transforms import TransformLike


def is_orthogonal(a: Tensor, transform: TransformLike = "dct", *, atol: float | None = None) -> bool:
    """Whether Q^T * Q = Q * Q^T = I: every slice of L(Q) is orthogonal (unitary). paper: Def. structured tensors.

    `atol` bounds the entries of L(Q)^H L(Q) - I; by default it follows the dtype. With a batch, all must be.
    """
    if a.ndim >= 3 and a.shape[-3] != a.shape[-2]:
        return False
    domain = slice_domain("is_orthogonal", transform, a, linalg=True)
    ah = domain.forward(a.detach())
    eye = torch.eye(a.shape[-2], dtype=ah.dtype, device=ah.device)
    return _small(ah.mH @ ah - eye, 1.0, atol, a)


def is_fdiagonal(a: Tensor, transform: TransformLike = "dct", *, atol: float | None = None) -> bool:
    """Whether every slice of L(A) is diagonal. paper: Def. structured tensors.

    L mixes entries of one tube only, so this holds in the transform domain if and only if it does in the original one.
    `atol` bounds the entries off the diagonal; by default it follows the dtype and the largest entry.
    """
    domain = slice_domain("is_fdiagonal", transform, a, linalg=True)
    ah = domain.forward(a.detach())
    diagonal = torch.eye(a.shape[-3], a.shape[-2], dtype=torch.bool, device=ah.device)
    scale = float(ah.abs().max()) if ah.numel() else 0.0
    return _small(ah.masked_fill(diagonal, 0), scale, atol, a)


def is_invertible(a: Tensor, transform: TransformLike = "dct", *, rtol: float | None = None) -> bool:
    """Whether every slice of L(A) is invertible: the smallest singular value of all slices is above rtol * the largest.

    rtol is m eps by default. paper: Def. structured tensors. With a batch, all must be.
    """
    require_square("is_invertible", a)
    domain = slice_domain("is_invertible", transform, a, linalg=True)
    values = torch.linalg.svdvals(domain.forward(a.detach()))
    if values.shape[-1] == 0:
        return True
    if rtol is None:
        rtol = a.shape[-2] * torch.finfo(values.dtype).eps
    return bool((values[..., -1].amin(0) > rtol * values[..., 0].amax(0)).all())


def block_diagonal(a: Tensor, transform: TransformLike | None = None) -> Tensor:
    """bdiag: the frontal slices of A (of L(A), if a transform is given) on the diagonal of one matrix.

    Shapes: (..., m, n, p) -> (..., p m, p n).
    """
    if a.ndim < 3:
        raise ValueError(f"block_diagonal: needs a tensor (..., m, n, p), got shape {tuple(a.shape)}")
    if transform is not None:
        domain = slice_domain("block_diagonal", transform, a)
        a = domain.expand(domain.forward(a)).movedim(0, -1)
    m, n, p = a.shape[-3:]
    blocks = a.new_zeros(*a.shape[:-3], p, m, p, n)
    blocks.diagonal(dim1=-4, dim2=-2).copy_(a)
    return blocks.reshape(*a.shape[:-3], p * m, p * n)


def block_circulant(a: Tensor) -> Tensor:
    """bcirc: the block circulant matrix whose first block column stacks the frontal slices of A.

    Kilmer's t-product is fold(bcirc(A) unfold(B)); `lproduct` equals it under "fft", and under the unitary "dft" it
    is the t-product / sqrt(p). Shapes: (..., m, n, p) -> (..., p m, p n).
    """
    if a.ndim < 3:
        raise ValueError(f"block_circulant: needs a tensor (..., m, n, p), got shape {tuple(a.shape)}")
    m, n, p = a.shape[-3:]
    index = torch.arange(p, device=a.device)
    blocks = a[..., (index[:, None] - index[None, :]) % p]  # (..., m, n, block row, block column)
    return blocks.movedim((-2, -1), (-4, -2)).reshape(*a.shape[:-3], p * m, p * n)


def _small(difference: Tensor, scale: float, atol: float | None, given: Tensor) -> bool:
    if difference.numel() == 0:
        return True
    if atol is None:
        dtype = given.dtype if given.is_floating_point() or given.is_complex() else difference.dtype
        atol = 32 * max(1, *given.shape[-3:]) * torch.finfo(dtype).eps * scale
    return float(difference.abs().max()) <= atol
