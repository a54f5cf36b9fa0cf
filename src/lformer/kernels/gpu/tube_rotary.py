"""Mixed and rotated queries, keys and values in Triton: one pass over memory forward, one backward.

Letters: P slices, H heads of E features. A row of a tile is V neighbouring features of the first half of a head and
the V that rotate with them, E/2 further on; a thread holds those of all slices. The gradient of the matrix, where it
is learned, is summed in the same pass: every program leaves its own sums, which `add_parts` adds in a fixed order.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from lformer.kernels.gpu.launch import MULTIPROCESSORS, add_parts, next_power_of_2, on_device_of_tensors, placeholder

BACKWARD_PROGRAMS = 3 * MULTIPROCESSORS  # as many as there is room for, with the registers that they take


@triton.jit
def places_of(rows, H: tl.constexpr, E: tl.constexpr, V: tl.constexpr):
    """Token, head and first feature of every row. There are fewer than 2^31 tokens, whose division is cheaper then."""
    GROUPS: tl.constexpr = E // 2 // V
    return (rows // (GROUPS * H)).to(tl.int32), rows // GROUPS % H, rows % GROUPS * V


@triton.jit
def load_angles(cos_ptr, sin_ptr, tokens, features, inside, length, batch, E: tl.constexpr):
    """The c and s of every pair, from cos = [c, c] and sin = [-s, s] of `batch` sequences, which recur."""
    at = (tokens // length % batch * length + tokens % length).to(tl.int64)[:, None] * E + features
    return tl.load(cos_ptr + at, mask=inside, other=0.0), tl.load(sin_ptr + E // 2 + at, mask=inside, other=0.0)


@triton.jit
def load_weights(matrix_ptr, P: tl.constexpr, HAS_MATRIX: tl.constexpr):
    weights = ()
    if HAS_MATRIX:
        for i in tl.static_range(P * P):
            weights = weights + (tl.load(matrix_ptr + i).to(tl.float32),)
    return weights


@triton.jit
def load_halves(ptr, at, plane, inside, P: tl.constexpr, HALF: tl.constexpr):
    """Of every slice the first half's features, and the second's."""
    first, second = (), ()
    for k in tl.static_range(P):
        first = first + (tl.load(ptr + k * plane + at, mask=inside, other=0.0),)
        second = second + (tl.load(ptr + k * plane + HALF + at, mask=inside, other=0.0),)
    return first, second


@triton.jit
def mix_row(weights, tube, row, P: tl.constexpr, TRANSPOSED: tl.constexpr, HAS_MATRIX: tl.constexpr):
    """sum_k W[row, k] x_k, or W[k, row]."""
    if not HAS_MATRIX:
        return tube[row].to(tl.float32)
    else:
        stride_row: tl.constexpr = 1 if TRANSPOSED else P
        stride_k: tl.constexpr = P if TRANSPOSED else 1
        mixed = weights[row * stride_row] * tube[0].to(tl.float32)
        for k in tl.static_range(1, P):
            mixed += weights[row * stride_row + k * stride_k] * tube[k].to(tl.float32)
        return mixed


@triton.jit
def turn(first, second, cos, sin):
    return first * cos - second * sin, second * cos + first * sin


@triton.jit
def add_row_products(sums, a, b, P: tl.constexpr):
    """sums[j, k] += <a_j, b_k>, row by row: V products are one number of a thread."""
    added = ()
    for i in tl.static_range(P * P):
        added = added + (sums[i] + tl.sum(a[i // P] * b[i % P].to(tl.float32), axis=1),)
    return added


@triton.jit
def tube_rotary_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    qkv_ptr,
    matrix_ptr,
    cos_ptr,
    sin_ptr,
    num_rows,
    length,
    batch,
    P: tl.constexpr,
    H: tl.constexpr,
    E: tl.constexpr,
    HAS_MATRIX: tl.constexpr,
    ROWS: tl.constexpr,
    V: tl.constexpr,
):
    """Forward: q = R W x for the queries x, k likewise, v = W x."""
    HALF: tl.constexpr = E // 2
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = (rows < num_rows)[:, None]
    tokens, heads, starts = places_of(rows, H, E, V)
    features = starts[:, None] + tl.arange(0, V)[None, :]
    plane = tl.cast(num_rows, tl.int64) * (2 * V)
    in_head = (heads * E)[:, None] + features
    at = (tokens.to(tl.int64) * (H * E))[:, None] + in_head
    x_at = (tokens.to(tl.int64) * (3 * H * E))[:, None] + in_head
    weights = load_weights(matrix_ptr, P, HAS_MATRIX)
    cos, sin = load_angles(cos_ptr, sin_ptr, tokens, features, inside, length, batch, E)
    for part in tl.static_range(3):
        y_ptr = q_ptr if part == 0 else k_ptr if part == 1 else v_ptr
        x1, x2 = load_halves(qkv_ptr + part * H * E, x_at, 3 * plane, inside, P, HALF)
        for j in tl.static_range(P):
            y1 = mix_row(weights, x1, j, P, False, HAS_MATRIX)
            y2 = mix_row(weights, x2, j, P, False, HAS_MATRIX)
            if part < 2:
                y1, y2 = turn(y1, y2, cos, sin)
            tl.store(y_ptr + j * plane + at, y1, mask=inside)
            tl.store(y_ptr + j * plane + HALF + at, y2, mask=inside)


@triton.jit
def tube_rotary_backward_kernel(
    dqkv_ptr,
    sums_ptr,
    dq_ptr,
    dk_ptr,
    dv_ptr,
    qkv_ptr,
    matrix_ptr,
    cos_ptr,
    sin_ptr,
    num_rows,
    length,
    batch,
    stride_slice,
    stride_sequence,
    stride_token,
    stride_head,
    blocks,
    P: tl.constexpr,
    H: tl.constexpr,
    E: tl.constexpr,
    HAS_MATRIX: tl.constexpr,
    LEARNED: tl.constexpr,
    ROWS: tl.constexpr,
    V: tl.constexpr,
):
    """Backward, with g = R^T dq for the queries x, dk likewise, g = dv: dx = W^T g, and over `blocks` tiles
    dW = g x^T. The strides are those of dq, dk and dv, (P, B, T, H, E).
    """
    HALF: tl.constexpr = E // 2
    start = tl.program_id(0).to(tl.int64) * blocks * ROWS
    x_plane = tl.cast(num_rows, tl.int64) * (6 * V)
    y_plane = tl.cast(stride_slice, tl.int64)
    weights = load_weights(matrix_ptr, P, HAS_MATRIX)
    sums = ()
    if LEARNED:
        for _ in tl.static_range(P * P):
            sums = sums + (tl.zeros((ROWS,), tl.float32),)
    for block in range(0, blocks):
        rows = start + block * ROWS + tl.arange(0, ROWS)
        inside = (rows < num_rows)[:, None]
        tokens, heads, starts = places_of(rows, H, E, V)
        features = starts[:, None] + tl.arange(0, V)[None, :]
        x_at = (tokens.to(tl.int64) * (3 * H * E) + heads * E)[:, None] + features
        sequences, times = (tokens // length).to(tl.int64), (tokens % length).to(tl.int64)
        y_at = (sequences * stride_sequence + times * stride_token + heads * stride_head)[:, None] + features
        cos, sin = load_angles(cos_ptr, sin_ptr, tokens, features, inside, length, batch, E)
        for part in tl.static_range(3):
            dy_ptr = dq_ptr if part == 0 else dk_ptr if part == 1 else dv_ptr
            dy1, dy2 = load_halves(dy_ptr, y_at, y_plane, inside, P, HALF)
            g1, g2 = (), ()
            for j in tl.static_range(P):
                first, second = dy1[j].to(tl.float32), dy2[j].to(tl.float32)
                if part < 2:
                    first, second = turn(first, second, cos, -sin)
                g1, g2 = g1 + (first,), g2 + (second,)
            if LEARNED:
                x1, x2 = load_halves(qkv_ptr + part * H * E, x_at, x_plane, inside, P, HALF)
                sums = add_row_products(sums, g1, x1, P)
                sums = add_row_products(sums, g2, x2, P)
            for k in tl.static_range(P):
                at = dqkv_ptr + part * H * E + k * x_plane + x_at
                tl.store(at, mix_row(weights, g1, k, P, True, HAS_MATRIX), mask=inside)
                tl.store(at + HALF, mix_row(weights, g2, k, P, True, HAS_MATRIX), mask=inside)
    if LEARNED:
        for i in tl.static_range(P * P):
            tl.store(sums_ptr + tl.program_id(0) * P * P + i, tl.sum(sums[i], axis=0))


def _options(p: int, size: int, *, has_matrix: bool, sums: bool = False) -> dict[str, Any]:
    """The tile of 128 threads: a thread holds 64 numbers of all slices, in runs of 16 bytes where E and P leave them;
    one row of them where it also has the P x P sums of every row, and half of it where those are many.
    """
    held = 32 // next_power_of_2(p) // (2 if sums and p > 4 else 1)
    half = size // 2
    run = min(8, held, half & -half)  # a power of two that divides E / 2
    rows = 128 if sums else 128 * (held // run)
    return {"P": p, "E": size, "HAS_MATRIX": has_matrix, "ROWS": rows, "V": run, "num_warps": 4}


@torch.library.custom_op(
    "lformer::tube_rotary",
    mutates_args=(),
    schema="(Tensor qkv, Tensor? matrix, Tensor cos, Tensor sin) -> (Tensor, Tensor, Tensor)",
)
@on_device_of_tensors
def tube_rotary_op(qkv: Tensor, matrix: Tensor | None, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """From qkv (P, B, T, 3, H, E) to q, k, v (P, B, T, H, E); without a matrix P is 1, all contiguous.

    cos and sin are float32, (B', T, E), where B' divides B: those of sequence b are at b modulo B'.
    """
    q, k, v = _outputs(qkv, matrix, cos, sin)
    p, _, length, _, heads, size = qkv.shape
    options = _options(p, size, has_matrix=matrix is not None)
    num_rows = q[0].numel() // (2 * options["V"])
    if num_rows:
        tube_rotary_kernel[(triton.cdiv(num_rows, options["ROWS"]),)](
            q,
            k,
            v,
            qkv,
            cos if matrix is None else matrix.contiguous(),
            cos,
            sin,
            num_rows,
            length,
            len(cos),
            H=heads,
            **options,
        )
    return q, k, v


def _outputs(qkv: Tensor, matrix: Tensor | None, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    shape = (*qkv.shape[:3], *qkv.shape[4:])
    return qkv.new_empty(shape), qkv.new_empty(shape), qkv.new_empty(shape)


tube_rotary_op.register_fake(_outputs)


@torch.library.custom_op(
    "lformer::tube_rotary_backward",
    mutates_args=(),
    schema="(Tensor dq, Tensor dk, Tensor dv, Tensor? qkv, Tensor? matrix, Tensor cos, Tensor sin) -> (Tensor, Tensor)",
)
@on_device_of_tensors
def tube_rotary_backward_op(
    dq: Tensor, dk: Tensor, dv: Tensor, qkv: Tensor | None, matrix: Tensor | None, cos: Tensor, sin: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradient of qkv, contiguous; and that of the matrix in float32, where qkv is given to compute it."""
    dqkv, found = _gradients(dq, dk, dv, qkv, matrix, cos, sin)
    p, _, length, heads, size = dq.shape
    learned = qkv is not None
    options = _options(p, size, has_matrix=matrix is not None, sums=learned)
    num_rows = dq[0].numel() // (2 * options["V"])
    if num_rows == 0:
        return dqkv, found.zero_()
    if not (dq.stride() == dk.stride() == dv.stride() and dq.stride(-1) == 1):
        dq, dk, dv = dq.contiguous(), dk.contiguous(), dv.contiguous()
    count = triton.cdiv(num_rows, options["ROWS"])
    blocks = triton.cdiv(count, BACKWARD_PROGRAMS) if learned else 1
    programs = triton.cdiv(count, blocks)
    sums = found.new_empty((programs, p, p)) if learned else found
    tube_rotary_backward_kernel[(programs,)](
        dqkv,
        sums,
        dq,
        dk,
        dv,
        placeholder(qkv, dq),
        cos if matrix is None else matrix.contiguous(),
        cos,
        sin,
        num_rows,
        length,
        len(cos),
        *dq.stride()[:4],
        blocks,
        H=heads,
        LEARNED=learned,
        **options,
    )
    return dqkv, add_parts(sums, found) if learned else found


@tube_rotary_backward_op.register_fake
def _gradients(
    dq: Tensor, dk: Tensor, dv: Tensor, qkv: Tensor | None, matrix: Tensor | None, cos: Tensor, sin: Tensor
) -> tuple[Tensor, Tensor]:
    dqkv = dq.new_empty((*dq.shape[:3], 3, *dq.shape[3:]))
    return dqkv, dq.new_empty((0,) if qkv is None else (len(dq), len(dq)), dtype=torch.float32)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    qkv, matrix, cos, sin = inputs
    ctx.save_for_backward(qkv if ctx.needs_input_grad[1] else None, matrix, cos, sin)


def _backward(ctx: Any, dq: Tensor, dk: Tensor, dv: Tensor) -> tuple[Tensor | None, ...]:
    qkv, matrix, cos, sin = ctx.saved_tensors
    dqkv, found = torch.ops.lformer.tube_rotary_backward(dq, dk, dv, qkv, matrix, cos, sin)
    return dqkv, None if qkv is None else found.to(matrix.dtype), None, None


tube_rotary_op.register_autograd(_backward, setup_context=_remember)
