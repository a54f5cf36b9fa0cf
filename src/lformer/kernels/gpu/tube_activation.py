"""Sigma in the original domain in Triton: one pass over memory forward, one backward, the tubes in registers.

Letters: P slices, `plane` numbers of a slice. The gradients of the two P x P matrices, where they are learned, are
summed in the same pass: every program leaves its own sums, which `add_parts` adds in a fixed order.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from lformer.kernels.gpu.activation import activate, activation_slope
from lformer.kernels.gpu.launch import MULTIPROCESSORS, add_parts, next_power_of_2, on_device_of_tensors
from lformer.kernels.gpu.tube_norm_kernels import mix_tile

BACKWARD_PROGRAMS = 4 * MULTIPROCESSORS


@triton.jit
def tube_activation_kernel(
    y_ptr,
    h_ptr,
    inverse_ptr,
    matrix_ptr,
    plane,
    P: tl.constexpr,
    ACTIVATION: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Forward: y = Z sigma(W h)."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < plane
    plane = plane.to(tl.int64)
    h, a, y = (), (), ()
    for k in tl.static_range(P):
        h = h + (tl.load(h_ptr + k * plane + offsets, mask=mask, other=0.0),)
    for k in tl.static_range(P):
        a = a + (activate(mix_tile(inverse_ptr, h, k, 0, P, 1, False, False), ACTIVATION),)
    for k in tl.static_range(P):
        y = y + (mix_tile(matrix_ptr, a, k, 0, P, 1, False, False),)
    for k in tl.static_range(P):
        tl.store(y_ptr + k * plane + offsets, y[k], mask=mask)


@triton.jit
def tube_activation_backward_kernel(
    dh_ptr,
    sums_ptr,
    dy_ptr,
    h_ptr,
    inverse_ptr,
    matrix_ptr,
    plane,
    blocks,
    P: tl.constexpr,
    ACTIVATION: tl.constexpr,
    LEARNED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Backward: du = (Z^T dy) sigma'(u) with u = W h, dh = W^T du, and over `blocks` tiles dW = du h^T, dZ = dy a^T."""
    start = tl.program_id(0).to(tl.int64) * blocks * BLOCK
    plane_of = plane.to(tl.int64)
    sums = ()
    if LEARNED:
        for _ in tl.static_range(2 * P * P):
            sums = sums + (tl.zeros((BLOCK,), tl.float32),)
    for block in range(0, blocks):
        offsets = start + block * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < plane
        h, dy, a, du, dh, added = (), (), (), (), (), ()
        for k in tl.static_range(P):
            h = h + (tl.load(h_ptr + k * plane_of + offsets, mask=mask, other=0.0),)
            dy = dy + (tl.load(dy_ptr + k * plane_of + offsets, mask=mask, other=0.0),)
        for k in tl.static_range(P):
            u = mix_tile(inverse_ptr, h, k, 0, P, 1, False, False)
            a = a + (activate(u, ACTIVATION),)
            du = du + (mix_tile(matrix_ptr, dy, k, 0, P, 1, True, False) * activation_slope(u, ACTIVATION),)
        for k in tl.static_range(P):
            dh = dh + (mix_tile(inverse_ptr, du, k, 0, P, 1, True, False),)
        if LEARNED:
            for j in tl.static_range(P):
                for k in tl.static_range(P):
                    added = added + (sums[j * P + k] + du[j] * h[k].to(tl.float32),)
            for j in tl.static_range(P):
                for k in tl.static_range(P):
                    added = added + (sums[P * P + j * P + k] + dy[j].to(tl.float32) * a[k],)
            sums = added
        for k in tl.static_range(P):
            tl.store(dh_ptr + k * plane_of + offsets, dh[k], mask=mask)
    if LEARNED:
        for i in tl.static_range(2 * P * P):
            tl.store(sums_ptr + tl.program_id(0) * 2 * P * P + i, tl.sum(sums[i], axis=0))


def _forward_block(p: int) -> int:
    """Numbers of a slice in a tile of 128 threads: a thread holds 32 of all slices."""
    return 128 * max(1, 32 // next_power_of_2(p))


def _backward_block(p: int, learned: bool) -> int:
    """Fewer where the thread also holds the sums of two gradients, P x P each, once for every number of a slice."""
    return 128 * max(1, (8 if learned else 16) // next_power_of_2(p))


@torch.library.custom_op(
    "lformer::tube_activation",
    mutates_args=(),
    schema="(Tensor h, Tensor inverse, Tensor matrix, str activation) -> Tensor",
)
@on_device_of_tensors
def tube_activation_op(h: Tensor, inverse: Tensor, matrix: Tensor, activation: str) -> Tensor:
    """From h (P, ...) contiguous to (P, ...)."""
    y = torch.empty_like(h)
    p, plane = len(h), h[0].numel()
    block = _forward_block(p)
    if plane:
        tube_activation_kernel[(triton.cdiv(plane, block),)](
            y,
            h,
            inverse.contiguous(),
            matrix.contiguous(),
            plane,
            P=p,
            ACTIVATION=activation,
            BLOCK=block,
            num_warps=4,
        )
    return y


@tube_activation_op.register_fake
def _output(h: Tensor, inverse: Tensor, matrix: Tensor, activation: str) -> Tensor:
    return torch.empty_like(h)


@torch.library.custom_op(
    "lformer::tube_activation_backward",
    mutates_args=(),
    schema="(Tensor dy, Tensor h, Tensor inverse, Tensor matrix, str activation, bool learned) -> (Tensor, Tensor)",
)
@on_device_of_tensors
def tube_activation_backward_op(
    dy: Tensor, h: Tensor, inverse: Tensor, matrix: Tensor, activation: str, learned: bool
) -> tuple[Tensor, Tensor]:
    """The gradient of h, and if they are learned those of W and Z, (2, P, P) in float32, else nothing."""
    dh = torch.empty_like(h)
    p, plane = len(h), h[0].numel()
    found = h.new_zeros((2, p, p) if learned else (0,), dtype=torch.float32)
    if plane == 0:
        return dh, found
    block = _backward_block(p, learned)
    count = triton.cdiv(plane, block)
    blocks = triton.cdiv(count, min(BACKWARD_PROGRAMS, count)) if learned else 1
    programs = triton.cdiv(count, blocks)
    sums = found.new_empty((programs, *found.shape)) if learned else found
    tube_activation_backward_kernel[(programs,)](
        dh,
        sums,
        dy.contiguous(),
        h,
        inverse.contiguous(),
        matrix.contiguous(),
        plane,
        blocks,
        P=p,
        ACTIVATION=activation,
        LEARNED=learned,
        BLOCK=block,
        num_warps=4,
    )
    return dh, add_parts(sums, found) if learned else found


@tube_activation_backward_op.register_fake
def _gradients(
    dy: Tensor, h: Tensor, inverse: Tensor, matrix: Tensor, activation: str, learned: bool
) -> tuple[Tensor, Tensor]:
    p = len(h)
    return torch.empty_like(h), h.new_empty((2, p, p) if learned else (0,), dtype=torch.float32)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    h, inverse, matrix, ctx.activation = inputs
    ctx.save_for_backward(h, inverse, matrix)


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    h, inverse, matrix = ctx.saved_tensors
    learned = ctx.needs_input_grad[1] or ctx.needs_input_grad[2]
    dh, found = torch.ops.lformer.tube_activation_backward(dy, h, inverse, matrix, ctx.activation, learned)
    if not learned:
        return dh, None, None, None
    return dh, found[0].to(inverse.dtype), found[1].to(matrix.dtype), None


tube_activation_op.register_autograd(_backward, setup_context=_remember)
