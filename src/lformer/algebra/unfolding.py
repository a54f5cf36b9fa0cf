"""Tensors as matrices: unfolding, the n-mode product, and Ten_p / Mat_p, which fold a feature axis into tubes.

Modes are counted from 0 (the paper's mode n is our n - 1); negative modes count from the end.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def unfold(a: Tensor, mode: int) -> Tensor:
    """The mode-n unfolding A_(n): mode n as rows, the others as columns, the earliest varying fastest (Kolda-Bader).

    paper: Sec. 3.2 and App. A.1. Shapes: (I_0, ..., I_{N-1}) -> (I_n, product of the others).

    >>> unfold(torch.arange(8).reshape(2, 2, 2), 0).tolist()
    [[0, 2, 1, 3], [4, 6, 5, 7]]
    """
    mode = _mode("unfold", a.ndim, mode)
    return a.permute(mode, *_others(a.ndim, mode)).reshape(a.shape[mode], -1)


def fold(matrix: Tensor, mode: int, shape: Sequence[int]) -> Tensor:
    """The tensor of the given shape whose mode-n unfolding is `matrix`: the inverse of `unfold`."""
    mode = _mode("fold", len(shape), mode)
    others = _others(len(shape), mode)
    columns = math.prod(shape[k] for k in others)
    if tuple(matrix.shape) != (shape[mode], columns):
        raise ValueError(
            f"fold: a tensor of shape {tuple(shape)} has a mode-{mode} unfolding of shape {(shape[mode], columns)}, "
            f"got a matrix of shape {tuple(matrix.shape)}"
        )
    order = (mode, *others)
    folded = matrix.reshape(shape[mode], *(shape[k] for k in others))
    return folded.permute(*(order.index(k) for k in range(len(shape))))


def mode_product(a: Tensor, matrix: Tensor, mode: int) -> Tensor:
    """A x_n X: every mode-n fibre multiplied by X, so that (A x_n X)_(n) = X A_(n).

    paper: Def. 3.1. Shapes: (..., I_n, ...), (J, I_n) -> (..., J, ...).
    """
    mode = _mode("mode_product", a.ndim, mode)
    if matrix.ndim != 2 or matrix.shape[1] != a.shape[mode]:
        raise ValueError(
            f"mode_product: mode {mode} of a tensor of shape {tuple(a.shape)} has length {a.shape[mode]}, "
            f"so the matrix must be (J, {a.shape[mode]}), got shape {tuple(matrix.shape)}"
        )
    dtype = torch.promote_types(a.dtype, matrix.dtype)
    return torch.tensordot(a.to(dtype), matrix.to(dtype), dims=([mode], [1])).movedim(-1, mode)


def mode_contract(a: Tensor, vector: Tensor, mode: int) -> Tensor:
    """A contracted with a vector along mode n; the result has one mode less.

    paper: Sec. 3.3. Shapes: (..., I_n, ...), (I_n,) -> (..., ...).
    """
    mode = _mode("mode_contract", a.ndim, mode)
    if vector.ndim != 1 or vector.shape[0] != a.shape[mode]:
        raise ValueError(
            f"mode_contract: mode {mode} of a tensor of shape {tuple(a.shape)} has length {a.shape[mode]}, "
            f"so the vector must be ({a.shape[mode]},), got shape {tuple(vector.shape)}"
        )
    dtype = torch.promote_types(a.dtype, vector.dtype)
    return torch.tensordot(a.to(dtype), vector.to(dtype), dims=([mode], [0]))


def tensorize(x: Tensor, p: int) -> Tensor:
    """Ten_p: p contiguous blocks of features become the frontal slices, X(t, j, k) = x(t, k d_s + j).

    Where p does not divide d, the features are padded with zeros to the next multiple; `matricize(..., d)` cuts them.
    paper: Eq. (tensorize); our k and j count from 0. Shapes: (..., T, d) -> (..., T, d_s, p), d_s = ceil(d / p).
    """
    if x.ndim < 1 or p < 1:
        raise ValueError(f"tensorize: needs features (..., T, d) and p >= 1, got shape {tuple(x.shape)} and p={p}")
    padding = -x.shape[-1] % p
    if padding:
        x = torch.nn.functional.pad(x, (0, padding))
    return x.unflatten(-1, (p, -1)).mT


def matricize(x: Tensor, d: int | None = None) -> Tensor:
    """Mat_p: the inverse of `tensorize`, cut to the first d features where the folding padded.

    Shapes: (..., T, d_s, p) -> (..., T, d), d = p d_s if not given.
    """
    if x.ndim < 2:
        raise ValueError(f"matricize: needs a tensor (..., T, d_s, p), got shape {tuple(x.shape)}")
    full = x.shape[-1] * x.shape[-2]
    if d is not None and not 0 <= d <= full:
        raise ValueError(f"matricize: a tensor of shape {tuple(x.shape)} has {full} features, cannot cut it to d={d}")
    return x.mT.flatten(-2)[..., :d]


def _mode(operation: str, order: int, mode: int) -> int:
    if not -order <= mode < order:
        raise ValueError(f"{operation}: mode={mode} does not exist in a tensor of order {order}; modes count from 0")
    return mode % order


def _others(order: int, mode: int) -> tuple[int, ...]:
    # Backwards, because reshape lets the last index vary fastest and Kolda-Bader lets the first.
    return tuple(k for k in reversed(range(order)) if k != mode)
