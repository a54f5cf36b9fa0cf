"""tube_mix: L or L^-1 alone, y_k = sum_j Z[k, j] x_j along the first axis. In a stack tube_norm does it in passing."""

import torch
from torch import Tensor

from lformer.kernels.backend import MAX_TUBE, use_triton


def tube_mix(matrix: Tensor | None, x: Tensor, *, backend: str = "auto") -> Tensor:
    """Shapes: matrix (P, P), None for the identity; x (P, ...) -> (P, ...)."""
    if matrix is None:
        return x
    unsupported = f"more than {MAX_TUBE} slices do not fit in registers" if len(x) > MAX_TUBE else None
    if not use_triton(backend, x, unsupported=unsupported):
        return tube_mix_reference(matrix, x)
    from lformer.kernels.gpu.tube_mix import tube_mix_op

    return tube_mix_op(matrix, x.contiguous(), False)


def tube_mix_reference(matrix: Tensor | None, x: Tensor) -> Tensor:
    """The same in plain torch: one product of a small matrix with a long contiguous one."""
    return x if matrix is None else torch.matmul(matrix.to(x.dtype), x.flatten(1)).view(x.shape)
