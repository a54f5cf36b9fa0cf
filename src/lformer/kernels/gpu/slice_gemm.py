"""Slice-wise products with Hopper's tensor-copy engine (TMA), and what else can be done in passing.

    C_k = sigma(A_k B_k + b_k),   or with a tensor Z of C's shape   C_k = (A_k B_k) sigma'(Z_k) and the sums of its rows

For 16-bit operands and results whose rows are multiples of 16 bytes; `slice_product` takes any. cuBLAS is about as fast
at a bare batched product, but has no bias of its own for every slice.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from lformer.kernels.gpu.activation import activate, activation_slope
from lformer.kernels.gpu.launch import MULTIPROCESSORS, placeholder
from lformer.kernels.gpu.slice_matmul import slice_matmul


@triton.jit
def slice_gemm_kernel(
    c,
    a,
    b,
    bias_ptr,
    aux_ptr,
    sums_ptr,
    slices,
    num_rows,
    inner,
    outer,
    aux_stride_slice,
    BLOCK_N: tl.constexpr,
    BLOCK_O: tl.constexpr,
    BLOCK_K: tl.constexpr,
    B_TRANSPOSED: tl.constexpr,
    ACTIVATION: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_AUX: tl.constexpr,
):
    """Programs walk over the tiles of all slices, so that the loads of one tile run beside the stores of the last."""
    column_blocks = tl.cdiv(outer, BLOCK_O)
    row_blocks = tl.cdiv(num_rows, BLOCK_N)
    for tile in tl.range(tl.program_id(0), slices * row_blocks * column_blocks, tl.num_programs(0), flatten=True):
        column = (tile % column_blocks) * BLOCK_O
        row = (tile // column_blocks % row_blocks) * BLOCK_N
        k = tile // column_blocks // row_blocks
        columns = column + tl.arange(0, BLOCK_O)
        if HAS_AUX:  # asked for here, so that it has come when the product is done
            rows = row + tl.arange(0, BLOCK_N)
            at = k.to(tl.int64) * aux_stride_slice + rows[:, None] * outer + columns[None, :]
            z = tl.load(aux_ptr + at, mask=(rows < num_rows)[:, None] & (columns < outer)[None, :], other=0.0)
        accumulator = tl.zeros((BLOCK_N, BLOCK_O), tl.float32)
        for start in range(0, inner, BLOCK_K):
            a_tile = a.load([k, row, start]).reshape(BLOCK_N, BLOCK_K)
            if B_TRANSPOSED:
                b_tile = b.load([k, column, start]).reshape(BLOCK_O, BLOCK_K).T
            else:
                b_tile = b.load([k, start, column]).reshape(BLOCK_K, BLOCK_O)
            accumulator = tl.dot(a_tile, b_tile, accumulator)
        if HAS_BIAS:
            bias = tl.load(bias_ptr + k * outer + columns, mask=columns < outer, other=0.0).to(tl.float32)
            accumulator += bias[None, :]
        if HAS_AUX:  # rows beyond the end are zeros in A, so that they add nothing to the sums
            accumulator = accumulator * activation_slope(z.to(tl.float32), ACTIVATION)
            at = (row // BLOCK_N * slices + k) * outer + columns
            tl.store(sums_ptr + at, tl.sum(accumulator, axis=0), mask=columns < outer)
        else:
            accumulator = activate(accumulator, ACTIVATION)
        c.store([k, row, column], accumulator.to(c.dtype).reshape(1, BLOCK_N, BLOCK_O))


def copy_engine_takes(*tensors: Tensor) -> bool:
    """Whether there is such an engine, and every row is 16-bit elements that start at a multiple of 16 bytes."""
    if not all(t.element_size() == 2 and t.stride(-1) == 1 and t.data_ptr() % 16 == 0 for t in tensors):
        return False
    if not all(stride % 8 == 0 for t in tensors for stride in t.stride()[:-1]):
        return False
    return not tensors[0].is_cuda or torch.cuda.get_device_capability(tensors[0].device)[0] >= 9


def slice_product(a: Tensor, w: Tensor, bias: Tensor, activation: str = "none") -> Tensor:
    """sigma(a w^T + bias) by the copy engine where it takes operands and result, else through pointers."""
    c = _result(a, w)
    if copy_engine_takes(a, w, c):
        return slice_gemm(a, w, bias, activation, out=c)
    return slice_matmul(a.contiguous(), w.mT, bias, epilogue=activation)


def slice_gemm(
    a: Tensor,
    w: Tensor,
    bias: Tensor,
    activation: str = "none",
    *,
    out: Tensor | None = None,
    tiles: dict[str, int] | None = None,
) -> Tensor:
    """sigma(a w^T + bias): a (P, N, K), w (P, O, K), bias (P, O) to (P, N, O)."""
    c = _result(a, w) if out is None else out
    tiles = dict(tiles or _tiles(a.shape[1], a.shape[2], w.shape[1]))
    _launch(c, a, w, None, bias.contiguous(), None, activation, True, tiles)
    return c


def _result(a: Tensor, w: Tensor) -> Tensor:
    return a.new_empty(*a.shape[:2], w.shape[1])


def slice_gemm_backward(
    g: Tensor,
    w: Tensor,
    z: Tensor,
    activation: str,
    *,
    in_place: bool = False,
    tiles: dict[str, int] | None = None,
) -> tuple[Tensor, Tensor]:
    """(g w) sigma'(z), with g (P, N, K), w (P, K, O), z (P, N, O), and parts of its sums over rows: (parts, P, O).

    With `in_place` it takes the place of z: a program has read its tile of z before it writes that tile.
    """
    p, n, _ = g.shape
    outer = w.shape[2]
    tiles = dict(tiles or SMALL_TILES)
    dz = z if in_place else g.new_empty(p, n, outer)
    sums = g.new_empty((triton.cdiv(n, tiles["BLOCK_N"]), p, outer), dtype=torch.float32)
    _launch(dz, g, w, z, None, sums, activation, False, tiles)
    return dz, sums


def _launch(
    c: Tensor,
    a: Tensor,
    b: Tensor,
    aux: Tensor | None,
    bias: Tensor | None,
    sums: Tensor | None,
    activation: str,
    transposed: bool,
    tiles: dict[str, int],
) -> None:
    p, n, inner = a.shape
    if n == 0:  # there is no descriptor of nothing
        return
    outer = c.shape[2]
    bn, bo, bk = tiles["BLOCK_N"], tiles["BLOCK_O"], tiles["BLOCK_K"]
    total = p * triton.cdiv(n, bn) * triton.cdiv(outer, bo)
    slice_gemm_kernel[(min(total, MULTIPROCESSORS * tiles.pop("programs")),)](
        TensorDescriptor.from_tensor(c, [1, bn, bo]),
        TensorDescriptor.from_tensor(a, [1, bn, bk]),
        TensorDescriptor.from_tensor(b, [1, bo, bk] if transposed else [1, bk, bo]),
        placeholder(bias, a),
        placeholder(aux, a),
        placeholder(sums, a),
        p,
        n,
        inner,
        outer,
        0 if aux is None else aux.stride(0),
        B_TRANSPOSED=transposed,
        ACTIVATION=activation,
        HAS_BIAS=bias is not None,
        HAS_AUX=aux is not None,
        **tiles,
    )


SMALL_TILES = {"BLOCK_N": 128, "BLOCK_O": 64, "BLOCK_K": 64, "num_warps": 4, "num_stages": 3, "programs": 2}


def _tiles(num_rows: int, inner: int, outer: int) -> dict[str, int]:
    """The fastest of those that benchmarks/tune_kernels.py tried on an H200, by the size of the product."""
    if inner >= 512:
        return {**SMALL_TILES, "BLOCK_O": 256, "num_warps": 8, "programs": 1}
    if inner > 64 and (outer >= 768 or num_rows >= 16384):
        return {**SMALL_TILES, "BLOCK_O": 128, "num_warps": 8, "num_stages": 4, "programs": 1}
    return SMALL_TILES
