"""The tube transform alone in Triton: one pass over memory, the tubes in registers."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from lformer.kernels.gpu.launch import next_power_of_2, on_device_of_tensors
from lformer.kernels.gpu.slice_products import slice_products
from lformer.kernels.gpu.tube_norm_kernels import mix_tile


@triton.jit
def tube_mix_kernel(y_ptr, x_ptr, matrix_ptr, plane, P: tl.constexpr, TRANSPOSED: tl.constexpr, BLOCK: tl.constexpr):
    """y_k = sum_j Z[k, j] x_j, or Z[j, k]; `plane` is the number of elements of a slice."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < plane
    plane = plane.to(tl.int64)
    x, y = (), ()
    for k in tl.static_range(P):
        x = x + (tl.load(x_ptr + k * plane + offsets, mask=mask, other=0.0),)
    for k in tl.static_range(P):
        y = y + (mix_tile(matrix_ptr, x, k, 0, P, 1, TRANSPOSED, False),)
    for k in tl.static_range(P):
        tl.store(y_ptr + k * plane + offsets, y[k], mask=mask)


@torch.library.custom_op(
    "lformer::tube_mix", mutates_args=(), schema="(Tensor matrix, Tensor x, bool transposed) -> Tensor"
)
@on_device_of_tensors
def tube_mix_op(matrix: Tensor, x: Tensor, transposed: bool) -> Tensor:
    """From x (P, ...) contiguous to (P, ...)."""
    y = torch.empty_like(x)
    p, plane = len(x), x[0].numel()
    block = 128 * max(1, 32 // next_power_of_2(p))
    if plane:
        tube_mix_kernel[(triton.cdiv(plane, block),)](
            y, x, matrix.contiguous(), plane, P=p, TRANSPOSED=transposed, BLOCK=block, num_warps=4
        )
    return y


@tube_mix_op.register_fake
def _output(matrix: Tensor, x: Tensor, transposed: bool) -> Tensor:
    return torch.empty_like(x)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    matrix, x, ctx.transposed = inputs
    ctx.save_for_backward(matrix, x if ctx.needs_input_grad[0] else None)


def _backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
    matrix, x = ctx.saved_tensors
    g = g.contiguous()
    dmatrix = None
    if x is not None:
        dmatrix = (slice_products(x, g) if ctx.transposed else slice_products(g, x)).to(matrix.dtype)
    return dmatrix, torch.ops.lformer.tube_mix(matrix, g, not ctx.transposed), None


tube_mix_op.register_autograd(_backward, setup_context=_remember)
