"""The L-product and what goes with it: identity, transpose, inverse and pseudo-inverse.

Tensors are (..., m, n, p), tube mode last, with any leading batch dimensions, which broadcast as in `torch.matmul`.
"""

import torch
from torch import Tensor

from lformer.algebra.ranks import rank_tolerance
from lformer.algebra.slices import require_square, slice_domain, tube_domain
from lformer.algebra.transforms import TransformLike


def facewise(a: Tensor, b: Tensor) -> Tensor:
    """The facewise product: each frontal slice of A times the same slice of B, with no transform.

    paper: Def. facewise product. Shapes: (..., m, l, p), (..., l, n, p) -> (..., m, n, p).
    """
    _require_product("facewise", a, b)
    dtype = torch.promote_types(a.dtype, b.dtype)
    return torch.matmul(a.to(dtype).movedim(-1, -3), b.to(dtype).movedim(-1, -3)).movedim(-3, -1)


def lproduct(a: Tensor, b: Tensor, transform: TransformLike = "dct") -> Tensor:
    """The L-product, A * B = L^-1(L(A) facewise L(B)).

    paper: Eq. (L-product). Shapes: (..., m, l, p), (..., l, n, p) -> (..., m, n, p). Real tensors give a real result
    under every real transform and under the DFT. With "fft" it is the t-product; with "dft", the t-product / sqrt(p).

    >>> a = torch.eye(2)[..., None].expand(2, 2, 3)
    >>> lproduct(a, a, "identity").sum(-1).tolist()
    [[3.0, 0.0], [0.0, 3.0]]
    """
    _require_product("lproduct", a, b)
    domain = slice_domain("lproduct", transform, a, b)
    return domain.inverse(torch.matmul(domain.forward(a), domain.forward(b)))


def ltranspose(a: Tensor, transform: TransformLike = "dct") -> Tensor:
    """The L-transpose: every slice of L(A) conjugate-transposed.

    paper: Def. L-transpose. Shapes: (..., m, n, p) -> (..., n, m, p). No transform is computed: for a real Z it is the
    (conjugate) transpose of every frontal slice, for the DFT the order of slices 1..p-1 is reversed as well, and in
    general the tubes of the conjugate are multiplied by Z^-1 conj(Z).
    """
    domain = slice_domain("ltranspose", transform, a)
    transposed = a.conj().transpose(-3, -2).resolve_conj()
    chosen = domain.transform
    if not chosen.is_complex:
        return transposed
    if chosen.name in ("dft", "fft"):
        return transposed.roll(-1, -1).flip(-1).to(domain.result)
    dtype = domain.working if domain.is_half else domain.slice_dtype
    matrix = chosen.cast("conjugation", dtype, a.device)
    return torch.matmul(transposed.to(dtype), matrix.T).to(domain.result)


def lidentity(
    m: int,
    p: int | None = None,
    transform: TransformLike = "dct",
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """The identity of the L-product: every slice of L(I) is the m x m identity matrix.

    paper: Def. L-identity. Shape: (m, m, p). p may be left out where the transform is an object or a matrix.
    """
    if m < 0:
        raise ValueError(f"lidentity: needs m >= 0, got m={m}")
    domain = tube_domain("lidentity", transform, p, dtype or torch.get_default_dtype())
    # L(I) is 1 along every diagonal tube and 0 elsewhere, so one tube, L^-1 of ones, is all there is to compute.
    kept = len(domain.weights(torch.empty(0)))
    tube = domain.inverse_real(torch.ones(kept, 1, 1, device=device))
    return torch.eye(m, dtype=tube.dtype, device=device)[..., None] * tube


def linverse(a: Tensor, transform: TransformLike = "dct") -> Tensor:
    """The inverse under the L-product: A * A^-1 = A^-1 * A = I.

    Shapes: (..., m, m, p) -> same. A tensor that is singular to working precision is refused; `lpinv` takes it.
    """
    require_square("linverse", a)
    domain = slice_domain("linverse", transform, a, linalg=True)
    ah = domain.forward(a)
    inverse, info = torch.linalg.inv_ex(ah)
    condition = _condition(ah, inverse)
    limit = 1 / torch.finfo(ah.dtype).eps
    if bool((info != 0).any()) or not bool((condition < limit).all()):
        raise ValueError(
            f"linverse: a slice of L(A) is singular, or nearly so against the others: condition {condition.max():.2g}, "
            f"below {limit:.1g} needed in {domain.working}, for A of shape {tuple(a.shape)} under "
            f"{domain.transform!r}; use lpinv for the pseudo-inverse"
        )
    return domain.inverse(inverse)


def lpinv(
    a: Tensor, transform: TransformLike = "dct", *, atol: float | None = None, rtol: float | None = None
) -> Tensor:
    """The Moore-Penrose inverse under the L-product.

    Shapes: (..., m, n, p) -> (..., n, m, p). Singular values at or below max(atol, rtol * the largest of all slices)
    count as zero; rtol is max(m, n) eps by default, or 0 if atol is given.
    """
    domain = slice_domain("lpinv", transform, a, linalg=True)
    ah = domain.forward(a)
    with torch.no_grad():
        # One threshold for all slices: a slice that is zero up to rounding must not be inverted on its own scale.
        cut = rank_tolerance(torch.linalg.svdvals(ah), ah.shape[-2:], atol, rtol)
    return domain.inverse(torch.linalg.pinv(ah, atol=cut.expand(ah.shape[:-2]), rtol=cut.new_zeros(())))


def _condition(ah: Tensor, inverse: Tensor) -> Tensor:
    """An upper bound, per tensor, of the condition number of all slices together (as one block-diagonal matrix)."""
    if ah.shape[-1] == 0:
        return torch.ones(ah.shape[1:-2], device=ah.device)
    with torch.no_grad():
        return torch.linalg.matrix_norm(ah, 1).amax(0) * torch.linalg.matrix_norm(inverse, 1).amax(0)


def _require_product(operation: str, a: Tensor, b: Tensor) -> None:
    problem = _product_problem(a, b)
    if problem:
        raise ValueError(f"{operation}: {problem}, got shapes {tuple(a.shape)} and {tuple(b.shape)}")


def _product_problem(a: Tensor, b: Tensor) -> str | None:
    if a.ndim < 3 or b.ndim < 3:
        return "needs tensors (..., m, l, p) and (..., l, n, p)"
    if a.shape[-1] != b.shape[-1]:
        return "both tensors must have the same tube length p (the last dimension)"
    if a.shape[-2] != b.shape[-3]:
        return "the columns of A must match the rows of B"
    if a.shape[:-3] != b.shape[:-3]:
        try:
            torch.broadcast_shapes(a.shape[:-3], b.shape[:-3])
        except RuntimeError:
            return "the leading batch dimensions do not broadcast"
    return None
