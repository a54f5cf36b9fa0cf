"""Three ranks of a tensor under the L-product, each with a tolerance: no measured tensor is exactly deficient."""

import torch
from torch import Tensor

from lformer.algebra.slices import slice_domain
from lformer.algebra.svd import singular_tubes
from lformer.algebra.transforms import TransformLike


def multi_rank(
    a: Tensor, transform: TransformLike = "dct", *, atol: float | None = None, rtol: float | None = None
) -> Tensor:
    """The rank of every slice of L(A): (..., m, n, p) -> (..., p), integers.

    Singular values at or below max(atol, rtol * the largest of all slices) count as zero; rtol is max(m, n) eps by
    default, or 0 if atol is given.
    """
    domain = slice_domain("multi_rank", transform, a, linalg=True)
    values = torch.linalg.svdvals(domain.forward(a.detach()))
    cut = rank_tolerance(values, a.shape[-3:-1], atol, rtol)
    return domain.expand((values > cut[..., None]).sum(-1)).movedim(0, -1)


def average_rank(
    a: Tensor, transform: TransformLike = "dct", *, atol: float | None = None, rtol: float | None = None
) -> Tensor:
    """The mean rank of the slices of L(A): (..., m, n, p) -> (...). paper: Def. L-average rank."""
    return multi_rank(a, transform, atol=atol, rtol=rtol).double().mean(-1)


def tubal_rank(
    a: Tensor, transform: TransformLike = "dct", *, atol: float | None = None, rtol: float | None = None
) -> Tensor:
    """The number of singular tubes whose l2 norm is not zero: (..., m, n, p) -> (...), integers.

    Norms at or below max(atol, rtol * the largest norm) count as zero; rtol is max(m, n) sqrt(p) eps by default, or 0
    if atol is given. paper: Def. L-tubal rank.
    """
    tubes = singular_tubes(a.detach(), transform)
    if tubes.dtype in (torch.float16, torch.bfloat16):
        tubes = tubes.float()  # else the default tolerance would be that of the storage, not of the computation
    norms = torch.linalg.vector_norm(tubes, dim=-1)
    if rtol is None:
        rtol = 0.0 if atol is not None else max(1, *a.shape[-3:-1]) * a.shape[-1] ** 0.5 * torch.finfo(norms.dtype).eps
    largest = norms.amax(-1, keepdim=True) if norms.shape[-1] else norms.new_zeros(())
    return (norms > (rtol * largest).clamp_min(atol or 0.0)).sum(-1)


def rank_tolerance(values: Tensor, shape: tuple[int, ...], atol: float | None, rtol: float | None) -> Tensor:
    """At or below this a singular value counts as zero: values (P', ..., r) -> (...), one for all slices of a tensor,
    so that a slice that is zero up to rounding does not count on its own scale.
    """
    if rtol is None:
        rtol = 0.0 if atol is not None else max(1, *shape) * torch.finfo(values.dtype).eps
    if values.shape[-1] == 0:
        return values.new_zeros(values.shape[1:-1])
    return (rtol * values[..., 0].amax(0)).clamp_min(atol or 0.0)
