"""The p x p matrices behind the named transforms, in float64 (complex128 for the Fourier ones).

Every function returns Z with L(A) = A x_3 Z, orthonormal unless its name says otherwise. Row k of Z is the
k-th basis tube.
"""

import math

import torch
from torch import Tensor


def dct_matrix(size: int) -> Tensor:
    """DCT-II, orthonormal: Z[k, j] = c_k cos(pi k (2j + 1) / 2p), c_0 = sqrt(1/p), c_k = sqrt(2/p)."""
    k, j = _grid(size)
    matrix = math.sqrt(2 / size) * torch.cos(math.pi * k * (2 * j + 1) / (2 * size))
    matrix[0] /= math.sqrt(2)
    return matrix


def dst_matrix(size: int) -> Tensor:
    """DST-II, orthonormal: Z[k, j] = c_k sin(pi (k + 1)(2j + 1) / 2p), c_{p-1} = sqrt(1/p), else sqrt(2/p)."""
    k, j = _grid(size)
    matrix = math.sqrt(2 / size) * torch.sin(math.pi * (k + 1) * (2 * j + 1) / (2 * size))
    matrix[-1] /= math.sqrt(2)
    return matrix


def hartley_matrix(size: int) -> Tensor:
    """Discrete Hartley transform: Z[k, j] = (cos + sin)(2 pi k j / p) / sqrt(p). Symmetric and its own inverse."""
    angle = _angles(size)
    return (angle.cos() + angle.sin()) / math.sqrt(size)


def hadamard_matrix(size: int) -> Tensor:
    """Walsh-Hadamard in natural (Sylvester) order, scaled by 1/sqrt(p). Symmetric and its own inverse."""
    require_power_of_two(size)
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while len(matrix) < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix / math.sqrt(size)


def require_power_of_two(size: int) -> None:
    """Refuse a tube length that has no Walsh-Hadamard matrix here, naming the nearest that have one."""
    if size & (size - 1):
        lower = 1 << (size.bit_length() - 1)
        raise ValueError(
            f"get_transform: 'hadamard' exists only for p a power of two, got p={size}; "
            f"use p={lower} or p={2 * lower}, or 'haar' or 'dct', which take every p"
        )


def haar_matrix(size: int) -> Tensor:
    """Haar wavelets, coarse to fine; for p a power of two the classical matrix.

    For any other p the two halves of an interval differ by one in length, and the step between them is weighted
    so that the rows stay orthonormal (the "unbalanced" Haar basis), so every p has one.
    """
    rows = [torch.full((size,), 1 / math.sqrt(size), dtype=torch.float64)]
    intervals = [(0, size)]
    while intervals:  # breadth first: all intervals of one level before the next, which is the coarse-to-fine order
        start, stop = intervals.pop(0)
        length = stop - start
        if length < 2:
            continue
        left = (length + 1) // 2
        right = length - left
        row = torch.zeros(size, dtype=torch.float64)
        row[start : start + left] = math.sqrt(right / (left * length))
        row[start + left : stop] = -math.sqrt(left / (right * length))
        rows.append(row)
        intervals += [(start, start + left), (start + left, stop)]
    return torch.stack(rows)


def dft_matrix(size: int) -> Tensor:
    """Unitary discrete Fourier transform: Z[k, j] = exp(-2 pi i k j / p) / sqrt(p)."""
    return fft_matrix(size) / math.sqrt(size)


def fft_matrix(size: int) -> Tensor:
    """Discrete Fourier transform without scaling, Z Z^H = p I: the one that makes the L-product Kilmer's t-product."""
    angle = _angles(size)
    return torch.complex(angle.cos(), -angle.sin())


def identity_matrix(size: int) -> Tensor:
    """No transform: the L-product is then the facewise product."""
    return torch.eye(size, dtype=torch.float64)


def random_matrix(size: int, seed: int = 0) -> Tensor:
    """A random orthogonal matrix, uniform (Haar measure), the same for the same seed on every machine's CPU."""
    generator = torch.Generator().manual_seed(seed)
    q, r = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))
    return q * r.diagonal().sign()  # LAPACK's sign convention would skew the distribution


def _grid(size: int) -> tuple[Tensor, Tensor]:
    index = torch.arange(size, dtype=torch.float64)
    return index[:, None], index[None, :]


def _angles(size: int) -> Tensor:
    # The product k*j is reduced modulo p as an integer, so that large p does not lose digits in the angle.
    index = torch.arange(size)
    return (index[:, None] * index[None, :] % size).to(torch.float64) * (2 * math.pi / size)
