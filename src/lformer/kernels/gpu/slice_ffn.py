"""The feed-forward network of every slice in Triton, with the hidden activations never leaving the chip.

    y_k = sigma(x_k W1_k^T + b1_k) W2_k^T             for every slice k; the outer bias belongs to tube_norm

A program keeps some rows (tokens) of one slice and walks over the hidden features in blocks; the backward pass
computes them again. A row's M features are a tuple of tiles of BLOCK_M: M = 192 is three tiles of 64 and no padding.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from lformer.kernels.gpu.activation import activate, activation_slope
from lformer.kernels.gpu.launch import add_parts, dot_precision, split_rows, split_width


@triton.jit
def load_rows(ptr, rows, in_rows, width, TILES: tl.constexpr, BLOCK_M: tl.constexpr):
    """Some rows as a tuple of TILES tiles (rows, BLOCK_M)."""
    tiles = ()
    for c in tl.static_range(TILES):
        columns = c * BLOCK_M + tl.arange(0, BLOCK_M)
        at = rows[:, None] * width + columns[None, :]
        tiles = tiles + (tl.load(ptr + at, mask=in_rows[:, None] & (columns < width)[None, :], other=0.0),)
    return tiles


@triton.jit
def zero_tiles(ROWS: tl.constexpr, COLUMNS: tl.constexpr, TILES: tl.constexpr):
    tiles = ()
    for _ in tl.static_range(TILES):
        tiles = tiles + (tl.zeros((ROWS, COLUMNS), tl.float32),)
    return tiles


@triton.jit
def load_weight(ptr, first, second, first_size, second_size, first_stride, second_stride):
    at = first[:, None] * first_stride + second[None, :] * second_stride
    return tl.load(ptr + at, mask=(first < first_size)[:, None] & (second < second_size)[None, :], other=0.0)


@triton.jit
def slice_ffn_forward_kernel(
    y_ptr,
    x_ptr,
    w1_ptr,
    b1_ptr,
    w2_ptr,
    num_rows,
    width,
    hidden,
    BLOCK_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_F: tl.constexpr,
    TILES: tl.constexpr,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Computes y = sigma(x W1^T + b1) W2^T for some rows of one slice."""
    k = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    in_rows = rows < num_rows
    plane = num_rows.to(tl.int64) * width
    w1_ptr += k * hidden * width
    w2_ptr += k * hidden * width
    b1_ptr += k * hidden
    x = load_rows(x_ptr + k * plane, rows, in_rows, width, TILES, BLOCK_M)
    y = zero_tiles(BLOCK_N, BLOCK_M, TILES)
    for start in range(0, hidden, BLOCK_F):
        f = start + tl.arange(0, BLOCK_F)
        z = tl.zeros((BLOCK_N, BLOCK_F), tl.float32)
        for c in tl.static_range(TILES):
            m = c * BLOCK_M + tl.arange(0, BLOCK_M)
            w1 = load_weight(w1_ptr, m, f, width, hidden, 1, width)
            z = tl.dot(x[c], w1, z, input_precision=PRECISION)
        z += tl.load(b1_ptr + f, mask=f < hidden, other=0.0).to(tl.float32)[None, :]
        h = activate(z, ACTIVATION).to(x[0].dtype)
        sums = ()
        for c in tl.static_range(TILES):
            m = c * BLOCK_M + tl.arange(0, BLOCK_M)
            w2 = load_weight(w2_ptr, f, m, hidden, width, 1, hidden)
            sums = sums + (tl.dot(h, w2, y[c], input_precision=PRECISION),)
        y = sums
    for c in tl.static_range(TILES):
        m = c * BLOCK_M + tl.arange(0, BLOCK_M)
        at = rows[:, None] * width + m[None, :]
        tl.store(y_ptr + k * plane + at, y[c], mask=in_rows[:, None] & (m < width)[None, :])


