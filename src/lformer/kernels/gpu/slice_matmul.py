"""The two products of slice-wise layers in Triton, on which slice_linear and slice_ffn are built.

    slice_matmul:   C_k = epilogue(prologue(A_k) B_k + b_k)          for every slice k; N rows
    slice_outer:    D_k = G_k^T prologue(A_k), and sums of G_k's rows   gradients of weights and biases; over N rows

The rows of A and C may be *chunked*: feature f of slice k stands in chunk k of slice f // C at f % C, C = F / P. That
is `interleave_slices` without the copy.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from lformer.kernels.gpu.activation import activate, activation_slope
from lformer.kernels.gpu.launch import add_parts, dot_precision, next_power_of_2, placeholder, split_rows


@triton.jit
def row_offsets(features, slice_index, num_rows, width, CHUNK: tl.constexpr, BLOCK: tl.constexpr):
    """Where features of a row stand, beside row * width; `features` starts at a multiple of BLOCK."""
    if CHUNK == 0:
        return slice_index * num_rows * width + features
    if CHUNK % BLOCK == 0:  # a block lies in one chunk: keep its addresses visibly contiguous
        first = tl.min(features, axis=0)
        return (first // CHUNK) * num_rows * width + slice_index * CHUNK + (features - (first // CHUNK) * CHUNK)
    return (features // CHUNK) * num_rows * width + slice_index * CHUNK + features % CHUNK


@triton.jit
def slice_matmul_kernel(
    c_ptr,
    a_ptr,
    b_ptr,
    bias_ptr,
    aux_ptr,
    num_rows,
    inner,
    outer,
    b_stride_slice,
    b_stride_inner,
    b_stride_outer,
    BLOCK_N: tl.constexpr,
    BLOCK_O: tl.constexpr,
    BLOCK_K: tl.constexpr,
    A_CHUNK: tl.constexpr,
    C_CHUNK: tl.constexpr,
    PROLOGUE: tl.constexpr,
    EPILOGUE: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_AUX: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """C = sigma(prologue(A) B + b), or where there is an aux tensor Z of C's layout, C = (A B) sigma'(Z)."""
    column_blocks = tl.cdiv(outer, BLOCK_O)
    k = tl.program_id(1).to(tl.int64)
    rows = (tl.program_id(0) // column_blocks).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    columns = (tl.program_id(0) % column_blocks) * BLOCK_O + tl.arange(0, BLOCK_O)
    in_rows = rows < num_rows
    in_columns = columns < outer
    total = num_rows.to(tl.int64)
    accumulator = tl.zeros((BLOCK_N, BLOCK_O), tl.float32)
    b_ptr += k * b_stride_slice
    for start in range(0, inner, BLOCK_K):
        features = start + tl.arange(0, BLOCK_K)
        in_features = features < inner
        at = rows[:, None] * inner + row_offsets(features, k, total, inner, A_CHUNK, BLOCK_K)[None, :]
        a = tl.load(a_ptr + at, mask=in_rows[:, None] & in_features[None, :], other=0.0)
        if PROLOGUE != "none":
            a = activate(a.to(tl.float32), PROLOGUE).to(a.dtype)
        b_at = features[:, None] * b_stride_inner + columns[None, :] * b_stride_outer
        b = tl.load(b_ptr + b_at, mask=in_features[:, None] & in_columns[None, :], other=0.0)
        accumulator = tl.dot(a, b, accumulator, input_precision=PRECISION)
    if HAS_BIAS:
        accumulator += tl.load(bias_ptr + k * outer + columns, mask=in_columns, other=0.0).to(tl.float32)[None, :]
    c_at = rows[:, None] * outer + row_offsets(columns, k, total, outer, C_CHUNK, BLOCK_O)[None, :]
    mask = in_rows[:, None] & in_columns[None, :]
    if HAS_AUX:
        z = tl.load(aux_ptr + c_at, mask=mask, other=0.0).to(tl.float32)
        accumulator = accumulator * activation_slope(z, EPILOGUE)
    else:
        accumulator = activate(accumulator, EPILOGUE)
    tl.store(c_ptr + c_at, accumulator, mask=mask)


@triton.jit
def column_sums_kernel(
    sums_ptr, g_ptr, num_rows, width, rows_per_program, BLOCK_N: tl.constexpr, BLOCK_G: tl.constexpr
):
    k = tl.program_id(1).to(tl.int64)
    part = tl.program_id(2).to(tl.int64)
    columns = tl.program_id(0) * BLOCK_G + tl.arange(0, BLOCK_G)
    g_ptr += k * num_rows * width
    sums = tl.zeros((BLOCK_N, BLOCK_G), tl.float32)
    for start in range(0, rows_per_program, BLOCK_N):
        rows = part * rows_per_program + start + tl.arange(0, BLOCK_N)
        mask = (rows < num_rows)[:, None] & (columns < width)[None, :]
        sums += tl.load(g_ptr + rows[:, None] * width + columns[None, :], mask=mask, other=0.0).to(tl.float32)
    at = (part * tl.num_programs(1) + k) * width + columns
    tl.store(sums_ptr + at, tl.sum(sums, axis=0), mask=columns < width)


@triton.jit
def slice_outer_kernel(
    d_ptr,
    g_ptr,
    a_ptr,
    num_rows,
    g_width,
    a_width,
    rows_per_program,
    BLOCK_N: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BLOCK_A: tl.constexpr,
    A_CHUNK: tl.constexpr,
    PROLOGUE: tl.constexpr,
    HAS_SUMS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """One part of D_k = G_k^T prologue(A_k), (g_width, a_width), over a program's rows; behind it the sums of G_k."""
    k = tl.program_id(1).to(tl.int64)
    part = tl.program_id(2).to(tl.int64)
    slices = tl.num_programs(1)
    a_blocks = tl.cdiv(a_width, BLOCK_A)
    g_columns = (tl.program_id(0) // a_blocks) * BLOCK_G + tl.arange(0, BLOCK_G)
    a_columns = (tl.program_id(0) % a_blocks) * BLOCK_A + tl.arange(0, BLOCK_A)
    in_g = g_columns < g_width
    in_a = a_columns < a_width
    total = num_rows.to(tl.int64)
    g_ptr += k * total * g_width
    a_offsets = row_offsets(a_columns, k, total, a_width, A_CHUNK, BLOCK_A)
    accumulator = tl.zeros((BLOCK_G, BLOCK_A), tl.float32)
    sums = tl.zeros((BLOCK_G,), tl.float32)
    for start in range(0, rows_per_program, BLOCK_N):
        rows = part * rows_per_program + start + tl.arange(0, BLOCK_N)
        in_rows = rows < num_rows
        g_at = rows[None, :] * g_width + g_columns[:, None]
        g = tl.load(g_ptr + g_at, mask=in_rows[None, :] & in_g[:, None], other=0.0)
        a_at = rows[:, None] * a_width + a_offsets[None, :]
        a = tl.load(a_ptr + a_at, mask=in_rows[:, None] & in_a[None, :], other=0.0)
        if PROLOGUE != "none":
            a = activate(a.to(tl.float32), PROLOGUE).to(a.dtype)
        accumulator = tl.dot(g, a, accumulator, input_precision=PRECISION)
        if HAS_SUMS:
            sums += tl.sum(g.to(tl.float32), axis=1)
    size = slices * g_width * a_width
    d_ptr += part * (size + (slices * g_width if HAS_SUMS else 0))
    at = k * g_width * a_width + g_columns[:, None] * a_width + a_columns[None, :]
    tl.store(d_ptr + at, accumulator, mask=in_g[:, None] & in_a[None, :])
    if HAS_SUMS:
        if tl.program_id(0) % a_blocks == 0:
            tl.store(d_ptr + size + k * g_width + g_columns, sums, mask=in_g)


def slice_matmul(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    *,
    prologue: str = "none",
    epilogue: str = "none",
    aux: Tensor | None = None,
    a_chunked: bool = False,
    c_chunked: bool = False,
    tiles: dict[str, int] | None = None,
) -> Tensor:
    """From a (P, N, K) and b (P, K, O), of any strides, to c (P, N, O)."""
    p, n, inner = a.shape
    outer = b.shape[-1]
    c = a.new_empty(p, n, outer)
    if n == 0:
        return c
    tiles = tiles or _matmul_tiles(a.dtype, inner // p if a_chunked else inner, outer)
    grid = (triton.cdiv(n, tiles["BLOCK_N"]) * triton.cdiv(outer, tiles["BLOCK_O"]), p)
    slice_matmul_kernel[grid](
        c,
        a,
        b,
        a if bias is None else bias.contiguous(),
        placeholder(aux, a),
        n,
        inner,
        outer,
        b.stride(0),
        b.stride(1),
        b.stride(2),
        A_CHUNK=inner // p if a_chunked else 0,
        C_CHUNK=outer // p if c_chunked else 0,
        PROLOGUE=prologue,
        EPILOGUE=epilogue,
        HAS_BIAS=bias is not None,
        HAS_AUX=aux is not None,
        PRECISION=dot_precision(a.dtype),
        **tiles,
    )
    return c


def slice_outer(
    g: Tensor,
    a: Tensor,
    *,
    prologue: str = "none",
    a_chunked: bool = False,
    sums: bool = False,
    tiles: dict[str, int] | None = None,
) -> tuple[Tensor, Tensor]:
    """From g (P, N, O) and a (P, N, K) to g^T a (P, O, K) and the sums of g over its rows (P, O), in float32."""
    size = len(g) * g.shape[-1] * a.shape[-1]
    options: dict[str, Any] = {"prologue": prologue, "a_chunked": a_chunked, "sums": sums, "tiles": tiles}
    flat = slice_outer_flat(g, a, torch.float32, **options)
    return flat[:size].view(len(g), g.shape[-1], a.shape[-1]), flat[size:].view(len(g), -1)


def slice_outer_flat(
    g: Tensor,
    a: Tensor,
    dtype: torch.dtype,
    *,
    prologue: str = "none",
    a_chunked: bool = False,
    sums: bool = False,
    tiles: dict[str, int] | None = None,
) -> Tensor:
    """Both results one after the other in a flat tensor of the given dtype.

    The rows are split over programs where the result alone has too few tiles to fill the GPU; their parts are added in
    a fixed order, so that the result is the same every time.
    """
    p, n, g_width = g.shape
    a_width = a.shape[-1]
    tiles = tiles or _outer_tiles(g.dtype, g_width, a_width // p if a_chunked else a_width)
    blocks = triton.cdiv(g_width, tiles["BLOCK_G"]) * triton.cdiv(a_width, tiles["BLOCK_A"])
    parts, rows = split_rows(n, blocks * p, tiles["BLOCK_N"])
    size = p * g_width * a_width
    both = g.new_empty((parts, size + (p * g_width if sums else 0)), dtype=torch.float32)  # so that one sum does
    slice_outer_kernel[(blocks, p, parts)](
        both,
        g,
        a,
        n,
        g_width,
        a_width,
        rows,
        A_CHUNK=a_width // p if a_chunked else 0,
        PROLOGUE=prologue,
        HAS_SUMS=sums,
        PRECISION=dot_precision(g.dtype),
        **tiles,
    )
    return add_parts(both, g.new_empty(both.shape[1], dtype=dtype))


def column_sums(g: Tensor, out: Tensor) -> Tensor:
    """The sums over rows, (P, N, O) -> P O numbers in `out`: the gradient of a bias."""
    p, n, width = g.shape
    block = min(256, next_power_of_2(width))
    blocks = triton.cdiv(width, block)
    rows = 4096 // block
    parts, per_program = split_rows(n, blocks * p, rows, waves=4)
    sums = g.new_empty((parts, p, width), dtype=torch.float32)
    column_sums_kernel[(blocks, p, parts)](sums, g, n, width, per_program, BLOCK_N=rows, BLOCK_G=block)
    return add_parts(sums, out)


def _matmul_tiles(dtype: torch.dtype, inner: int, outer: int) -> dict[str, int]:
    """Tiles that fit the shapes: narrow slices need no wide ones, and float32 without tensor cores no large ones."""
    if dtype == torch.float32:
        return {"BLOCK_N": 64, "BLOCK_O": _fit(outer, 64), "BLOCK_K": _fit(inner, 32), "num_warps": 4, "num_stages": 2}
    block_o = 32 if inner <= 32 else _fit(outer, 64 if inner < 128 else 128)
    return {"BLOCK_N": 128, "BLOCK_O": block_o, "BLOCK_K": _fit(inner, 32), "num_warps": 4, "num_stages": 3}


def _outer_tiles(dtype: torch.dtype, g_width: int, a_width: int) -> dict[str, int]:
    block_g, block_a = _fit(g_width, 64), _fit(a_width, 64)
    if dtype == torch.float32:
        return {"BLOCK_N": 32, "BLOCK_G": block_g, "BLOCK_A": block_a, "num_warps": 4, "num_stages": 2}
    return {"BLOCK_N": 128, "BLOCK_G": block_g, "BLOCK_A": block_a, "num_warps": 4, "num_stages": 3}


def _fit(size: int, largest: int) -> int:
    """A power of two of at least 16, which tensor cores need, and no more than needed."""
    return min(largest, max(16, next_power_of_2(size)))
