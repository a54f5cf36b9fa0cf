"""The definitions of the paper, word for word: float64 or complex128, one tensor (m, n, p), Python loops over slices.

What the tests compare the fast code to. Each function takes the matrix Z itself and knows nothing of batches, fast
algorithms or conjugate slices. A complex Z gives complex128: that the imaginary part vanishes is for the tests to see.
"""

from itertools import product

import torch
from torch import Tensor


def mode_product(a: Tensor, matrix: Tensor, mode: int) -> Tensor:
    """Def. n-mode product: every mode-n fibre of A multiplied by X; modes count from 0."""
    a, matrix = _wide(a, matrix)
    shape = list(a.shape)
    shape[mode] = matrix.shape[0]
    out = torch.zeros(shape, dtype=a.dtype)
    others = [range(length) for k, length in enumerate(a.shape) if k != mode]
    for index in product(*others):
        fibre: tuple[int | slice, ...] = (*index[:mode], slice(None), *index[mode:])
        out[fibre] = matrix @ a[fibre]
    return out


def forward(a: Tensor, z: Tensor) -> Tensor:
    """Def. L-transform: L(A) = A x_3 Z."""
    return mode_product(a, z, 2)


def inverse(a: Tensor, z: Tensor) -> Tensor:
    """Def. L-transform: L^-1(A) = A x_3 Z^-1."""
    return mode_product(a, torch.linalg.inv(_wide(z)[0]), 2)


def facewise(a: Tensor, b: Tensor) -> Tensor:
    """Def. facewise product: C^(k) = A^(k) B^(k)."""
    a, b = _wide(a, b)
    return _stack([a[:, :, k] @ b[:, :, k] for k in range(a.shape[2])])


def lproduct(a: Tensor, b: Tensor, z: Tensor) -> Tensor:
    """Def. L-product: A * B = L^-1(L(A) facewise L(B))."""
    return inverse(facewise(forward(a, z), forward(b, z)), z)


def lidentity(m: int, z: Tensor) -> Tensor:
    """Def. L-identity: every slice of L(I) is the m x m identity matrix."""
    return inverse(_stack([torch.eye(m, dtype=torch.float64) for _ in range(len(z))]), z)


def ltranspose(a: Tensor, z: Tensor) -> Tensor:
    """Def. L-transpose: every slice of L(A^T) is the conjugate transpose of that of L(A)."""
    return inverse(_stack([slice_.mH for slice_ in _slices(a, z)]), z)


def lpinv(a: Tensor, z: Tensor, cut: float = 1e-10) -> Tensor:
    """The Moore-Penrose inverse of every slice of L(A); singular values at or below `cut` count as zero."""
    return inverse(_stack([torch.linalg.pinv(slice_, atol=cut, rtol=0.0) for slice_ in _slices(a, z)]), z)


def lsvd(a: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Thm. L-SVD: A = U * S * V^T with U (m, m, p), S (m, n, p), V (n, n, p); slice by slice, tubes not reordered."""
    factors = [torch.linalg.svd(slice_, full_matrices=True) for slice_ in _slices(a, z)]
    middle = []
    for _, values, _ in factors:
        diagonal = torch.zeros(a.shape[0], a.shape[1], dtype=torch.float64)
        for i, value in enumerate(values):
            diagonal[i, i] = value
        middle.append(diagonal)
    left, right = [u for u, _, _ in factors], [vh.mH for _, _, vh in factors]
    return inverse(_stack(left), z), inverse(_stack(middle), z), inverse(_stack(right), z)


def singular_values(a: Tensor, z: Tensor) -> Tensor:
    """The singular values of every slice of L(A), descending in each: (p, min(m, n))."""
    return torch.stack([torch.linalg.svdvals(slice_) for slice_ in _slices(a, z)])


def multi_rank(a: Tensor, z: Tensor, cut: float) -> list[int]:
    """The rank of every slice of L(A): how many of its singular values are above `cut`."""
    return [int((values > cut).sum()) for values in singular_values(a, z)]


def average_rank(a: Tensor, z: Tensor, cut: float) -> float:
    """Def. L-average rank: the mean of the ranks of the slices of L(A)."""
    return sum(multi_rank(a, z, cut)) / len(z)


def tubal_rank(a: Tensor, z: Tensor, cut: float) -> int:
    """Def. L-tubal rank: the number of singular tubes S(i, i, :) whose l2 norm is above `cut`."""
    s = lsvd(a, z)[1]
    return sum(float(s[i, i].abs().square().sum().sqrt()) > cut for i in range(min(a.shape[:2])))


def frobenius_norm(a: Tensor) -> float:
    """Sec. 3.1: the root of the sum of squares of all entries."""
    return float(sum(abs(complex(value)) ** 2 for value in a.flatten()) ** 0.5)


def nuclear_norm(a: Tensor, z: Tensor, scale: float = 1.0) -> float:
    """The sum of all singular values of all slices of L(A), over l, where Z Z^H = l I."""
    return sum(float(values.sum()) for values in singular_values(a, z)) / scale


def spectral_norm(a: Tensor, z: Tensor) -> float:
    """The largest singular value of all slices of L(A)."""
    return max(float(values.max()) for values in singular_values(a, z))


def prox_nuclear(a: Tensor, tau: float, z: Tensor) -> Tensor:
    """Every singular value of every slice of L(A) shrunk by tau, at zero at the least."""
    shrunk = []
    for slice_ in _slices(a, z):
        u, s, vh = torch.linalg.svd(slice_, full_matrices=False)
        shrunk.append(u @ torch.diag((s - tau).clamp_min(0)).to(u.dtype) @ vh)
    return inverse(_stack(shrunk), z)


def t_product(a: Tensor, b: Tensor) -> Tensor:
    """Kilmer's t-product, a circular convolution of slices: C^(k) = sum_j A^(j) B^(k - j mod p). No transform."""
    a, b = _wide(a, b)
    p = a.shape[2]
    out = torch.zeros(a.shape[0], b.shape[1], p, dtype=a.dtype)
    for k, j in product(range(p), range(p)):
        out[:, :, k] += a[:, :, j] @ b[:, :, (k - j) % p]
    return out


def _slices(a: Tensor, z: Tensor) -> list[Tensor]:
    """The frontal slices of L(A)."""
    ah = forward(a, z)
    return [ah[:, :, k] for k in range(ah.shape[2])]


def _stack(slices: list[Tensor]) -> Tensor:
    """Frontal slices to a tensor, the tube mode last."""
    return torch.stack(slices, dim=2)


def _wide(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All in float64, or all in complex128 if one of them is complex."""
    is_complex = any(tensor.is_complex() for tensor in tensors)
    return tuple(tensor.detach().to(torch.complex128 if is_complex else torch.float64) for tensor in tensors)
