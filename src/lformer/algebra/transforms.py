"""The transforms there are: nine by name, and any invertible matrix."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from lformer.algebra import matrices
from lformer.algebra.transform import Transform, plain_cpu

# Worst condition number of a user's Z: beyond it, half of the digits are lost between L and its inverse.
MAX_CONDITION = {torch.float64: 1e8, torch.float32: 1e6}

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


def _from_matrix(matrix: Any, p: int | None, dtype: torch.dtype | None, device: torch.device | str | None) -> Transform:
    matrix = torch.as_tensor(matrix)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] == 0:
        raise ValueError(f"get_transform: the matrix Z must be square, p x p, got shape {tuple(matrix.shape)}")
    size = matrix.shape[0]
    if p is not None and p != size:
        raise ValueError(f"get_transform: the matrix Z is {size} x {size}, but the tubes have length {p}")
    is_complex = matrix.is_complex()
    given = matrix.dtype.to_real() if is_complex else matrix.dtype
    with plain_cpu():
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
