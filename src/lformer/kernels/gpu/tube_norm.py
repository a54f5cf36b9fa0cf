"""tube_norm as an operation on the GPU: how its kernels are launched, and its gradients."""

from typing import Any

import torch
import triton
from torch import Tensor

from lformer.kernels.gpu.launch import (
    MULTIPROCESSORS,
    add_parts,
    contiguous_or_none,
    next_power_of_2,
    on_device_of_tensors,
    placeholder,
    split_width,
)
from lformer.kernels.gpu.slice_products import slice_products
from lformer.kernels.gpu.tube_norm_kernels import tube_norm_backward_kernel, tube_norm_forward_kernel
from lformer.kernels.gpu.tube_norm_long import long_tube_norm_backward_kernel, long_tube_norm_forward_kernel

BACKWARD_PROGRAMS = 2 * MULTIPROCESSORS  # each leaves one row of partial sums of the parameters' gradients
NARROW = 256  # features of a token up to which the backward pass is faster with fewer of them in a thread
UNROLLED = 8  # slices up to which the kernels that unroll them are taken
MOST_TILES, MOST_TERMS = (
    4,
    64,
)  # of a slice, and P^2 of it: the compiler takes seconds for so many, and minutes for more


def _forward_kernel(tube_length: int, width: int) -> tuple[Any, dict[str, int]]:
    """The kernel and its tiles."""
    if tube_length > UNROLLED:
        return long_tube_norm_forward_kernel, _long_tiles(width)
    return tube_norm_forward_kernel, _tiles(tube_length, width, 32)


def _backward_kernel(tube_length: int, width: int) -> tuple[Any, dict[str, int]]:
    if tube_length > UNROLLED:
        return long_tube_norm_backward_kernel, _long_tiles(width)
    return tube_norm_backward_kernel, _tiles(tube_length, width, 16 if tube_length * width <= NARROW else 32)


