"""The transform L that defines an L-product: L(A) = A x_3 Z for an invertible p x p matrix Z.

A `Transform` keeps Z in float64 (complex128) and casts it once for each dtype and device that asks, so that half
precision loses nothing but its own rounding. Named transforms with a fast algorithm use it from `FAST_FROM` on.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from lformer.algebra import fast, matrices

# From this tube length on the fast algorithm replaces the p x p product. Measured on a 2-core CPU by
# `python benchmarks/bench_transforms.py`; docs/math.md has the figures.
FAST_FROM = {"dct": 512, "dst": 512, "hartley": 512, "hadamard": 128, "dft": 64, "fft": 64}

# Worst condition number of a user's Z: beyond it, half of the digits are lost between L and its inverse.
MAX_CONDITION = {torch.float64: 1e8, torch.float32: 1e6}


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
        with _plain_cpu():
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
        with _plain_cpu():
            if self.name in _NAMED and self.gram_scale is not None:
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
        with _plain_cpu():
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
        with _plain_cpu():
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
        with _plain_cpu():
            made = self._make(which).to(device, dtype)
        if not made.requires_grad and not torch.compiler.is_compiling():
            self._casts[key] = made
        return made

    def fast_pair(self) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]] | None:
        """Forward and inverse of the fast algorithm on the last dimension, if there is one and it wins at this p."""
        if self.size < FAST_FROM.get(self.name, math.inf):
            return None
        return _FAST[self.name]

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


TransformLike: TypeAlias = str | Tensor | Transform


def get_transform(
    transform: TransformLike,
    p: int | None = None,
    *,
    seed: int = 0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Transform:
    """The transform of a name ("dct", "dst", "hartley", "hadamard", "haar", "dft", "fft", "identity", "random"),
    or of an invertible p x p matrix of the user's.

    All named transforms are orthonormal but "fft", the DFT without scaling. "hadamard" exists for powers of two only,
    the others for every p. A matrix may require a gradient: it then flows through L and L^-1.

    >>> get_transform("dct", 4).forward(torch.ones(4)).tolist()[0]
    2.0
    """
    if isinstance(transform, Transform):
        if p is not None and p != transform.size:
            raise ValueError(
                f"get_transform: {transform!r} was asked to act on tubes of length {p}; make one of that p"
            )
        return transform
    if isinstance(transform, str):
        if transform not in _NAMED:
            raise ValueError(f"get_transform: no transform is called {transform!r}; there are {', '.join(_NAMED)}")
        if p is None or p < 1:
            raise ValueError(f"get_transform: {transform!r} needs a tube length p >= 1, got p={p}")
        return _named(transform, int(p), seed, dtype, torch.device(device) if device is not None else None)
    return _from_matrix(transform, p, dtype, device)


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


def _from_matrix(matrix: Any, p: int | None, dtype: torch.dtype | None, device: torch.device | str | None) -> Transform:
    matrix = torch.as_tensor(matrix)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] == 0:
        raise ValueError(f"get_transform: the matrix Z must be square, p x p, got shape {tuple(matrix.shape)}")
    size = matrix.shape[0]
    if p is not None and p != size:
        raise ValueError(f"get_transform: the matrix Z is {size} x {size}, but the tubes have length {p}")
    is_complex = matrix.is_complex()
    given = matrix.dtype.to_real() if is_complex else matrix.dtype
    with _plain_cpu():
        # A copy: the caller may change the matrix, and the inverse that is kept would no longer belong to it.
        master = matrix.to(torch.complex128 if is_complex else torch.float64, copy=True)
    fixed = master.detach()
    if not torch.isfinite(fixed).all():
        raise ValueError("get_transform: the matrix Z has entries that are not finite")
    condition = float(torch.linalg.cond(fixed))
    limit = MAX_CONDITION[torch.float32 if given in (torch.float32, torch.float16, torch.bfloat16) else torch.float64]
    if not condition <= limit:
        raise ValueError(
            f"get_transform: the matrix Z is singular or badly conditioned: its condition number is {condition:.3g}, "
            f"at most {limit:.0e} is accepted for {given}; L could not be undone reliably"
        )
    return Transform(
        "matrix",
        size,
        partial(_itself, master),
        is_complex=is_complex,
        gram_scale=_gram_scale(fixed, torch.finfo(given).eps if given.is_floating_point else 0.0),
        dtype=dtype,
        device=device,
    )


def _gram_scale(z: Tensor, precision: float) -> float | None:
    """The l of Z Z^H = l I to the precision in which Z was given, else None."""
    gram = z @ z.mH
    scale = float(gram.diagonal().real.mean())
    tolerance = max(1e-12, 4 * precision)
    distance = float((gram / scale - torch.eye(len(z), dtype=z.dtype, device=z.device)).abs().max())
    if distance > tolerance:
        return None
    return 1.0 if abs(scale - 1) <= tolerance else scale


def _itself(master: Tensor) -> Tensor:
    return master


@contextmanager
def _plain_cpu() -> Iterator[None]:
    """What a transform keeps outlives the caller's modes: it is made on the CPU, not on a default device such as "meta"
    (where models are built before their weights are loaded), and is no inference tensor.
    """
    with torch.device("cpu"), torch.inference_mode(False):
        yield


_NAMED: dict[str, Callable[..., Tensor]] = {
    "dct": matrices.dct_matrix,
    "dst": matrices.dst_matrix,
    "hartley": matrices.hartley_matrix,
    "hadamard": matrices.hadamard_matrix,
    "haar": matrices.haar_matrix,
    "dft": matrices.dft_matrix,
    "fft": matrices.fft_matrix,
    "identity": matrices.identity_matrix,
    "random": matrices.random_matrix,
}

_FAST: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "dct": (fast.dct, fast.idct),
    "dst": (fast.dst, fast.idst),
    "hartley": (fast.hartley, fast.hartley),
    "hadamard": (fast.hadamard, fast.hadamard),
    "dft": (partial(torch.fft.fft, norm="ortho"), partial(torch.fft.ifft, norm="ortho")),
    "fft": (torch.fft.fft, torch.fft.ifft),
}


# Every operation looks its transform up by name. A plain dictionary, and not lru_cache, because torch.compile sees
# through it; a Transform is small until its matrices are asked for.
_MADE: dict[tuple[str, int, int, torch.dtype | None, torch.device | None], Transform] = {}


def _named(name: str, p: int, seed: int, dtype: torch.dtype | None, device: torch.device | None) -> Transform:
    key = (name, p, seed, dtype, device)
    found = _MADE.get(key)
    if found is None:
        found = _MADE[key] = _make_named(name, p, seed, dtype, device)
    return found


def _make_named(name: str, p: int, seed: int, dtype: torch.dtype | None, device: torch.device | None) -> Transform:
    if name == "hadamard":
        matrices.require_power_of_two(p)  # now, not when the matrix is first needed
    build = partial(_NAMED[name], p, seed) if name == "random" else partial(_NAMED[name], p)
    return Transform(
        name,
        p,
        build,
        is_complex=name in ("dft", "fft"),
        gram_scale=float(p) if name == "fft" else 1.0,
        dtype=dtype,
        device=device,
    )
