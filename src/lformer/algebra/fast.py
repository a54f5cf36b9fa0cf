"""Fast algorithms, O(p log p), for the transforms that have one; each acts on the last dimension of a real tensor.

They take over from the p x p product where they win: `transforms.FAST_FROM` holds the measured crossover.
"""

import math
from functools import lru_cache

import torch
from torch import Tensor

from lformer.algebra.matrices import hadamard_matrix


def dct(x: Tensor) -> Tensor:
    """DCT-II, orthonormal, through one FFT of the same length.

    The even samples, then the odd ones backwards, form a sequence whose DFT is the DCT up to a phase.
    """
    size = x.shape[-1]
    shuffled = torch.cat([x[..., ::2], x[..., 1::2].flip(-1)], dim=-1)
    spectrum = torch.fft.fft(shuffled, norm="ortho") * _phase(size, x.dtype, x.device)
    return spectrum.real * _dct_weight(size, x.dtype, x.device)


def idct(x: Tensor) -> Tensor:
    """DCT-III, orthonormal: the inverse of `dct`."""
    size = x.shape[-1]
    x = x / _dct_weight(size, x.dtype, x.device)
    # The DFT of the shuffled sequence at k is (X_k - i X_{p-k}) times the conjugate phase, with X_p = 0.
    backwards = torch.cat([torch.zeros_like(x[..., :1]), x[..., 1:].flip(-1)], dim=-1)
    spectrum = torch.complex(x, -backwards) * _phase(size, x.dtype, x.device).conj()
    shuffled = torch.fft.ifft(spectrum, norm="ortho").real
    out = torch.empty_like(shuffled)
    half = (size + 1) // 2
    out[..., ::2] = shuffled[..., :half]
    out[..., 1::2] = shuffled[..., half:].flip(-1)
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
        angle = torch.arange(size, dtype=torch.float64) * (math.pi / (2 * size))
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