def _long_tiles(width: int) -> dict[str, int]:
    """A thread holds 16 numbers where they are not more than 4096 in all: with 32 it has too few registers."""
    block = max(16, next_power_of_2(width))
    tokens = max(1, 4096 // (16 * block))
    return {"BLOCK_P": 16, "BLOCK_N": tokens, "BLOCK_M": block, "num_warps": 8, "num_stages": 1}


def _tiles(tube_length: int, width: int, per_thread: int, warps: int = 4) -> dict[str, int]:
    """Tiles of so many tokens that a thread holds about `per_thread` numbers of all slices together."""
    most = max(1, min(MOST_TILES, MOST_TERMS // tube_length**2))
    block, count = split_width(width, next_power_of_2(width), most)
    numbers = next_power_of_2(tube_length * block * count)  # of a token
    return {
        "BLOCK_M": block,
        "TILES": count,
        "FULL": block * count == width,
        "BLOCK_N": max(1, 32 * warps * per_thread // numbers),
        "num_warps": warps,
    }


@torch.library.custom_op(
    "lformer::tube_norm",
    mutates_args=(),
    schema="(Tensor s, Tensor x, Tensor? bias, Tensor? inverse, Tensor gamma, Tensor beta, Tensor? matrix, "
    "Tensor? seed, float eps, float dropout, bool post, bool transformed, bool keep) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
@on_device_of_tensors
def tube_norm_op(
    s: Tensor,
    x: Tensor,
    bias: Tensor | None,
    inverse: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    matrix: Tensor | None,
    seed: Tensor | None,
    eps: float,
    dropout: float,
    post: bool,
    transformed: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """y, yh, r, mean and 1 / std; empty where they are not asked for. `keep` is for a backward pass."""
    y, yh, r, mean, rstd = _outputs(s, x, post, transformed, keep)
    p, n, m = len(s), s[0].numel() // s.shape[-1], s.shape[-1]
    if n == 0:
        return y, yh, r, mean, rstd
    bias, inverse, matrix = contiguous_or_none(bias, inverse, matrix)
    kernel, tiles = _forward_kernel(p, m)
    kernel[(triton.cdiv(n, tiles["BLOCK_N"]),)](
        y,
        yh,
        r,
        mean,
        rstd,
        s,
        x,
        placeholder(bias, s),
        placeholder(inverse, s),
        gamma.contiguous(),
        beta.contiguous(),
        placeholder(matrix, s),
        placeholder(seed, s),
        n,
        m,
        0 if len(gamma) == 1 else m,
        eps,
        dropout,
        P=p,
        HAS_BIAS=bias is not None,
        HAS_INVERSE=inverse is not None,
        HAS_MATRIX=matrix is not None,
        HAS_DROPOUT=dropout > 0,
        POST=post,
        WRITE_NORM=transformed,
        KEEP_SUM=keep and post,
        **tiles,
    )
    return y, yh, r, mean, rstd


@tube_norm_op.register_fake
def _outputs_of_fake(s: Tensor, x: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    post, transformed, keep = rest[-3:]
    return _outputs(s, x, post, transformed, keep)


def _outputs(s: Tensor, x: Tensor, post: bool, transformed: bool, keep: bool) -> tuple[Tensor, ...]:
    rows = s.shape[:-1]
    return (
        torch.empty_like(x),
        torch.empty_like(s) if transformed else s.new_empty(0),
        torch.empty_like(s) if keep and post else s.new_empty(0),
        s.new_empty(rows, dtype=torch.float32),
        s.new_empty(rows, dtype=torch.float32),
    )


@torch.library.custom_op(
    "lformer::tube_norm_backward",
    mutates_args=(),
    schema="(Tensor? dy, Tensor? dyh, Tensor r, Tensor mean, Tensor rstd, Tensor? inverse, Tensor gamma, "
    "Tensor? matrix, Tensor? seed, float dropout, bool post, bool dropped, ScalarType dtype) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
)
@on_device_of_tensors
def tube_norm_backward_op(
    dy: Tensor | None,
    dyh: Tensor | None,
    r: Tensor,
    mean: Tensor,
    rstd: Tensor,
    inverse: Tensor | None,
    gamma: Tensor,
    matrix: Tensor | None,
    seed: Tensor | None,
    dropout: float,
    post: bool,
    dropped: bool,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of s, x and of r after dropout (empty unless `dropped`), and of gamma, beta and bias: (3, P, M)."""
    p, n, m = len(r), r[0].numel() // r.shape[-1], r.shape[-1]
    residual_dtype = r.dtype if dy is None else dy.dtype
    ds, dx, g = torch.empty_like(r, dtype=dtype), torch.empty_like(r, dtype=residual_dtype), r.new_empty(0)
    if dropped:
        g = torch.empty_like(r, dtype=dtype)
    kernel, tiles = _backward_kernel(p, m)
    blocks = triton.cdiv(n, tiles["BLOCK_N"])
    programs = max(1, min(BACKWARD_PROGRAMS, blocks))
    per_program = triton.cdiv(blocks, programs)
    programs = triton.cdiv(blocks, per_program) if n else 1
    sums = r.new_empty((programs, 3, p, m), dtype=torch.float32)
    inverse, matrix, dy, dyh = contiguous_or_none(inverse, matrix, dy, dyh)
    kernel[(programs,)](
        ds,
        dx,
        g,
        sums,
        placeholder(dy, r),
        placeholder(dyh, r),
        r,
        mean,
        rstd,
        placeholder(inverse, r),
        gamma.contiguous(),
        placeholder(matrix, r),
        placeholder(seed, r),
        n,
        m,
        0 if len(gamma) == 1 else m,
        per_program,
        dropout,
        P=p,
        HAS_DY=dy is not None,
        HAS_DYH=dyh is not None,
        HAS_INVERSE=inverse is not None,
        HAS_MATRIX=matrix is not None,
        HAS_DROPOUT=dropout > 0,
        POST=post,
        WRITE_DROPPED=dropped,
        **tiles,
    )
    return ds, dx, g, add_parts(sums, gamma.new_empty(3, p, m))


@tube_norm_backward_op.register_fake
def _gradients_of_fake(dy: Tensor | None, dyh: Tensor | None, r: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    dropped, dtype = rest[-2:]
    like = torch.empty_like(r, dtype=dtype)
    dx = torch.empty_like(r, dtype=r.dtype if dy is None else dy.dtype)
    sums = rest[3].new_empty(3, len(r), r.shape[-1])
    return like, dx, torch.empty_like(like) if dropped else r.new_empty(0), sums


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    s, x, bias, inverse, gamma, beta, matrix, seed, _, dropout, post, transformed, keep = inputs
    y, _, r, mean, rstd = output
    ctx.set_materialize_grads(False)  # or zeros would be written for what nobody differentiates
    assert keep, "tube_norm was not told that a backward pass follows"
    learned = ctx.needs_input_grad[3] or ctx.needs_input_grad[6]
    ctx.save_for_backward(
        r if post else y,
        mean,
        rstd,
        inverse,
        gamma,
        matrix,
        seed,
        *((s, bias, beta) if learned else (None, None, None)),
    )
    ctx.dropout, ctx.post, ctx.transformed = dropout, post, transformed
    ctx.has_bias, ctx.dtype, ctx.residual_dtype = bias is not None, s.dtype, x.dtype
    ctx.parameter_dtypes = [None if t is None else t.dtype for t in (bias, inverse, gamma, beta, matrix)]


def _backward(ctx: Any, dy: Tensor | None, dyh: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    r, mean, rstd, inverse, gamma, matrix, seed, s, bias, beta = ctx.saved_tensors
    dyh = dyh if ctx.transformed else None
    needs_inverse, needs_matrix = ctx.needs_input_grad[3], ctx.needs_input_grad[6]
    dropped = needs_inverse and ctx.dropout > 0
    ds, dx, g, sums = torch.ops.lformer.tube_norm_backward(
        dy, dyh, r, mean, rstd, inverse, gamma, matrix, seed, ctx.dropout, ctx.post, dropped, ctx.dtype
    )
    dgamma, dbeta, dbias = sums.unbind()
    if len(gamma) == 1:
        dgamma, dbeta = dgamma.sum(0, keepdim=True), dbeta.sum(0, keepdim=True)
    dinverse = dmatrix = None
    if needs_inverse:
        dinverse = slice_products(g if dropped else dx, s, bias=bias)
    if needs_matrix and dyh is not None:
        dmatrix = slice_products(dyh, r, norm=(mean, rstd, gamma, beta))
    found = (dbias if ctx.has_bias else None, dinverse, dgamma, dbeta, dmatrix)
    parameters = [None if t is None else t.to(dtype) for t, dtype in zip(found, ctx.parameter_dtypes, strict=True)]
    return ds, dx.to(ctx.residual_dtype), *parameters, *[None] * 6


tube_norm_op.register_autograd(_backward, setup_context=_remember)
