"""The gradient of a P x P matrix that mixes slices: all inner products of two tensors' slices, in one pass over memory.

Letters: P slices, `plane` numbers of a slice, M features. A tile is (ROWS, VECTOR) consecutive numbers of every slice,
a row of it for a thread: one wide load, whose products are added at once, so that a sum takes one register.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from lformer.kernels.gpu.launch import (
    MULTIPROCESSORS,
    add_parts,
    contiguous_or_none,
    on_device_of_tensors,
    placeholder,
)

PROGRAMS = 2 * MULTIPROCESSORS  # each leaves its own sums
WARPS = 8
UNROLLED = 8  # slices on either side whose products a thread holds, 64 sums: with more it has too few registers
TOGETHER = 16  # sums that one program of `add_parts` adds at a time


@triton.jit
def load_tube_at(ptr, offsets, plane, mask, P: tl.constexpr):
    tube = ()
    for k in tl.static_range(P):
        tube = tube + (tl.load(ptr + k * plane + offsets, mask=mask, other=0.0),)
    return tube


@triton.jit
def load_slices(ptr, first, plane, offsets, mask, P: tl.constexpr, COUNT: tl.constexpr):
    """COUNT slices from `first` on; the last of all P stands in for those beyond it."""
    slices = ()
    for k in tl.static_range(COUNT):
        slices = slices + (tl.load(ptr + tl.minimum(first + k, P - 1) * plane + offsets, mask=mask, other=0.0),)
    return slices


@triton.jit
def zero_sums(ROWS: tl.constexpr, COUNT: tl.constexpr):
    sums = ()
    for _ in tl.static_range(COUNT):
        sums = sums + (tl.zeros((ROWS,), tl.float32),)
    return sums


@triton.jit
def add_products(sums, first, a, b, P: tl.constexpr, COUNT: tl.constexpr):
    """Of COUNT sums those from `first` on, each with <a_j, b_k> of every row more; the others as they are."""
    added = ()
    for i in tl.static_range(COUNT):
        if i >= first and i < first + P * P:
            products = a[(i - first) // P].to(tl.float32) * b[(i - first) % P].to(tl.float32)
            added = added + (sums[i] + tl.sum(products, axis=1),)
        else:
            added = added + (sums[i],)
    return added


@triton.jit
def row_starts(rows, columns, WHOLE: tl.constexpr, VECTOR: tl.constexpr):
    """What has to be divided by a width to find a number's token: the start of a row of the tile, where no such row
    lies in two tokens (WHOLE), else every number.
    """
    if WHOLE:
        return (rows * VECTOR)[:, None]
    else:  # or Triton would see both
        return (rows * VECTOR)[:, None] + columns[None, :]


@triton.jit
def slice_products_kernel(
    parts_ptr,
    a_ptr,
    b_ptr,
    bias_ptr,
    mean_ptr,
    rstd_ptr,
    gamma_ptr,
    beta_ptr,
    plane,
    width,
    gamma_stride,
    blocks,
    P: tl.constexpr,
    BLOCK_P: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_NORM: tl.constexpr,
    WHOLE: tl.constexpr,
    ROWS: tl.constexpr,
    VECTOR: tl.constexpr,
):
    """C[j, k] = <a_j, f(b_k)> of `blocks` tiles, with f(b) = b, b + bias or (b - mean) / std gamma + beta.

    A program takes BLOCK_P slices on either side.
    """
    pieces: tl.constexpr = (P + BLOCK_P - 1) // BLOCK_P
    first_j = tl.program_id(0) // pieces * BLOCK_P
    first_k = tl.program_id(0) % pieces * BLOCK_P
    size: tl.constexpr = ROWS * VECTOR
    start = tl.program_id(1).to(tl.int64) * blocks * size
    plane = tl.cast(plane, tl.int64)
    token = start // width
    num_tokens = plane // width
    feature = (start - token * width).to(tl.int32)  # what follows fits in 32 bits
    rows = tl.arange(0, ROWS)
    columns = tl.arange(0, VECTOR)
    sums = zero_sums(ROWS, BLOCK_P * BLOCK_P)
    for block in range(0, blocks):
        offsets = block * size + (rows * VECTOR)[:, None] + columns[None, :]
        mask = offsets < plane - start
        a = load_slices(a_ptr + start, first_j, plane, offsets, mask, P, BLOCK_P)
        b = load_slices(b_ptr + start, first_k, plane, offsets, mask, P, BLOCK_P)
        f = b
        if HAS_BIAS or HAS_NORM:
            starts = block * size + row_starts(rows, columns, WHOLE, VECTOR)
            in_slice = starts < plane - start
            ahead = (feature + starts) // width  # tokens
            features = feature + starts - ahead * width
            if WHOLE:
                features = tl.multiple_of(features, (1, VECTOR)) + columns[None, :]
            f = ()
            for k in tl.static_range(BLOCK_P):
                number = tl.minimum(first_k + k, P - 1)
                value = b[k].to(tl.float32)
                if HAS_BIAS:
                    value += tl.load(bias_ptr + number * width + features, mask=mask, other=0.0).to(tl.float32)
                if HAS_NORM:
                    at = number * num_tokens + token + ahead
                    mean = tl.load(mean_ptr + at, mask=in_slice, other=0.0)
                    rstd = tl.load(rstd_ptr + at, mask=in_slice, other=0.0)
                    gamma = tl.load(gamma_ptr + number * gamma_stride + features, mask=mask, other=0.0)
                    beta = tl.load(beta_ptr + number * gamma_stride + features, mask=mask, other=0.0)
                    value = (value - mean) * rstd * gamma.to(tl.float32) + beta.to(tl.float32)
                f = f + (value,)
        sums = add_products(sums, 0, a, f, BLOCK_P, BLOCK_P * BLOCK_P)
    parts_ptr += tl.program_id(1).to(tl.int64) * P * P
    for i in tl.static_range(BLOCK_P * BLOCK_P):
        j, k = first_j + i // BLOCK_P, first_k + i % BLOCK_P
        tl.store(parts_ptr + j * P + k, tl.sum(sums[i], axis=0), mask=(j < P) & (k < P))


def split_tiles(count: int, programs: int) -> tuple[int, int]:
    """How so many tiles are split: tiles of a program, and programs. Many programs are a multiple of TOGETHER, for
    `add_small_parts`; those beyond the end leave zeros.
    """
    blocks = triton.cdiv(count, min(programs, count))
    programs = triton.cdiv(count, blocks)
    return blocks, programs if programs <= TOGETHER else triton.cdiv(programs, TOGETHER) * TOGETHER


def add_small_parts(parts: Tensor, out: Tensor) -> Tensor:
    """`add_parts` where an output is only a few numbers, in two steps: in one, hundreds of parts would wait in turn."""
    if len(parts) <= TOGETHER:
        return add_parts(parts, out)
    between = parts.new_empty(len(parts) // TOGETHER, *parts.shape[1:])
    return add_parts(add_parts(parts.view(TOGETHER, -1), between), out)


def _tiles(tube_length: int, element_size: int) -> dict[str, int]:
    """Loads of 16 bytes, or of four numbers where a thread holds more than 16 sums."""
    slices = triton.cdiv(tube_length, triton.cdiv(tube_length, UNROLLED))
    vector = min(16 // element_size, 8 if slices <= 4 else 4)
    return {"BLOCK_P": slices, "ROWS": 32 * WARPS, "VECTOR": vector, "num_warps": WARPS}


@torch.library.custom_op(
    "lformer::slice_products",
    mutates_args=(),
    schema="(Tensor a, Tensor b, Tensor? bias, Tensor? mean, Tensor? rstd, Tensor? gamma, Tensor? beta) -> Tensor",
)
@on_device_of_tensors
def slice_products_op(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None,
    mean: Tensor | None,
    rstd: Tensor | None,
    gamma: Tensor | None,
    beta: Tensor | None,
) -> Tensor:
    products = _products(a, b)
    p, width, plane = len(a), a.shape[-1], a[0].numel()
    if plane == 0:
        return products.zero_()
    a, b, bias, mean, rstd, gamma, beta = contiguous_or_none(a, b, bias, mean, rstd, gamma, beta)
    tiles = _tiles(p, max(a.element_size(), b.element_size()))
    blocks, programs = split_tiles(triton.cdiv(plane, tiles["ROWS"] * tiles["VECTOR"]), PROGRAMS)
    parts = products.new_empty(programs, p, p)
    slice_products_kernel[(triton.cdiv(p, tiles["BLOCK_P"]) ** 2, programs)](
        parts,
        a,
        b,
        placeholder(bias, a),
        placeholder(mean, a),
        placeholder(rstd, a),
        placeholder(gamma, a),
        placeholder(beta, a),
        plane,
        width,
        0 if gamma is None or len(gamma) == 1 else width,
        blocks,
        P=p,
        HAS_BIAS=bias is not None,
        HAS_NORM=mean is not None,
        WHOLE=width % tiles["VECTOR"] == 0,
        **tiles,
    )
    return add_small_parts(parts, products)


@slice_products_op.register_fake
def _products(a: Tensor, b: Tensor, *rest: Tensor | None) -> Tensor:
    return a.new_empty(len(a), len(b), dtype=torch.float32)


def slice_products(
    a: Tensor,
    b: Tensor,
    *,
    bias: Tensor | None = None,
    norm: tuple[Tensor, Tensor, Tensor, Tensor] | None = None,
) -> Tensor:
    """C[j, k] = <a_j, f(b_k)> in float32, for a and b (P, ..., M), not necessarily of one dtype; nobody differentiates
    it. f(b) is b, b + bias with bias (P, M), or with `norm` mean, 1 / std (P, ...), gamma and beta (P or 1, M).
    """
    assert bias is None or norm is None
    return torch.ops.lformer.slice_products(a, b, bias, *(norm or (None,) * 4))
