"""QR, LU and the symmetric eigendecomposition under the L-product: the matrix one on every slice of L(A)."""

import torch
from torch import Tensor

from lformer.algebra.slices import require_square, slice_domain
from lformer.algebra.svd import fdiagonal
from lformer.algebra.transforms import TransformLike


def lqr(a: Tensor, transform: TransformLike = "dct", *, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    """A = Q * R, Q with L-orthonormal columns, every slice of L(R) upper triangular.

    Shapes: (..., m, n, p) -> Q (..., m, k, p), R (..., k, n, p), k = min(m, n), or m with mode="complete".
    """
    if mode not in ("reduced", "complete"):
        raise ValueError(f"lqr: mode={mode!r} must be 'reduced' or 'complete'")
    domain = slice_domain("lqr", transform, a, linalg=True)
    q, r = torch.linalg.qr(domain.forward(a), mode=mode)
    return domain.inverse(q), domain.inverse(r)


def llu(a: Tensor, transform: TransformLike = "dct") -> tuple[Tensor, Tensor, Tensor]:
    """A = P * L * U with partial pivoting: the slices in the transform domain are permutations, unit lower triangular
    and upper triangular.

    Shapes: (..., m, n, p) -> P (..., m, m, p), L (..., m, k, p), U (..., k, n, p), k = min(m, n).
    """
    domain = slice_domain("llu", transform, a, linalg=True)
    permutation, lower, upper = torch.linalg.lu(domain.forward(a))
    return domain.inverse(permutation), domain.inverse(lower), domain.inverse(upper)


def leigh(a: Tensor, transform: TransformLike = "dct") -> tuple[Tensor, Tensor]:
    """A = V * W * V^T for an L-symmetric A (A equal to its L-transpose): W f-diagonal, V L-orthogonal.

    Shapes: (..., m, m, p) -> W (..., m, m, p), V (..., m, m, p). In the transform domain the eigenvalues of every
    slice are real and ascend. A tensor that is clearly not symmetric is refused; rounding in it is averaged out.
    """
    require_square("leigh", a)
    domain = slice_domain("leigh", transform, a, linalg=True)
    ah = domain.forward(a)
    symmetric = (ah + ah.mH) / 2
    with torch.no_grad():
        skew = torch.linalg.vector_norm(ah - symmetric, dim=(0, -2, -1))  # one of each per tensor of the batch
        size = torch.linalg.vector_norm(ah, dim=(0, -2, -1))
    # A quarter of the digits: above any rounding of a tensor meant to be symmetric, far below one that is not.
    if bool((skew > size * torch.finfo(ah.dtype).eps ** 0.25).any()):
        ratio = float((2 * skew / size).nan_to_num().max())
        raise ValueError(
            f"leigh: the tensor of shape {tuple(a.shape)} is not L-symmetric under {domain.transform!r}: "
            f"||A - A^T|| / ||A|| is {ratio:.2g}; symmetrise it with (A + ltranspose(A)) / 2, or use lsvd"
        )
    w, v = torch.linalg.eigh(symmetric)
    tubes = domain.inverse_real(w[..., None]).squeeze(-2)
    return fdiagonal(tubes, w.shape[-1], w.shape[-1]), domain.inverse(v)
