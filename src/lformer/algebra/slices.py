"""The transform domain as a stack of matrices: what every L-operation does before and after its slice-wise work.

A tensor (..., m, n, p) becomes (P', ..., m, n): slice first, so that torch's batched matrix functions run over all
slices at once, and so that L and L^-1 are each one product of a small matrix with a long one, which also moves the
tube mode in the same pass. P' is p, or the number of non-redundant slices where real tensors meet a complex transform
with conjugate rows (the DFT): the other slices are conjugates, and the result is real by construction.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lformer.algebra.transform import Transform, working_dtype
from lformer.algebra.transforms import TransformLike, get_transform

HALF_PRECISION = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class SliceDomain:
    """How the tensors of one operation are taken to slices and back; made by `slice_domain`."""

    transform: Transform
    is_half: bool  # real tensors under a conjugate-symmetric complex transform: only P' < p slices are kept
    working: torch.dtype  # real or complex dtype of the tensors as they enter the transform
    result: torch.dtype  # dtype of what the operation returns
    batch_rank: int  # leading dimensions after broadcasting

    def forward(self, a: Tensor) -> Tensor:
        """(..., m, n, p) -> (P', ..., m, n)."""
        a = a.to(self.working)
        shape = (*(1,) * (self.batch_rank + 3 - a.ndim), *a.shape[:-1])
        if self.transform.fast_pair() is not None:
            slices = self._fast_forward(a).movedim(-1, 0)
            return slices.reshape(len(slices), *shape)
        tubes = a.reshape(-1, a.shape[-1]).T
        if self.is_half:
            matrix = self.transform.cast("half_forward", self.working, a.device)
            real, imaginary = torch.matmul(matrix, tubes).chunk(2)
            return torch.complex(real, imaginary).reshape(len(real), *shape)
        matrix = self.transform.cast("forward", self._matrix_dtype, a.device)
        return torch.matmul(matrix, tubes.to(self._matrix_dtype)).reshape(len(matrix), *shape)

    def inverse(self, ah: Tensor) -> Tensor:
        """(P', ..., m, n) -> (..., m, n, p), in the operation's result dtype."""
        if self.transform.fast_pair() is not None:
            return self._fast_inverse(ah.movedim(0, -1)).to(self.result)
        shape = (*ah.shape[1:], self.transform.size)
        tubes = ah.reshape(len(ah), -1).T
        if self.is_half:
            matrix = self.transform.cast("half_inverse", self.working, ah.device)
            tubes = torch.cat([tubes.real, tubes.imag], dim=1)
        else:
            matrix = self.transform.cast("inverse", self._matrix_dtype, ah.device)
            tubes = tubes.to(self._matrix_dtype)
        return torch.matmul(tubes, matrix.T).reshape(shape).to(self.result)

    def inverse_real(self, ah: Tensor) -> Tensor:
        """Like `inverse`, for slices that hold real numbers, such as singular values."""
        return self.inverse(ah.to(self.slice_dtype))

    def weights(self, like: Tensor) -> Tensor:
        """How often each kept slice counts among all p: (P', 1, ..., 1), with the rank and real dtype of `like`."""
        half = self.transform.half
        if self.is_half and half is not None:
            weight = half.weight
        else:
            weight = torch.ones(self.transform.size)
        real = like.dtype.to_real() if like.is_complex() else like.dtype
        return weight.to(like.device, real).reshape(-1, *(1,) * (like.ndim - 1))

    def expand(self, ah: Tensor) -> Tensor:
        """All p slices from the kept ones, conjugates included: (P', ...) -> (p, ...)."""
        half = self.transform.half
        if not self.is_half or half is None:
            return ah
        where = torch.full((self.transform.size,), -1)
        where[half.keep] = torch.arange(len(half.keep))
        conjugate = where < 0
        where = torch.where(conjugate, where[half.partner], where).to(ah.device)
        full = ah[where]
        if ah.is_complex():
            mask = conjugate.to(ah.device).reshape(-1, *(1,) * (ah.ndim - 1))
            full = torch.where(mask, full.conj(), full)
        return full

    @property
    def slice_dtype(self) -> torch.dtype:
        """The dtype of the slices."""
        return self.working.to_complex() if self.is_half else self._matrix_dtype

    @property
    def _matrix_dtype(self) -> torch.dtype:
        return self.working.to_complex() if self.transform.is_complex else self.working

    def _fast_forward(self, a: Tensor) -> Tensor:
        if self.is_half:
            return torch.fft.rfft(a, norm="ortho" if self.transform.is_orthogonal else "backward")
        return self.transform.forward(a)

    def _fast_inverse(self, ah: Tensor) -> Tensor:
        if self.is_half:
            norm = "ortho" if self.transform.is_orthogonal else "backward"
            return torch.fft.irfft(ah, n=self.transform.size, norm=norm)
        return self.transform.inverse(ah.to(self._matrix_dtype))


def slice_domain(operation: str, transform: TransformLike, *tensors: Tensor, linalg: bool = False) -> SliceDomain:
    """Check the tensors of an operation, find its transform, and say how its slices are kept.

    `linalg` is for operations that end in torch.linalg, which has no half precision: they work in float32.
    """
    for tensor in tensors:
        if tensor.ndim < 3 or 0 in tensor.shape[-1:]:
            raise ValueError(
                f"{operation}: needs tensors (..., m, n, p) with p >= 1 and the tube mode last, "
                f"got shape {tuple(tensor.shape)}"
            )
    sizes = {tensor.shape[-1] for tensor in tensors}
    if len(sizes) > 1:
        raise ValueError(
            f"{operation}: the tensors must have the same tube length p, "
            f"got shapes {' and '.join(str(tuple(t.shape)) for t in tensors)}"
        )
    resolved = _resolve(operation, transform, sizes.pop())
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    working = working_dtype(dtype, resolved)
    result = dtype if dtype.is_floating_point or dtype.is_complex else working
    if linalg and working in HALF_PRECISION:
        working = torch.float32
    is_half = resolved.half is not None and not working.is_complex
    if resolved.is_complex and not is_half:
        result = working.to_complex()
    return SliceDomain(resolved, is_half, working, result, max(tensor.ndim for tensor in tensors) - 3)


def tube_domain(operation: str, transform: TransformLike, p: int | None, dtype: torch.dtype) -> SliceDomain:
    """The slice domain for tensors that do not exist yet, such as an identity of tube length p."""
    resolved = _resolve(operation, transform, p)
    working = working_dtype(dtype, resolved)
    is_half = resolved.half is not None and not working.is_complex
    result = working.to_complex() if resolved.is_complex and not is_half else dtype
    return SliceDomain(resolved, is_half, working, result, 0)


def require_square(operation: str, a: Tensor) -> None:
    """Refuse a tensor whose frontal slices are not square."""
    if a.ndim >= 3 and a.shape[-3] != a.shape[-2]:
        raise ValueError(f"{operation}: needs square frontal slices, (..., m, m, p), got shape {tuple(a.shape)}")


def _resolve(operation: str, transform: TransformLike, p: int | None) -> Transform:
    try:
        return get_transform(transform, p)
    except ValueError as error:
        raise ValueError(f"{operation}: {error}") from None
