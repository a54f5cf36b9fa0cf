"""The L-SVD, A = U * S * V^T, its truncations, and the singular tubes.

Conventions, once: U is (..., m, r, p) and V is (..., n, r, p), both with L-orthonormal columns; S is f-diagonal; the
factors satisfy A = lproduct(lproduct(U, S), ltranspose(V)). Singular tubes S(i, i, :) come in descending order of their
l2 norm. In the transform domain S holds the singular values of each slice, which are real and not negative.
"""

import torch
from torch import Tensor

from lformer.algebra.batched_svd import batched_svd
from lformer.algebra.slices import SliceDomain, slice_domain
from lformer.algebra.transforms import TransformLike


def lsvd(a: Tensor, transform: TransformLike = "dct", full_matrices: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """The L-SVD of a tensor.

    paper: Thm. L-SVD. Shapes: (..., m, n, p) -> U (..., m, r, p), S (..., r, r, p), V (..., n, r, p), r = min(m, n);
    with `full_matrices`, U (..., m, m, p), S (..., m, n, p), V (..., n, n, p), as in the theorem.

    The factors are unique only up to a rotation of tubes of equal norm: as with `torch.linalg.svd`, gradients through U
    and V are defined where the singular values of every slice differ, and through S everywhere.

    >>> u, s, v = lsvd(torch.randn(4, 3, 2))
    >>> u.shape, s.shape, v.shape
    (torch.Size([4, 3, 2]), torch.Size([3, 3, 2]), torch.Size([3, 3, 2]))
    """
    domain = slice_domain("lsvd", transform, a, linalg=True)
    u, s, v = _slice_svd(domain, a, full_matrices)
    rows, columns = (a.shape[-3], a.shape[-2]) if full_matrices else (s.shape[-1], s.shape[-1])
    return domain.inverse(u), fdiagonal(_tubes(domain, s), rows, columns), domain.inverse(v)


def lsvd_truncated(a: Tensor, k: int, transform: TransformLike = "dct") -> tuple[Tensor, Tensor, Tensor]:
    """The L-SVD cut to the k singular tubes of largest l2 norm.

    Under an orthogonal transform no tensor of tubal rank k is nearer to A in the Frobenius norm (Eckart-Young), and
    the squared error is the sum of the squared norms of the tubes left out.
    paper: Sec. truncated L-SVD. Shapes: U (..., m, k, p), S (..., k, k, p), V (..., n, k, p).
    """
    domain = slice_domain("lsvd_truncated", transform, a, linalg=True)
    largest = min(a.shape[-3], a.shape[-2])
    if not 1 <= k <= largest:
        raise ValueError(
            f"lsvd_truncated: k={k} must be from 1 to {largest}, the number of singular tubes "
            f"of a tensor of shape {tuple(a.shape)}"
        )
    u, s, v = _slice_svd(domain, a, full_matrices=False)
    return (
        domain.inverse(u[..., :k]),
        fdiagonal(_tubes(domain, s[..., :k]), k, k),
        domain.inverse(v[..., :k]),
    )


def lsvd_energy(a: Tensor, fraction: float, transform: TransformLike = "dct") -> tuple[Tensor, Tensor, Tensor]:
    """The L-SVD cut slice by slice to the fewest singular values that hold `fraction` of the energy (tSVDMII).

    All singular values of all slices compete: the largest are kept until their squares reach fraction * ||L(A)||^2.
    Slice k keeps rho_k of them (`multi_rank` of the result), and r is the largest rho_k; what a slice does not keep is
    zero in the transform domain, in U and V too. Shapes: U (..., m, r, p), S (..., r, r, p), V (..., n, r, p).
    Kilmer et al. 2021, "Tensor-tensor algebra for optimal representation and compression of multiway data".
    """
    if not 0 < fraction <= 1:
        raise ValueError(f"lsvd_energy: fraction={fraction} must be above 0 and at most 1")
    domain = slice_domain("lsvd_energy", transform, a, linalg=True)
    u, s, v = _slice_svd(domain, a, full_matrices=False)
    kept = _largest(domain, s, fraction)
    rank = int(kept.sum(-1).max()) if kept.numel() else 0
    kept, s = kept[..., :rank], s[..., :rank]
    u, v = (torch.where(kept[..., None, :], factor[..., :rank], 0) for factor in (u, v))
    return domain.inverse(u), fdiagonal(_tubes(domain, torch.where(kept, s, 0)), rank, rank), domain.inverse(v)


def singular_tubes(a: Tensor, transform: TransformLike = "dct") -> Tensor:
    """The diagonal tubes S(i, i, :) of the L-SVD, in the original domain, in descending order of l2 norm.

    Shapes: (..., m, n, p) -> (..., min(m, n), p).
    """
    domain = slice_domain("singular_tubes", transform, a, linalg=True)
    s = torch.linalg.svdvals(domain.forward(a))
    return _tubes(domain, s.gather(-1, _descending(domain, s)))


def fdiagonal(tubes: Tensor, rows: int, columns: int) -> Tensor:
    """The f-diagonal tensor with the given diagonal tubes: (..., r, p) -> (..., rows, columns, p)."""
    out = tubes.new_zeros(*tubes.shape[:-2], rows, columns, tubes.shape[-1])
    out.diagonal(dim1=-3, dim2=-2)[..., : tubes.shape[-2]].copy_(tubes.mT)
    return out


def _slice_svd(domain: SliceDomain, a: Tensor, full_matrices: bool) -> tuple[Tensor, Tensor, Tensor]:
    """SVD of every slice: U (P', ..., m, .), singular values (P', ..., r), V (P', ..., n, .), in the order of tubes."""
    u, s, vh = batched_svd(domain.forward(a), full_matrices)
    v = vh.mH
    if domain.transform.gram_scale is not None:
        return u, s, v  # each slice is sorted, so the sums of squares over slices, the tubes' norms, are too
    order = _descending(domain, s)
    r = s.shape[-1]

    def sort_columns(factor: Tensor) -> Tensor:
        index = order[..., None, :].expand(*factor.shape[:-1], r)
        return torch.cat([factor[..., :r].gather(-1, index), factor[..., r:]], dim=-1)

    return sort_columns(u), s.gather(-1, order), sort_columns(v)


def _descending(domain: SliceDomain, s: Tensor) -> Tensor:
    """The order of singular tubes by their norm in the original domain, the same for every slice: (P', ..., r)."""
    if domain.transform.gram_scale is not None:
        order = torch.arange(s.shape[-1], device=s.device)
    else:
        norms = torch.linalg.vector_norm(_tubes(domain, s.detach()), dim=-1)
        order = norms.argsort(dim=-1, descending=True, stable=True)
    return order.expand(s.shape)


def _tubes(domain: SliceDomain, s: Tensor) -> Tensor:
    """Singular values per slice (P', ..., r) to singular tubes in the original domain (..., r, p)."""
    return domain.inverse_real(s[..., None]).squeeze(-2)


def _largest(domain: SliceDomain, s: Tensor, fraction: float) -> Tensor:
    """Which singular values (P', ..., r) are needed to hold the fraction of the energy, the largest first."""
    with torch.no_grad():
        energy = s.double().square()
        flat = energy.movedim(0, -2).flatten(-2)  # (..., P' r)
        counted = (energy * domain.weights(energy)).movedim(0, -2).flatten(-2)
        order = flat.argsort(dim=-1, descending=True, stable=True)
        total = counted.gather(-1, order).cumsum(-1)
        # Value i is needed if those before it do not reach the goal yet.
        before = torch.cat([torch.zeros_like(total[..., :1]), total[..., :-1]], dim=-1)
        needed = before < fraction * total[..., -1:]
        kept = torch.zeros_like(needed).scatter(-1, order, needed)
        return kept.unflatten(-1, (len(s), -1)).movedim(-2, 0)
