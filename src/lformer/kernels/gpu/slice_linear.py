"""slice_linear as an operation: which product runs forward, and which two run backward.

Measured on an H200 (benchmarks/tune_kernels.py): cuBLAS has the fastest bare batched product at most widths, but no
bias of its own for every slice; a product with the bias fused in saves a pass over its output. The gradient of a narrow
weight is a long sum with few results, which cuBLAS does not split.
"""

from typing import Any

import torch
from torch import Tensor

from lformer.kernels.gpu.launch import on_device_of_tensors
from lformer.kernels.gpu.slice_gemm import slice_product
from lformer.kernels.gpu.slice_matmul import column_sums, slice_matmul, slice_outer_flat

NARROW = 64  # features up to which a weight's gradient is summed by our kernel


@torch.library.custom_op(
    "lformer::slice_linear",
    mutates_args=(),
    schema="(Tensor x, Tensor weight, Tensor? bias, bool interleaved) -> Tensor",
)
@on_device_of_tensors
def slice_linear_op(x: Tensor, weight: Tensor, bias: Tensor | None, interleaved: bool) -> Tensor:
    """From x (P, N, K) contiguous, weight (P, O, K), bias (P, O) to (P, N, O)."""
    if interleaved:
        return slice_matmul(x, weight.mT, bias, a_chunked=True)
    if bias is None:
        return torch.bmm(x, weight.mT)
    if x.shape[-1] >= NARROW:
        return slice_product(x, weight, bias)
    return slice_matmul(x, weight.mT, bias)


@slice_linear_op.register_fake
def _output(x: Tensor, weight: Tensor, *_: Any) -> Tensor:
    return x.new_empty(*x.shape[:2], weight.shape[1])


@torch.library.custom_op(
    "lformer::slice_linear_backward",
    mutates_args=(),
    schema="(Tensor g, Tensor x, Tensor weight, bool has_bias, bool interleaved, bool needs_x) -> (Tensor, Tensor)",
)
@on_device_of_tensors
def slice_linear_backward_op(
    g: Tensor, x: Tensor, weight: Tensor, has_bias: bool, interleaved: bool, needs_x: bool
) -> tuple[Tensor, Tensor]:
    """The gradient of x (empty unless needed), and those of weight and bias in one flat tensor."""
    g = g.contiguous()
    dx = x.new_empty(0)
    if needs_x:
        dx = slice_matmul(g, weight, c_chunked=True) if interleaved else torch.bmm(g, weight)
    if interleaved or min(g.shape[-1], x.shape[-1]) <= NARROW:
        return dx, slice_outer_flat(g, x, weight.dtype, a_chunked=interleaved, sums=has_bias)
    flat = _flat(weight, has_bias)
    torch.bmm(g.mT, x, out=flat[: weight.numel()].view_as(weight))
    if has_bias:
        column_sums(g, flat[weight.numel() :])
    return dx, flat


@slice_linear_backward_op.register_fake
def _gradients(
    g: Tensor, x: Tensor, weight: Tensor, has_bias: bool, interleaved: bool, needs_x: bool
) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape if needs_x else 0), _flat(weight, has_bias)


def _flat(weight: Tensor, has_bias: bool) -> Tensor:
    return weight.new_empty(weight.numel() + (weight.shape[0] * weight.shape[1] if has_bias else 0))


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, bias, ctx.interleaved = inputs
    ctx.has_bias = bias is not None
    ctx.save_for_backward(x, weight)


def _backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
    x, weight = ctx.saved_tensors
    needs_x = ctx.needs_input_grad[0]
    dx, flat = torch.ops.lformer.slice_linear_backward(g, x, weight, ctx.has_bias, ctx.interleaved, needs_x)
    dweight = flat[: weight.numel()].view_as(weight)
    dbias = flat[weight.numel() :].view(weight.shape[:2]) if ctx.has_bias else None
    return dx if needs_x else None, dweight, dbias, None


slice_linear_op.register_autograd(_backward, setup_context=_remember)
