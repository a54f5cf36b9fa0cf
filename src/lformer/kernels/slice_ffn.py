"""slice_ffn: y_k = sigma(x_k W1_k^T + b1_k) W2_k^T + b2_k for every slice k. Letters are in nn/folding.py."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from lformer.kernels.autocast import autocast_dtype
from lformer.kernels.backend import use_triton
from lformer.kernels.cpu import slice_ffn_cpu
from lformer.kernels.slice_linear import slice_linear_reference

SIGMA: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


def slice_ffn(
    x: Tensor,
    w1: Tensor,
    b1: Tensor,
    w2: Tensor,
    b2: Tensor | None,
    activation: str,
    *,
    interleaved: bool = False,
    backend: str = "auto",
) -> Tensor:
    """Shapes: x (P, ..., M), w1 (P, F, M), b1 (P, F), w2 (P, M, F), b2 (P, M) -> (P, ..., M).

    With `interleaved` the hidden activations pass through interleave_slices. On the GPU b2 is better left to tube_norm.
    """
    if not use_triton(backend, x):
        if x.device.type != "cpu":
            return slice_ffn_reference(x, w1, b1, w2, b2, activation, interleaved=interleaved)
        return slice_ffn_cpu(x.flatten(1, -2), w1, b1, w2, b2, activation, interleaved).view(x.shape)
    from lformer.kernels.gpu.slice_ffn_op import slice_ffn_op

    dtype = autocast_dtype(x)
    rows = x.flatten(1, -2).contiguous().to(dtype)
    operands = (w1.to(dtype).contiguous(), b1.to(dtype).contiguous(), w2.to(dtype).contiguous())
    y, _hidden = slice_ffn_op(rows, *operands, activation, interleaved and len(x) > 1)
    if b2 is not None:
        y = y + b2.to(dtype).unsqueeze(1)
    return y.unflatten(1, x.shape[1:-1])


def slice_ffn_reference(
    x: Tensor,
    w1: Tensor,
    b1: Tensor,
    w2: Tensor,
    b2: Tensor | None,
    activation: str,
    *,
    interleaved: bool = False,
) -> Tensor:
    """The same in plain torch."""
    hidden = SIGMA[activation](slice_linear_reference(x, w1, b1))
    return slice_linear_reference(hidden, w2, b2, interleaved=interleaved)
