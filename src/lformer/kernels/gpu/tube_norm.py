"""tube_norm in Triton: some tokens and all P slices of them in one program, the tubes in registers.

Letters: N tokens, P slices, M features of a slice. Every (P, N, M) tensor is contiguous. Slices are unrolled, and a
slice's features are TILES tiles (192 = 3 x 64, so that no thread is idle): the tubes of some tokens are a tuple of
P TILES tiles (BLOCK_N, BLOCK_M), tile c of slice k at k TILES + c. The P x P mixing is then arithmetic between
registers and costs no traffic. Offsets inside a slice are 32 bits wide, which saves registers; slices are reached by
64 bits. All loads stand before the first store, and those of the next tokens before the stores of these, since the
compiler may not swap them.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from lformer.kernels.gpu.launch import (
    MULTIPROCESSORS,
    add_parts,
    contiguous_or_none,
    next_power_of_2,
    placeholder,
    split_width,
)

BACKWARD_PROGRAMS = 2 * MULTIPROCESSORS  # each leaves one row of partial sums of the parameters' gradients


@triton.jit
def tile_columns(c, BLOCK_M: tl.constexpr):
    return c * BLOCK_M + tl.arange(0, BLOCK_M)


@triton.jit
def tile_mask(in_rows, c, width, BLOCK_M: tl.constexpr, FULL: tl.constexpr):
    mask = in_rows[:, None]
    if not FULL:
        mask = mask & (tile_columns(c, BLOCK_M) < width)[None, :]
    return mask


@triton.jit
def load_tube(
    ptr, rows, in_rows, width, plane, P: tl.constexpr, TILES: tl.constexpr, BLOCK_M: tl.constexpr, FULL: tl.constexpr
):
    """The tiles of some tokens, as they are in memory."""
    tube = ()
    for k in tl.static_range(P):
        for c in tl.static_range(TILES):
            offsets = rows[:, None] * width + tile_columns(c, BLOCK_M)[None, :]
            mask = tile_mask(in_rows, c, width, BLOCK_M, FULL)
            tube = tube + (tl.load(ptr + k * plane + offsets, mask=mask, other=0.0),)
    return tube


@triton.jit
def store_slice(
    ptr, tube, k, rows, in_rows, width, plane, TILES: tl.constexpr, BLOCK_M: tl.constexpr, FULL: tl.constexpr
):
    for c in tl.static_range(TILES):
        offsets = rows[:, None] * width + tile_columns(c, BLOCK_M)[None, :]
        mask = tile_mask(in_rows, c, width, BLOCK_M, FULL)
        tl.store(ptr + k * plane + offsets, tube[k * TILES + c], mask=mask)


@triton.jit
def load_parameter(ptr, k, c, stride, width, BLOCK_M: tl.constexpr):
    columns = tile_columns(c, BLOCK_M)
    return tl.load(ptr + k * stride + columns, mask=columns < width, other=0.0).to(tl.float32)


@triton.jit
def mix_tile(
    matrix_ptr,
    tube,
    row,
    c,
    P: tl.constexpr,
    TILES: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    IDENTITY: tl.constexpr,
):
    """Tile c of one slice of the mixed tube: sum_k Z[row, k] x_k, or Z[k, row]."""
    if IDENTITY:
        return tube[row * TILES + c].to(tl.float32)
    stride_row: tl.constexpr = 1 if TRANSPOSED else P
    stride_k: tl.constexpr = P if TRANSPOSED else 1
    mixed = tl.load(matrix_ptr + row * stride_row).to(tl.float32) * tube[c].to(tl.float32)
    for k in tl.static_range(1, P):
        weight = tl.load(matrix_ptr + row * stride_row + k * stride_k).to(tl.float32)
        mixed += weight * tube[k * TILES + c].to(tl.float32)
    return mixed


@triton.jit
def keep_scale(seed, rows, c, j, width, dropout, BLOCK_M: tl.constexpr):
    """0 or 1 / (1 - dropout) for slice j: four slices share one call of the generator."""
    offsets = rows[:, None] * width + tile_columns(c, BLOCK_M)[None, :]
    random = tl.rand4x(seed + j // 4, offsets)
    return tl.where(random[j % 4] >= dropout, 1.0 / (1.0 - dropout), 0.0)


@triton.jit
def row_sum(tiles, TILES: tl.constexpr):
    total = tiles[0]
    for c in tl.static_range(1, TILES):
        total += tiles[c]
    return tl.sum(total, axis=1)


@triton.jit
def tube_norm_forward_kernel(
    y_ptr,
    yh_ptr,
    r_ptr,
    mean_ptr,
    rstd_ptr,
    s_ptr,
    x_ptr,
    bias_ptr,
    inverse_ptr,
    gamma_ptr,
    beta_ptr,
    matrix_ptr,
    seed_ptr,
    num_tokens,
    width,
    gamma_stride,
    eps,
    dropout,
    P: tl.constexpr,
    TILES: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    FULL: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_INVERSE: tl.constexpr,
    HAS_MATRIX: tl.constexpr,
    HAS_DROPOUT: tl.constexpr,
    POST: tl.constexpr,
    WRITE_NORM: tl.constexpr,
    KEEP_SUM: tl.constexpr,
):
    """r_j = x_j + drop(sum_k W[j, k] (s_k + b_k)); n_j = (r_j - mean_j) / std_j gamma_j + beta_j; yh = Z n.

    y is n (POST) or r; yh is written where WRITE_NORM, r where KEEP_SUM (for the backward pass).
    """
    rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    in_rows = rows < num_tokens
    plane = num_tokens.to(tl.int64) * width
    s = load_tube(s_ptr, rows, in_rows, width, plane, P, TILES, BLOCK_M, FULL)
    x = load_tube(x_ptr, rows, in_rows, width, plane, P, TILES, BLOCK_M, FULL)
    if HAS_BIAS:
        biased = ()
        for k in tl.static_range(P):
            for c in tl.static_range(TILES):
                bias = load_parameter(bias_ptr, k, c, width, width, BLOCK_M)
                biased = biased + (s[k * TILES + c].to(tl.float32) + bias[None, :],)
        s = biased
    if HAS_DROPOUT:
        seed = tl.load(seed_ptr)

    sums, means, rstds, n = (), (), (), ()
    for j in tl.static_range(P):
        r = ()
        for c in tl.static_range(TILES):
            mixed = mix_tile(inverse_ptr, s, j, c, P, TILES, False, not HAS_INVERSE)
            if HAS_DROPOUT:
                mixed = mixed * keep_scale(seed, rows, c, j, width, dropout, BLOCK_M)
            mixed += x[j * TILES + c].to(tl.float32)
            if not FULL:  # the padding of the last tile holds the bias
                mixed = tl.where((tile_columns(c, BLOCK_M) < width)[None, :], mixed, 0.0)
            r = r + (mixed,)
            sums = sums + (mixed.to(r_ptr.dtype.element_ty if POST else y_ptr.dtype.element_ty),)
        mean = row_sum(r, TILES) / width
        centred, squares = (), ()
        for c in tl.static_range(TILES):
            part = r[c] - mean[:, None]
            if not FULL:
                part = tl.where((tile_columns(c, BLOCK_M) < width)[None, :], part, 0.0)
            centred = centred + (part,)
            squares = squares + (part * part,)
        rstd = tl.rsqrt(row_sum(squares, TILES) / width + eps)
        for c in tl.static_range(TILES):
            gamma = load_parameter(gamma_ptr, j, c, gamma_stride, width, BLOCK_M)
            beta = load_parameter(beta_ptr, j, c, gamma_stride, width, BLOCK_M)
            n = n + (centred[c] * rstd[:, None] * gamma[None, :] + beta[None, :],)
        means = means + (mean,)
        rstds = rstds + (rstd,)
    nh = ()
    if WRITE_NORM:
        for k in tl.static_range(P):
            for c in tl.static_range(TILES):
                mixed = mix_tile(matrix_ptr, n, k, c, P, TILES, False, not HAS_MATRIX)
                nh = nh + (mixed.to(yh_ptr.dtype.element_ty),)

    for j in tl.static_range(P):
        if POST:
            store_slice(y_ptr, n, j, rows, in_rows, width, plane, TILES, BLOCK_M, FULL)
        else:
            store_slice(y_ptr, sums, j, rows, in_rows, width, plane, TILES, BLOCK_M, FULL)
        if KEEP_SUM:
            store_slice(r_ptr, sums, j, rows, in_rows, width, plane, TILES, BLOCK_M, FULL)
        if WRITE_NORM:
            store_slice(yh_ptr, nh, j, rows, in_rows, width, plane, TILES, BLOCK_M, FULL)
        tl.store(mean_ptr + j * num_tokens + rows, means[j], mask=in_rows)
        tl.store(rstd_ptr + j * num_tokens + rows, rstds[j], mask=in_rows)


@triton.jit
def load_gradients(
    pointers,
    rows,
    end,
    num_tokens,
    width,
    plane,
    P: tl.constexpr,
    TILES: tl.constexpr,
    BLOCK_M: tl.constexpr,
    FULL: tl.constexpr,
    HAS_DY: tl.constexpr,
    HAS_DYH: tl.constexpr,
):
    """What the backward pass reads of some tokens, those before `end`: r, dy, dyh, mean and 1 / std."""
    dy_ptr, dyh_ptr, r_ptr, mean_ptr, rstd_ptr = pointers
    in_rows = rows < end
    r = load_tube(r_ptr, rows, in_rows, width, plane, P, TILES, BLOCK_M, FULL)
    dy, dyh, mean, rstd = r, r, (), ()
    if HAS_DY:
        dy = load_tube(dy_ptr, rows, in_rows, width, plane, P, TILES, BLOCK_M, FULL)
    if HAS_DYH:
        dyh = load_tube(dyh_ptr, rows, in_rows, width, plane, P, TILES, BLOCK_M, FULL)
    for j in tl.static_range(P):
        mean = mean + (tl.load(mean_ptr + j * num_tokens + rows, mask=in_rows, other=0.0),)
        rstd = rstd + (tl.load(rstd_ptr + j * num_tokens + rows, mask=in_rows, other=0.0),)
    return r, dy, dyh, mean, rstd


@triton.jit
def zero_tube(BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, COUNT: tl.constexpr):
    tube = ()
    for _ in tl.static_range(COUNT):
        tube = tube + (tl.zeros((BLOCK_N, BLOCK_M), tl.float32),)
    return tube


@triton.jit
def tube_norm_backward_kernel(
    ds_ptr,
    dx_ptr,
    g_ptr,
    sums_ptr,
    dy_ptr,
    dyh_ptr,
    r_ptr,
    mean_ptr,
    rstd_ptr,
    inverse_ptr,
    gamma_ptr,
    matrix_ptr,
    seed_ptr,
    num_tokens,
    width,
    gamma_stride,
    blocks_per_program,
    dropout,
    P: tl.constexpr,
    TILES: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    FULL: tl.constexpr,
    HAS_DY: tl.constexpr,
    HAS_DYH: tl.constexpr,
    HAS_INVERSE: tl.constexpr,
    HAS_MATRIX: tl.constexpr,
    HAS_DROPOUT: tl.constexpr,
    POST: tl.constexpr,
    WRITE_DROPPED: tl.constexpr,
):
    """With dn = dy + Z^T dyh (POST) or Z^T dyh, and dr its pullback through the norm (plus dy where not POST): dx = dr
    and ds = W^T g, g = drop(dr), which is written where WRITE_DROPPED. A program's sums for gamma, beta and bias go to
    (3, P, M).
    """
    plane = num_tokens.to(tl.int64) * width
    dgamma = zero_tube(BLOCK_N, BLOCK_M, P * TILES)
    dbeta = zero_tube(BLOCK_N, BLOCK_M, P * TILES)
    dbias = zero_tube(BLOCK_N, BLOCK_M, P * TILES)
    if HAS_DROPOUT:
        seed = tl.load(seed_ptr)
    rows = tl.program_id(0) * blocks_per_program * BLOCK_N + tl.arange(0, BLOCK_N)
    pointers = (dy_ptr, dyh_ptr, r_ptr, mean_ptr, rstd_ptr)
    tile = load_gradients(
        pointers, rows, num_tokens, num_tokens, width, plane, P, TILES, BLOCK_M, FULL, HAS_DY, HAS_DYH
    )
    for block in range(blocks_per_program):
        r, dy, dyh, mean, rstd = tile
        ahead = rows + BLOCK_N
        end = tl.where(block + 1 < blocks_per_program, num_tokens, 0)
        tile = load_gradients(pointers, ahead, end, num_tokens, width, plane, P, TILES, BLOCK_M, FULL, HAS_DY, HAS_DYH)
        in_rows = rows < num_tokens
        dx, g, new_dgamma, new_dbeta = (), (), (), ()
        for j in tl.static_range(P):
            units, scaled, products = (), (), ()
            for c in tl.static_range(TILES):
                dn = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
                if HAS_DYH:
                    dn += mix_tile(matrix_ptr, dyh, j, c, P, TILES, True, not HAS_MATRIX)
                if HAS_DY:
                    if POST:
                        dn += dy[j * TILES + c].to(tl.float32)
                unit = (r[j * TILES + c].to(tl.float32) - mean[j][:, None]) * rstd[j][:, None]
                if not FULL:
                    unit = tl.where((tile_columns(c, BLOCK_M) < width)[None, :], unit, 0.0)
                new_dgamma = new_dgamma + (dgamma[j * TILES + c] + dn * unit,)
                new_dbeta = new_dbeta + (dbeta[j * TILES + c] + dn,)
                gamma = load_parameter(gamma_ptr, j, c, gamma_stride, width, BLOCK_M)
                units = units + (unit,)
                scaled = scaled + (dn * gamma[None, :],)
                products = products + (dn * gamma[None, :] * unit,)
            along = row_sum(products, TILES) / width
            level = row_sum(scaled, TILES) / width
            for c in tl.static_range(TILES):
                dr = (scaled[c] - units[c] * along[:, None] - level[:, None]) * rstd[j][:, None]
                if HAS_DY:
                    if not POST:
                        dr += dy[j * TILES + c].to(tl.float32)
                dx = dx + (dr.to(dx_ptr.dtype.element_ty),)
                if HAS_DROPOUT:
                    dr = dr * keep_scale(seed, rows, c, j, width, dropout, BLOCK_M)
                g = g + (dr,)
        ds, new_dbias = (), ()
        for k in tl.static_range(P):
            for c in tl.static_range(TILES):
                mixed = mix_tile(inverse_ptr, g, k, c, P, TILES, True, not HAS_INVERSE)
                new_dbias = new_dbias + (dbias[k * TILES + c] + mixed,)  # tokens beyond the end have 1 / std = 0
                ds = ds + (mixed.to(ds_ptr.dtype.element_ty),)
        for j in tl.static_range(P):
            store_slice(dx_ptr, dx, j, rows, in_rows, width, plane, TILES, BLOCK_M, FULL)
            store_slice(ds_ptr, ds, j, rows, in_rows, width, plane, TILES, BLOCK_M, FULL)
            if WRITE_DROPPED:
                store_slice(g_ptr, g, j, rows, in_rows, width, plane, TILES, BLOCK_M, FULL)
        dgamma, dbeta, dbias = new_dgamma, new_dbeta, new_dbias
        rows = ahead
    sums_ptr += tl.program_id(0).to(tl.int64) * 3 * P * width
    for j in tl.static_range(P):
        for c in tl.static_range(TILES):
            columns = tile_columns(c, BLOCK_M)
            at = sums_ptr + j * width + columns
            tl.store(at, tl.sum(dgamma[j * TILES + c], axis=0), mask=columns < width)
            tl.store(at + P * width, tl.sum(dbeta[j * TILES + c], axis=0), mask=columns < width)
            tl.store(at + 2 * P * width, tl.sum(dbias[j * TILES + c], axis=0), mask=columns < width)


NARROW = 256  # features of a token up to which the backward pass is faster with fewer of them in a thread


def _tiles(tube_length: int, width: int, per_thread: int, warps: int = 4) -> dict[str, int]:
    """Tiles of so many tokens that a thread holds about `per_thread` numbers of all slices together."""
    block, count = split_width(width, next_power_of_2(width))
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
    tiles = _tiles(p, m, 32)
    tube_norm_forward_kernel[(triton.cdiv(n, tiles["BLOCK_N"]),)](
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
    tiles = _tiles(p, m, 16 if p * m <= NARROW else 32)
    blocks = triton.cdiv(n, tiles["BLOCK_N"])
    programs = max(1, min(BACKWARD_PROGRAMS, blocks))
    per_program = triton.cdiv(blocks, programs)
    programs = triton.cdiv(blocks, per_program) if n else 1
    sums = r.new_empty((programs, 3, p, m), dtype=torch.float32)
    inverse, matrix, dy, dyh = contiguous_or_none(inverse, matrix, dy, dyh)
    tube_norm_backward_kernel[(programs,)](
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
        biased = s if bias is None else s + bias[:, None, None]
        dinverse = between_slices(g if dropped else dx, biased)
    if needs_matrix and dyh is not None:
        unit = (r.float() - mean[..., None]) * rstd[..., None]
        dmatrix = between_slices(dyh, unit * gamma[:, None, None] + beta[:, None, None])
    found = (dbias if ctx.has_bias else None, dinverse, dgamma, dbeta, dmatrix)
    parameters = [None if t is None else t.to(dtype) for t, dtype in zip(found, ctx.parameter_dtypes, strict=True)]
    return ds, dx.to(ctx.residual_dtype), *parameters, *[None] * 6


def between_slices(a: Tensor, b: Tensor) -> Tensor:
    """C[j, k] = <a_j, b_k>, the gradient of a P x P matrix that mixes slices."""
    return a.flatten(1).float() @ b.flatten(1).float().T


tube_norm_op.register_autograd(_backward, setup_context=_remember)
