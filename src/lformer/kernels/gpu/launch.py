"""Small things that every launch of a kernel needs."""

import functools
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from lformer.kernels.backend import allows_tf32

MULTIPROCESSORS = 132  # of an H100 or H200; other GPUs have about as many


def on_device_of_tensors(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Around every operation: Triton launches on the current device, which need not be that of the tensors."""

    @functools.wraps(operation)
    def guarded(*arguments: Any) -> Any:
        with torch.cuda.device_of(next(t for t in arguments if isinstance(t, Tensor))):  # nothing on the CPU
            return operation(*arguments)

    return guarded


def next_power_of_2(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def placeholder(tensor: Tensor | None, stand_in: Tensor) -> Tensor:
    """A pointer for an argument that the kernel will not read."""
    return stand_in if tensor is None else tensor


def contiguous_or_none(*tensors: Tensor | None) -> list[Any]:
    return [None if tensor is None else tensor.contiguous() for tensor in tensors]


def dot_precision(dtype: torch.dtype) -> str:
    """How operands are multiplied, which Triton asks for those of float32."""
    return "tf32" if dtype == torch.float32 and allows_tf32() else "ieee"


def split_rows(num_rows: int, programs: int, block: int, waves: int = 2) -> tuple[int, int]:
    """How a sum over rows is split where `programs` alone are too few to fill the GPU: parts, and rows of a part."""
    parts = max(1, min(waves * MULTIPROCESSORS // programs, num_rows // (4 * block)))
    rows = -(-max(num_rows, 1) // (parts * block)) * block
    return -(-max(num_rows, 1) // rows), rows


def split_width(width: int, largest: int, most: int | None = None) -> tuple[int, int]:
    """Features in tiles whose size is a power of two, with as little padding as can be, and how many tiles there are:
    192 = 3 x 64, 96 = 3 x 32. Tiles are no smaller than 32, unless one of 16 is enough; there are at most `most`.
    """
    block = min(largest, max(16, next_power_of_2(width)))
    best = block
    while block > 32 and (most is None or -(-width // (block // 2)) <= most):
        block //= 2
        if -(-width // block) * block < -(-width // best) * best:
            best = block
    return best, -(-width // best)


@triton.jit
def add_parts_kernel(out_ptr, parts_ptr, num_parts, size, BLOCK_P: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK_P, BLOCK), tl.float32)
    for start in range(0, num_parts, BLOCK_P):
        rows = start + tl.arange(0, BLOCK_P)
        mask = (rows < num_parts)[:, None] & (columns < size)[None, :]
        total += tl.load(parts_ptr + rows[:, None] * size + columns[None, :], mask=mask, other=0.0)
    tl.store(out_ptr + columns, tl.sum(total, axis=0), mask=columns < size)


def add_parts(parts: Tensor, out: Tensor) -> Tensor:
    """The sum over the first axis of float32 parts, written to a tensor of any dtype: one launch, a fixed order."""
    count, size = len(parts), out.numel()
    block = 128 if size >= 128 * MULTIPROCESSORS else 32
    add_parts_kernel[(triton.cdiv(size, block),)](out, parts, count, size, BLOCK_P=16, BLOCK=block, num_warps=4)
    return out
