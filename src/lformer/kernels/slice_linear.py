"""slice_linear: y_k = x_k W_k^T + b_k for every slice k. Letters are in nn/folding.py."""

import torch
import torch.nn.functional as F
from torch import Tensor

from lformer.kernels.autocast import autocast_dtype, cast
from lformer.kernels.backend import use_triton
from lformer.kernels.cpu import slice_linear_cpu
from lformer.kernels.interleave import interleave_slices


def slice_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, *, interleaved: bool = False, backend: str = "auto"
) -> Tensor:
    """Shapes: x (P, ..., K), weight (P, O, K), bias (P, O) -> (P, ..., O). With `interleaved` it is
    interleave_slices(x) that is multiplied.
    """
    if not use_triton(backend, x):
        if x.device.type != "cpu":
            return slice_linear_reference(x, weight, bias, interleaved=interleaved)
        rows = interleave_slices(x) if interleaved else x
        p, *tokens, _ = x.shape
        return slice_linear_cpu(rows.flatten(1, -2), weight, bias).view(p, *tokens, weight.shape[1])
    from lformer.kernels.gpu.slice_linear import slice_linear_op

    dtype = autocast_dtype(x)
    rows = x.flatten(1, -2).contiguous().to(dtype)
    y = slice_linear_op(rows, weight.to(dtype), cast(bias, dtype), interleaved and len(x) > 1)
    return y.unflatten(1, x.shape[1:-1])


def slice_linear_reference(x: Tensor, weight: Tensor, bias: Tensor | None, *, interleaved: bool = False) -> Tensor:
    """The same in plain torch."""
    if interleaved:
        x = interleave_slices(x)
    if len(x) == 1:
        return F.linear(x, weight[0], None if bias is None else bias[0])
    y = torch.bmm(x.flatten(1, -2), weight.mT)
    if bias is not None:
        y = y + bias.unsqueeze(1)
    return y.unflatten(1, x.shape[1:-1])
