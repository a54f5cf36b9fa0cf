"""What a transform L is: an invertible matrix Z along the tubes, L(A) = A x_3 Z. transforms.py makes them.

A `Transform` keeps Z in float64 (complex128) and casts it once for each dtype and device that asks, so that half
precision loses nothing but its own rounding. Where a fast algorithm wins (`fast.FAST_FROM`), it takes the place of Z.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from lformer.algebra import fast


class Transform:
    """An invertible linear map along the tubes of a tensor; made by `get_transform`.

    Attributes:
        name: the transform's name, or "matrix" for one of the user's.
        size: the tube length p.
        is_complex: whether Z has an imaginary part.
        is_orthogonal: whether Z is orthogonal (unitary if complex).
        gram_scale: l if Z Z^H = l I (1 for the orthonormal ones, p for "fft"), None for any other Z.
    """

    def __init__(
        self,
        name: str,
        size: int,
        build: Callable[[], Tensor],
        *,
        is_complex: bool = False,
        gram_scale: float | None = 1.0,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        self.name = name
        self.size = size
        self.is_complex = is_complex
        self.gram_scale = gram_scale
        self._build = build
        self._dtype = dtype
        self._device = torch.device(device) if device is not None else None
        self._inverse: Tensor | None = None
        self._casts: dict[tuple[str, torch.dtype, torch.device], Tensor] = {}

    def __repr__(self) -> str:
        return f"Transform({self.name!r}, p={self.size})"

    @property
    def is_orthogonal(self) -> bool:
        return self.gram_scale == 1.0

    @cached_property
    def master(self) -> Tensor:
        """Z in float64 or complex128, wherever it was built."""
        with plain_cpu():
            return self._build()

    @property
    def master_inverse(self) -> Tensor:
        """Z^-1 in float64 or complex128; made once, unless Z is being learned (each use then needs its own graph)."""
        if self._inverse is not None:
            return self._inverse
        inverse = self._invert()
        if not inverse.requires_grad and not torch.compiler.is_compiling():
            self._inverse = inverse
        return inverse

    def _invert(self) -> Tensor:
        with plain_cpu():
            if self.name != "matrix" and self.gram_scale is not None:
                return self.master.mH.resolve_conj() / self.gram_scale
            return torch.linalg.inv(self.master)  # a user's Z is orthogonal only to the precision it was given in

    @property
    def matrix(self) -> Tensor:
        """Z, in the dtype and on the device that `get_transform` was asked for (else float64 or complex128)."""
        return self._public(self.master)

    @property
    def inverse_matrix(self) -> Tensor:
        """Z^-1, like `matrix`."""
        return self._public(self.master_inverse)

    @cached_property
    def conjugate_partner(self) -> Tensor | None:
        """For a complex Z whose rows come in conjugate pairs: the partner of each row, else None.

        With such a Z, slices k and partner(k) of a real tensor are conjugate to each other, so that one of the two is
        enough, and slice-wise algebra on them maps real tensors to real tensors.
        """
        if not self.is_complex:
            return None
        with plain_cpu():
            if self.name in ("dft", "fft"):
                return -torch.arange(self.size) % self.size
            z = self.master.detach()
            distance = (z[:, None, :] - z.conj()[None, :, :]).abs().amax(-1)
            nearest, partner = distance.min(-1)
            index = torch.arange(self.size, device=z.device)
            paired = bool((nearest <= 1e-12 * z.abs().max()).all()) and bool((partner[partner] == index).all())
            return partner.cpu() if paired else None

    @cached_property
    def half(self) -> "HalfSpectrum | None":
        """The non-redundant slices of a real tensor, if `conjugate_partner` exists."""
        partner = self.conjugate_partner
        if partner is None:
            return None
        with plain_cpu():
            index = torch.arange(self.size)
            keep = index[index <= partner]
            weight = torch.where(keep == partner[keep], 1.0, 2.0).to(torch.float64)
            return HalfSpectrum(keep=keep, weight=weight, partner=partner)

    def forward(self, x: Tensor, dim: int = -1) -> Tensor:
        """L(x) along dimension `dim`: y_k = sum_j Z[k, j] x_j."""
        return self._apply("forward", x, dim)

    def inverse(self, x: Tensor, dim: int = -1) -> Tensor:
        """L^-1(x) along dimension `dim`. A complex transform gives a complex tensor, even where that is real."""
        return self._apply("inverse", x, dim)

    def cast(self, which: str, dtype: torch.dtype, device: torch.device) -> Tensor:
        """One of the matrices in the given dtype, on the given device; made once, unless Z itself is being learned.

        `which` is "forward" (Z), "inverse" (Z^-1), "conjugation" (Z^-1 conj(Z)), or for a half spectrum
        "half_forward" ([Re; Im] of the kept rows) and "half_inverse" ([Re, -Im] of the kept columns, weighted).
        """
        key = (which, dtype, device)
        found = self._casts.get(key)
        if found is not None:
            return found
        with plain_cpu():
            made = self._make(which).to(device, dtype)
        if not made.requires_grad and not torch.compiler.is_compiling():
            self._casts[key] = made
        return made

    def fast_pair(self) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]] | None:
        """Forward and inverse of the fast algorithm on the last dimension, if there is one and it wins at this p."""
        if self.size < fast.FAST_FROM.get(self.name, math.inf):
            return None
        return fast.ALGORITHMS[self.name]

    def _make(self, which: str) -> Tensor:
        if which == "forward":
            return self.master
        if which == "inverse":
            return self.master_inverse
        if which == "conjugation":
            moved = self.master_inverse @ self.master.conj()
            return moved.real if self.half is not None else moved
        assert self.half is not None
        keep = self.half.keep.to(self.master.device)
        if which == "half_forward":
            # A row that is its own conjugate is real. Rounding in it (sin(pi) is not 0) would make the slice complex,
            # and where that slice is singular, its singular vectors too, of which the way back keeps the real part.
            is_real = (self.half.weight == 1).to(self.master.device)[:, None]
            return torch.cat([self.master.real[keep], self.master.imag[keep].masked_fill(is_real, 0)])
        weighted = self.master_inverse[:, keep] * self.half.weight.to(self.master.device)
        return torch.cat([weighted.real, -weighted.imag], dim=1)

    def _public(self, master: Tensor) -> Tensor:
        dtype = self._dtype or master.dtype
        if self.is_complex and not dtype.is_complex:
            dtype = dtype.to_complex()
        return master.to(self._device or master.device, dtype)

    def _apply(self, which: str, x: Tensor, dim: int) -> Tensor:
        if x.ndim == 0 or not -x.ndim <= dim < x.ndim or x.shape[dim] != self.size:
            raise ValueError(
                f"{self!r}.{which}: dimension dim={dim} must exist and have length p={self.size}, "
                f"got a tensor of shape {tuple(x.shape)}"
            )
        x = x.to(working_dtype(x.dtype, self))
        fast_pair = self.fast_pair()
        if fast_pair is not None:
            return self._apply_fast(fast_pair[which == "inverse"], x, dim)
        matrix = self.cast(which, _matrix_dtype(x.dtype, self), x.device)
        if self.is_complex and not x.is_complex():
            x = x.to(matrix.dtype)
        dim = dim % x.ndim
        if dim == x.ndim - 1:
            return torch.matmul(x, matrix.T)
        return torch.matmul(matrix, x.flatten(dim + 1)).reshape(x.shape)

    def _apply_fast(self, function: Callable[[Tensor], Tensor], x: Tensor, dim: int) -> Tensor:
        dtype = x.dtype
        x = x.movedim(dim, -1)
        if dtype in (torch.float16, torch.bfloat16):
            x = x.float()
        if x.is_complex() and not self.is_complex:
            y = torch.complex(function(x.real), function(x.imag))
        else:
            y = function(x)
        return (y if self.is_complex else y.to(dtype)).movedim(-1, dim)


@dataclass(frozen=True)
class HalfSpectrum:
    """Which slices of a real tensor are kept, how often each one counts, and who is whose conjugate partner."""

    keep: Tensor
    weight: Tensor
    partner: Tensor


def working_dtype(dtype: torch.dtype, transform: Transform) -> torch.dtype:
    """The dtype in which tensors of `dtype` are transformed: integers become floats, and half precision becomes
    float32 where the transform is complex, since there are no complex half-precision products.
    """
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.get_default_dtype()
    if transform.is_complex and dtype in (torch.float16, torch.bfloat16):
        return torch.float32
    return dtype


def _matrix_dtype(dtype: torch.dtype, transform: Transform) -> torch.dtype:
    return dtype.to_complex() if transform.is_complex else dtype


@contextmanager
def plain_cpu() -> Iterator[None]:
    """What a transform keeps outlives the caller's modes: it is made on the CPU, not on a default device such as "meta"
    (where models are built before their weights are loaded), and is no inference tensor.
    """
    with torch.device("cpu"), torch.inference_mode(False):
        yield