@triton.jit
def slice_ffn_dx_kernel(
    dx_ptr,
    x_ptr,
    g_ptr,
    w1_ptr,
    b1_ptr,
    w2_ptr,
    num_rows,
    width,
    hidden,
    BLOCK_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_F: tl.constexpr,
    TILES: tl.constexpr,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Computes dx = dz W1, dz = (g W2) sigma'(z), with z = x W1^T + b1 computed again."""
    k = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    in_rows = rows < num_rows
    plane = num_rows.to(tl.int64) * width
    w1_ptr += k * hidden * width
    w2_ptr += k * hidden * width
    b1_ptr += k * hidden
    x = load_rows(x_ptr + k * plane, rows, in_rows, width, TILES, BLOCK_M)
    g = load_rows(g_ptr + k * plane, rows, in_rows, width, TILES, BLOCK_M)
    dx = zero_tiles(BLOCK_N, BLOCK_M, TILES)
    for start in range(0, hidden, BLOCK_F):
        f = start + tl.arange(0, BLOCK_F)
        z = tl.zeros((BLOCK_N, BLOCK_F), tl.float32)
        dh = tl.zeros((BLOCK_N, BLOCK_F), tl.float32)
        for c in tl.static_range(TILES):
            m = c * BLOCK_M + tl.arange(0, BLOCK_M)
            z = tl.dot(x[c], load_weight(w1_ptr, m, f, width, hidden, 1, width), z, input_precision=PRECISION)
            dh = tl.dot(g[c], load_weight(w2_ptr, m, f, width, hidden, hidden, 1), dh, input_precision=PRECISION)
        z += tl.load(b1_ptr + f, mask=f < hidden, other=0.0).to(tl.float32)[None, :]
        dz = (dh * activation_slope(z, ACTIVATION)).to(x[0].dtype)
        totals = ()
        for c in tl.static_range(TILES):
            m = c * BLOCK_M + tl.arange(0, BLOCK_M)
            w1 = load_weight(w1_ptr, f, m, hidden, width, width, 1)
            totals = totals + (tl.dot(dz, w1, dx[c], input_precision=PRECISION),)
        dx = totals
    for c in tl.static_range(TILES):
        m = c * BLOCK_M + tl.arange(0, BLOCK_M)
        at = rows[:, None] * width + m[None, :]
        tl.store(dx_ptr + k * plane + at, dx[c], mask=in_rows[:, None] & (m < width)[None, :])


@triton.jit
def slice_ffn_dw_kernel(
    parts_ptr,
    x_ptr,
    g_ptr,
    w1_ptr,
    b1_ptr,
    w2_ptr,
    num_rows,
    width,
    hidden,
    rows_per_program,
    BLOCK_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_F: tl.constexpr,
    TILES: tl.constexpr,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """A program's part of dW1 = dz^T x, dW2^T = h^T g and db1 = sum dz, for one block of hidden features of a slice."""
    k = tl.program_id(1).to(tl.int64)
    part = tl.program_id(2).to(tl.int64)
    f = tl.program_id(0) * BLOCK_F + tl.arange(0, BLOCK_F)
    plane = num_rows.to(tl.int64) * width
    w1_ptr += k * hidden * width
    w2_ptr += k * hidden * width
    b1 = tl.load(b1_ptr + k * hidden + f, mask=f < hidden, other=0.0).to(tl.float32)
    w1, w2 = (), ()
    for c in tl.static_range(TILES):
        m = c * BLOCK_M + tl.arange(0, BLOCK_M)
        w1 = w1 + (load_weight(w1_ptr, m, f, width, hidden, 1, width),)
        w2 = w2 + (load_weight(w2_ptr, m, f, width, hidden, hidden, 1),)
    dw1 = zero_tiles(BLOCK_F, BLOCK_M, TILES)
    dw2 = zero_tiles(BLOCK_F, BLOCK_M, TILES)
    db1 = tl.zeros((BLOCK_F,), tl.float32)
    for start in range(0, rows_per_program, BLOCK_N):
        rows = part * rows_per_program + start + tl.arange(0, BLOCK_N)
        in_rows = rows < num_rows
        x = load_rows(x_ptr + k * plane, rows, in_rows, width, TILES, BLOCK_M)
        g = load_rows(g_ptr + k * plane, rows, in_rows, width, TILES, BLOCK_M)
        z = tl.zeros((BLOCK_N, BLOCK_F), tl.float32)
        dh = tl.zeros((BLOCK_N, BLOCK_F), tl.float32)
        for c in tl.static_range(TILES):
            z = tl.dot(x[c], w1[c], z, input_precision=PRECISION)
            dh = tl.dot(g[c], w2[c], dh, input_precision=PRECISION)
        z += b1[None, :]
        h = tl.trans(activate(z, ACTIVATION).to(x[0].dtype))
        dz32 = dh * activation_slope(z, ACTIVATION)
        db1 += tl.sum(dz32, axis=0)
        dz = tl.trans(dz32.to(x[0].dtype))
        new_dw1, new_dw2 = (), ()
        for c in tl.static_range(TILES):
            new_dw1 = new_dw1 + (tl.dot(dz, x[c], dw1[c], input_precision=PRECISION),)
            new_dw2 = new_dw2 + (tl.dot(h, g[c], dw2[c], input_precision=PRECISION),)
        dw1, dw2 = new_dw1, new_dw2
    size = tl.num_programs(1).to(tl.int64) * hidden * width
    parts_ptr += part * (2 * size + tl.num_programs(1) * hidden)  # dW1, dW2 and db1 of a part, one after the other
    for c in tl.static_range(TILES):
        m = c * BLOCK_M + tl.arange(0, BLOCK_M)
        mask = (f < hidden)[:, None] & (m < width)[None, :]
        first = k * hidden * width
        tl.store(parts_ptr + first + f[:, None] * width + m[None, :], dw1[c], mask=mask)
        tl.store(parts_ptr + size + first + m[None, :] * hidden + f[:, None], dw2[c], mask=mask)
    tl.store(parts_ptr + 2 * size + k * hidden + f, db1, mask=f < hidden)


Tiles = dict[str, int]


def slice_ffn_forward(
    x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, activation: str, *, tiles: Tiles | None = None
) -> Tensor:
    """From x (P, N, M), w1 (P, F, M), b1 (P, F), w2 (P, M, F), all contiguous, to y (P, N, M)."""
    p, n, m = x.shape
    y = torch.empty_like(x)
    if n == 0:
        return y
    tiles = tiles or _row_tiles(x.dtype, m)
    slice_ffn_forward_kernel[(triton.cdiv(n, tiles["BLOCK_N"]), p)](
        y, x, w1, b1, w2, n, m, w1.shape[1], ACTIVATION=activation, PRECISION=dot_precision(x.dtype), **tiles
    )
    return y


def slice_ffn_input_gradient(
    g: Tensor, x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, activation: str, *, tiles: Tiles | None = None
) -> Tensor:
    """The gradient of x, given that of y."""
    p, n, m = x.shape
    dx = torch.empty_like(x)
    if n == 0:
        return dx
    tiles = tiles or _row_tiles(x.dtype, m, backward=True)
    slice_ffn_dx_kernel[(triton.cdiv(n, tiles["BLOCK_N"]), p)](
        dx, x, g, w1, b1, w2, n, m, w1.shape[1], ACTIVATION=activation, PRECISION=dot_precision(x.dtype), **tiles
    )
    return dx


def slice_ffn_weight_gradients(
    g: Tensor, x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, activation: str, *, tiles: Tiles | None = None
) -> Tensor:
    """The gradients of w1, w2 and b1 one after the other in one flat tensor."""
    p, n, m = x.shape
    hidden = w1.shape[1]
    tiles = tiles or _weight_tiles(x.dtype, m)
    blocks = triton.cdiv(hidden, tiles["BLOCK_F"])
    parts, rows = split_rows(n, blocks * p, tiles["BLOCK_N"])
    size = p * hidden * m
    sums = x.new_empty((parts, 2 * size + p * hidden), dtype=torch.float32)
    slice_ffn_dw_kernel[(blocks, p, parts)](
        sums,
        x,
        g,
        w1,
        b1,
        w2,
        n,
        m,
        hidden,
        rows,
        ACTIVATION=activation,
        PRECISION=dot_precision(x.dtype),
        **tiles,
    )
    return add_parts(sums, w1.new_empty(sums.shape[1]))


def _split(width: int, largest: int) -> Tiles:
    block, count = split_width(width, largest)
    return {"BLOCK_M": block, "TILES": count}


def _row_tiles(dtype: torch.dtype, width: int, backward: bool = False) -> Tiles:
    if dtype == torch.float32:
        return {**_split(width, 32), "BLOCK_N": 32, "BLOCK_F": 32, "num_warps": 4, "num_stages": 1}
    if width <= 64:
        rows = 64 if backward else 128
        return {**_split(width, 64), "BLOCK_N": rows, "BLOCK_F": 64, "num_warps": 4, "num_stages": 2 if backward else 3}
    # The fused backward pass is not used at these widths (slice_ffn_op.py), but stays correct.
    features = 32 if backward else 64
    return {
        **_split(width, 64),
        "BLOCK_N": 128,
        "BLOCK_F": features,
        "num_warps": 8,
        "num_stages": 2 if backward or width > 224 else 3,  # what fits in shared memory
    }


def _weight_tiles(dtype: torch.dtype, width: int) -> Tiles:
    if dtype == torch.float32:
        return {**_split(width, 32), "BLOCK_N": 32, "BLOCK_F": 32, "num_warps": 4, "num_stages": 1}
    rows = 64 if width <= 64 else 32
    return {**_split(width, 64), "BLOCK_N": rows, "BLOCK_F": 64, "num_warps": 4, "num_stages": 3}
