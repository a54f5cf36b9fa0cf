"""Sigma in the original domain in Triton: one pass over memory forward, one backward, the tubes in registers.

Letters: P slices, `plane` numbers of a slice. The gradients of the two P x P matrices, where they are learned, are
summed in the same pass, over tiles as in slice_products.py: every program leaves its own sums, which are added in a
fixed order.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from lformer.kernels.gpu.activation import activate, activation_slope
from lformer.kernels.gpu.launch import MULTIPROCESSORS, next_power_of_2, on_device_of_tensors
from lformer.kernels.gpu.slice_products import (
    add_products,
    add_small_parts,
    load_tube_at,
    row_starts,
    split_tiles,
    zero_sums,
)
from lformer.kernels.gpu.tube_norm_kernels import mix_tile

BACKWARD_PROGRAMS = 4 * MULTIPROCESSORS


@triton.jit
def mix_tube(matrix_ptr, tube, P: tl.constexpr, TRANSPOSED: tl.constexpr):
    mixed = ()
    for k in tl.static_range(P):
        mixed = mixed + (mix_tile(matrix_ptr, tube, k, 0, P, 1, TRANSPOSED, False),)
    return mixed


@triton.jit
def input_offsets(offsets, width, GATED: tl.constexpr):
    """Where in a slice of h the inputs of these outputs are; with a gate its rows [A, G] are twice as long."""
    if GATED:
        return offsets + offsets // width * width
    return offsets


@triton.jit
def tube_activation_kernel(
    y_ptr,
    h_ptr,
    inverse_ptr,
    matrix_ptr,
    plane,
    width,
    P: tl.constexpr,
    ACTIVATION: tl.constexpr,
    GATED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Forward: y = Z sigma(W h), or Z (sigma(W A) W G)."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < plane
    plane = plane.to(tl.int64)
    places = input_offsets(offsets, width, GATED)
    h_plane = 2 * plane if GATED else plane
    h = load_tube_at(h_ptr, places, h_plane, mask, P)
    u = mix_tube(inverse_ptr, h, P, False)
    a = ()
    if GATED:
        gate = load_tube_at(h_ptr + width, places, h_plane, mask, P)
        v = mix_tube(inverse_ptr, gate, P, False)
        for k in tl.static_range(P):
            a = a + (activate(u[k], ACTIVATION) * v[k],)
    else:
        for k in tl.static_range(P):
            a = a + (activate(u[k], ACTIVATION),)
    y = mix_tube(matrix_ptr, a, P, False)
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
    width,
    blocks,
    P: tl.constexpr,
    ACTIVATION: tl.constexpr,
    GATED: tl.constexpr,
    LEARNED: tl.constexpr,
    WHOLE: tl.constexpr,
    ROWS: tl.constexpr,
    VECTOR: tl.constexpr,
):
    """Backward, with u = W h, v = W G (1 without a gate), a = sigma(u) v and da = Z^T dy: du = da sigma'(u) v,
    dv = da sigma(u), dh = W^T du, dG = W^T dv, and over `blocks` tiles dW = du h^T + dv G^T and dZ = dy a^T.
    """
    size: tl.constexpr = ROWS * VECTOR
    start = tl.program_id(0).to(tl.int64) * blocks * size
    y_plane = tl.cast(plane, tl.int64)
    h_plane = 2 * y_plane if GATED else y_plane
    rows, columns = tl.arange(0, ROWS), tl.arange(0, VECTOR)
    y_at, h_at = start, start
    if GATED:
        token = start // width
        feature = (start - token * width).to(tl.int32)  # what follows fits in 32 bits
        h_at = start + token * width
    if LEARNED:
        sums = zero_sums(ROWS, 2 * P * P)
    for block in range(0, blocks):
        offsets = block * size + (rows * VECTOR)[:, None] + columns[None, :]
        mask = offsets < y_plane - start
        places = offsets
        if GATED:  # rows of h are [A, G]
            ahead = (feature + block * size + row_starts(rows, columns, WHOLE, VECTOR)) // width
            places = offsets + ahead * width
        h = load_tube_at(h_ptr + h_at, places, h_plane, mask, P)
        dy = load_tube_at(dy_ptr + y_at, offsets, y_plane, mask, P)
        gate = h
        if GATED:
            gate = load_tube_at(h_ptr + h_at + width, places, h_plane, mask, P)
        u = mix_tube(inverse_ptr, h, P, False)
        da = mix_tube(matrix_ptr, dy, P, True)
        a, du, dv = (), (), ()
        if GATED:
            v = mix_tube(inverse_ptr, gate, P, False)
            for k in tl.static_range(P):
                sigma = activate(u[k], ACTIVATION)
                a = a + (sigma * v[k],)
                du = du + (da[k] * v[k] * activation_slope(u[k], ACTIVATION),)
                dv = dv + (da[k] * sigma,)
        else:
            for k in tl.static_range(P):
                a = a + (activate(u[k], ACTIVATION),)
                du = du + (da[k] * activation_slope(u[k], ACTIVATION),)
        dh = mix_tube(inverse_ptr, du, P, True)
        for k in tl.static_range(P):
            tl.store(dh_ptr + h_at + k * h_plane + places, dh[k], mask=mask)
        if GATED:
            dgate = mix_tube(inverse_ptr, dv, P, True)
            for k in tl.static_range(P):
                tl.store(dh_ptr + h_at + width + k * h_plane + places, dgate[k], mask=mask)
        if LEARNED:
            sums = add_products(sums, 0, du, h, P, 2 * P * P)
            sums = add_products(sums, P * P, dy, a, P, 2 * P * P)
            if GATED:
                sums = add_products(sums, 0, dv, gate, P, 2 * P * P)
    if LEARNED:
        for i in tl.static_range(2 * P * P):
            tl.store(sums_ptr + tl.program_id(0) * 2 * P * P + i, tl.sum(sums[i], axis=0))


def _forward_block(p: int) -> int:
    """Numbers of a slice in a tile of 128 threads: a thread holds 32 of all slices."""
    return 128 * max(1, 32 // next_power_of_2(p))


def _backward_tiles(p: int, learned: bool, gated: bool) -> dict[str, int]:
    """A thread holds 16 numbers of all slices together, or less beside the sums of two gradients, P x P each."""
    vector = min(8, max(2, 16 // next_power_of_2(p)))
    if learned and gated and p > 6:
        vector = 1
    return {"ROWS": 128, "VECTOR": vector, "num_warps": 4}


@torch.library.custom_op(
    "lformer::tube_activation",
    mutates_args=(),
    schema="(Tensor h, Tensor inverse, Tensor matrix, str activation, bool gated) -> Tensor",
)
@on_device_of_tensors
def tube_activation_op(h: Tensor, inverse: Tensor, matrix: Tensor, activation: str, gated: bool) -> Tensor:
    """From h (P, ..., F) contiguous, or (P, ..., 2F) with a gate, to (P, ..., F)."""
    y = _output(h, inverse, matrix, activation, gated)
    p, plane = len(y), y[0].numel()
    block = _forward_block(p)
    if plane:
        tube_activation_kernel[(triton.cdiv(plane, block),)](
            y,
            h,
            inverse.contiguous(),
            matrix.contiguous(),
            plane,
            y.shape[-1],
            P=p,
            ACTIVATION=activation,
            GATED=gated,
            BLOCK=block,
            num_warps=4,
        )
    return y


def _output(h: Tensor, inverse: Tensor, matrix: Tensor, activation: str, gated: bool) -> Tensor:
    return h.new_empty(*h.shape[:-1], h.shape[-1] // 2 if gated else h.shape[-1])


tube_activation_op.register_fake(_output)


@torch.library.custom_op(
    "lformer::tube_activation_backward",
    mutates_args=(),
    schema="(Tensor dy, Tensor h, Tensor inverse, Tensor matrix, str activation, bool gated, bool learned) "
    "-> (Tensor, Tensor)",
)
@on_device_of_tensors
def tube_activation_backward_op(
    dy: Tensor, h: Tensor, inverse: Tensor, matrix: Tensor, activation: str, gated: bool, learned: bool
) -> tuple[Tensor, Tensor]:
    """The gradient of h, and if they are learned those of W and Z, (2, P, P) in float32, else nothing."""
    dh = torch.empty_like(h)
    p, plane = len(dy), dy[0].numel()
    found = h.new_zeros((2, p, p) if learned else (0,), dtype=torch.float32)
    if plane == 0:
        return dh, found
    tiles = _backward_tiles(p, learned, gated)
    count = triton.cdiv(plane, tiles["ROWS"] * tiles["VECTOR"])
    blocks, programs = split_tiles(count, BACKWARD_PROGRAMS) if learned else (1, count)
    sums = found.new_empty((programs, *found.shape)) if learned else found
    tube_activation_backward_kernel[(programs,)](
        dh,
        sums,
        dy.contiguous(),
        h,
        inverse.contiguous(),
        matrix.contiguous(),
        plane,
        dy.shape[-1],
        blocks,
        P=p,
        ACTIVATION=activation,
        GATED=gated,
        LEARNED=learned,
        WHOLE=dy.shape[-1] % tiles["VECTOR"] == 0,
        **tiles,
    )
    return dh, add_small_parts(sums, found) if learned else found


@tube_activation_backward_op.register_fake
def _gradients(dy: Tensor, h: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    learned, p = rest[-1], len(dy)
    return torch.empty_like(h), h.new_empty((2, p, p) if learned else (0,), dtype=torch.float32)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    h, inverse, matrix, ctx.activation, ctx.gated = inputs
    ctx.save_for_backward(h, inverse, matrix)


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    h, inverse, matrix = ctx.saved_tensors
    learned = ctx.needs_input_grad[1] or ctx.needs_input_grad[2]
    dh, found = torch.ops.lformer.tube_activation_backward(dy, h, inverse, matrix, ctx.activation, ctx.gated, learned)
    if not learned:
        return dh, None, None, None, None
    return dh, found[0].to(inverse.dtype), found[1].to(matrix.dtype), None, None


tube_activation_op.register_autograd(_backward, setup_context=_remember)
