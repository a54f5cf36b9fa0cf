"""Norms of a tensor under the L-product, and the proximal map of the nuclear norm.

Scaling, once: if Z Z^H = l I (l = 1 for the orthonormal transforms, l = p for "fft"), the nuclear norm is the sum over
slices of their nuclear norms divided by l. The spectral norm, the largest of the slices', is then its dual, and under
"fft" both are those of Lu et al. 2020 for the t-product. For any other Z, l is taken as 1.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lformer.algebra.slices import slice_domain
from lformer.algebra.transforms import TransformLike


def frobenius_norm(a: Tensor) -> Tensor:
    """The root of the sum of squares of all entries: (..., m, n, p) -> (...). paper: Sec. 3.1.

    It needs no transform; under an orthogonal one, L keeps it.
    """
    if a.ndim < 3:
        raise ValueError(f"frobenius_norm: needs a tensor (..., m, n, p), got shape {tuple(a.shape)}")
    return torch.linalg.vector_norm(a, dim=(-3, -2, -1))


def nuclear_norm(a: Tensor, transform: TransformLike = "dct") -> Tensor:
    """The tensor nuclear norm: the singular values of all slices of L(A), summed, over l. (..., m, n, p) -> (...)."""
    domain = slice_domain("nuclear_norm", transform, a, linalg=True)
    values = torch.linalg.svdvals(domain.forward(a))
    total = (values * domain.weights(values)).sum((0, -1))
    return _real_result(total / (domain.transform.gram_scale or 1.0), a)


def spectral_norm(a: Tensor, transform: TransformLike = "dct") -> Tensor:
    """The tensor spectral norm: the largest singular value of all slices of L(A). (..., m, n, p) -> (...)."""
    domain = slice_domain("spectral_norm", transform, a, linalg=True)
    if 0 in a.shape[-3:]:
        raise ValueError(f"spectral_norm: a tensor of shape {tuple(a.shape)} has no singular values")
    values = torch.linalg.svdvals(domain.forward(a))
    return _real_result(values[..., 0].amax(0), a)


def prox_nuclear(a: Tensor, tau: float, transform: TransformLike = "dct") -> Tensor:
    """Singular-tube thresholding: every singular value of every slice of L(A) shrunk by tau, at zero at the least.

    Where Z Z^H = l I this is the proximal map argmin_X tau ||X||_* + ||X - A||_F^2 / 2; for another invertible Z it is
    the one with the distance measured in the transform domain, ||L(X - A)||_F. Gradients are exact for repeated and
    zero singular values too. Shapes: (..., m, n, p) -> same.
    """
    if not tau >= 0:
        raise ValueError(f"prox_nuclear: the threshold tau={tau} must not be negative")
    domain = slice_domain("prox_nuclear", transform, a, linalg=True)
    return domain.inverse(_Shrink.apply(domain.forward(a), float(tau)))


class _Shrink(torch.autograd.Function):
    """U max(S - tau, 0) V^H for every matrix of a batch.

    The derivative through torch.linalg.svd divides by differences of singular values and breaks down where two are
    equal, which is what thresholding produces. The map itself is smooth in such directions: with the basis fixed, the
    Hermitian part of U^H dA V is scaled by divided differences of f(s) = max(s - tau, 0), the skew part by divided
    sums, and both have limits.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, tau: float) -> Tensor:
        u, s, vh = torch.linalg.svd(a, full_matrices=False)
        ctx.save_for_backward(u, s, vh)
        ctx.tau = tau
        return (u * (s - tau).clamp_min(0)[..., None, :]) @ vh

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,) = gradients
        u, s, vh = ctx.saved_tensors
        shrunk = (s - ctx.tau).clamp_min(0)
        tiny = torch.finfo(s.dtype).eps * s.amax(-1, keepdim=True).clamp_min(torch.finfo(s.dtype).tiny)
        slope = ((s > ctx.tau) | (s >= ctx.tau) * (ctx.tau == 0)).to(s.dtype)
        row, column = s[..., :, None], s[..., None, :]
        close = (row - column).abs() <= tiny[..., None]
        difference = torch.where(
            close,
            (slope[..., :, None] + slope[..., None, :]) / 2,
            (shrunk[..., :, None] - shrunk[..., None, :]) / torch.where(close, 1, row - column),
        )
        # f(s) / s, whose limit at s = 0 is the slope there.
        total = row + column
        zero = total <= tiny[..., None]
        added = torch.where(
            zero, difference, (shrunk[..., :, None] + shrunk[..., None, :]) / torch.where(zero, 1, total)
        )
        ratio = added.diagonal(dim1=-2, dim2=-1)

        core = u.mH @ gradient @ vh.mH
        inner = difference * (core + core.mH) / 2 + added * (core - core.mH) / 2
        result = u @ inner @ vh
        # What lies outside the row or the column space is scaled by f(s) / s alone.
        left = gradient @ vh.mH - u @ core
        right = u.mH @ gradient - core @ vh
        return result + (left * ratio[..., None, :]) @ vh + u @ (ratio[..., :, None] * right), None


def _real_result(value: Tensor, a: Tensor) -> Tensor:
    if a.is_complex():
        return value.to(a.dtype.to_real())
    return value.to(a.dtype) if a.is_floating_point() else value
