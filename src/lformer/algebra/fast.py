"""Fast algorithms, O(p log p), for the transforms that have one; each acts on the last dimension of a real tensor.

They take over from the p x p product where they win, from `FAST_FROM` on.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial

import torch
from torch import Tensor

from lformer.algebra.matrices import hadamard_matrix

# From this tube length on the fast algorithm replaces the p x p product. Measured on a 2-core CPU by
# `python benchmarks/bench_transforms.py`; docs/math.md has the figures.
FAST_FROM = {"dct": 512, "dst": 512, "hartley": 512, "hadamard": 128, "dft": 64, "fft": 64}


def dct(x: Tensor) -> Tensor:
    """DCT-II, orthonormal, through one FFT of the same length.

    The even samples, then the odd ones backwards, form a real sequence. With W its DFT times a phase, the DCT at k is
    Re W_k, and at p - k it is -Im W_k: half of the spectrum is enough.
    """
    size = x.shape[-1]
    shuffled = torch.cat([x[..., ::2], x[..., 1::2].flip(-1)], dim=-1)
    half = torch.fft.rfft(shuffled, norm="ortho") * _phase(size, x.dtype, x.device)
    spectrum = torch.cat([half.real, -half.imag[..., 1 : (size + 1) // 2].flip(-1)], dim=-1)
    return spectrum * _dct_weight(size, x.dtype, x.device)


def idct(x: Tensor) -> Tensor:
    """DCT-III, orthonormal: the inverse of `dct`, with W_k = X_k - i X_{p-k} and X_p = 0."""
    size = x.shape[-1]
    x = x / _dct_weight(size, x.dtype, x.device)
    kept = size // 2 + 1
    backwards = torch.cat([torch.zeros_like(x[..., :1]), x[..., 1:].flip(-1)[..., : kept - 1]], dim=-1)
    half = torch.complex(x[..., :kept], -backwards) * _phase(size, x.dtype, x.device).conj()
    shuffled = torch.fft.irfft(half, n=size, norm="ortho")
    out = torch.empty_like(shuffled)
    middle = (size + 1) // 2
    out[..., ::2] = shuffled[..., :middle]
    out[..., 1::2] = shuffled[..., middle:].flip(-1)
    return out


def dst(x: Tensor) -> Tensor:
    """DST-II, orthonormal: a DCT-II of the sequence with alternating signs, read backwards."""
    return dct(x * _alternating(x)).flip(-1)


def idst(x: Tensor) -> Tensor:
    """DST-III, orthonormal: the inverse of `dst`."""
    return idct(x.flip(-1)) * _alternating(x)


def hartley(x: Tensor) -> Tensor:
    """Discrete Hartley transform: real minus imaginary part of the unitary DFT. Its own inverse."""
    spectrum = torch.fft.fft(x, norm="ortho")
    return spectrum.real - spectrum.imag


def hadamard(x: Tensor) -> Tensor:
    """Walsh-Hadamard transform as two products with small matrices: H_{ab} = H_a (x) H_b. Its own inverse."""
    size = x.shape[-1]
    a = 1 << (size.bit_length() - 1) // 2
    h_a = hadamard_matrix(a).to(x)
    h_b = hadamard_matrix(size // a).to(x)
    return (h_a @ x.unflatten(-1, (a, size // a)) @ h_b).flatten(-2)


@lru_cache(maxsize=64)
def _phase(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # it outlives the caller's mode
        angle = torch.arange(size // 2 + 1, dtype=torch.float64) * (math.pi / (2 * size))
        return torch.complex(angle.cos(), -angle.sin()).to(device, dtype.to_complex())


@lru_cache(maxsize=64)
def _dct_weight(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        weight = torch.full((size,), math.sqrt(2), dtype=torch.float64)
        weight[0] = 1
        return weight.to(device, dtype)


def _alternating(x: Tensor) -> Tensor:
    sign = torch.ones(x.shape[-1], dtype=x.dtype, device=x.device)
    sign[1::2] = -1
    return sign


ALGORITHMS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "dct": (dct, idct),
    "dst": (dst, idst),
    "hartley": (hartley, hartley),
    "hadamard": (hadamard, hadamard),
    "dft": (partial(torch.fft.fft, norm="ortho"), partial(torch.fft.ifft, norm="ortho")),
    "fft": (torch.fft.fft, torch.fft.ifft),
}
