"""The kernels of tube_norm for long tubes: what tube_norm_kernels.py unrolls over slices is here one axis of a tile.

Unrolled mixing has P^2 terms, and the compiler takes far more than in proportion: minutes for 16 slices. Here a tube is
a tile (BLOCK_P, BLOCK_N, BLOCK_M) and mixing a product with the P x P matrix, so that the code does not grow with P.
Letters and arguments are those of tube_norm_kernels.py.
"""

import triton
import triton.language as tl

from lformer.kernels.gpu.dropout import kept


@triton.jit
def mix_tubes(
    matrix_ptr,
    x,
    P: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    IDENTITY: tl.constexpr,
):
    """Computes sum_j Z[k, j] x_j, or with Z[j, k], for all slices k."""
    if IDENTITY:
        return x
    k = tl.arange(0, BLOCK_P)[:, None]
    j = tl.arange(0, BLOCK_P)[None, :]
    at = j * P + k if TRANSPOSED else k * P + j
    matrix = tl.load(matrix_ptr + at, mask=(k < P) & (j < P), other=0.0).to(tl.float32)
    mixed = tl.dot(matrix, tl.reshape(x, (BLOCK_P, BLOCK_N * BLOCK_M)), input_precision="ieee")
    return tl.reshape(mixed, (BLOCK_P, BLOCK_N, BLOCK_M))


@triton.jit
def tube_offsets(rows, end, num_tokens, width, P: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_M: tl.constexpr):
    """Where the tubes of some tokens stand, and which of these places there are; tokens before `end`."""
    k = tl.arange(0, BLOCK_P)[:, None, None]
    m = tl.arange(0, BLOCK_M)[None, None, :]
    row = rows[None, :, None]
    at = (k.to(tl.int64) * num_tokens + row) * width + m
    return at, (k < P) & (row < end) & (m < width)


@triton.jit
def load_parameters(ptr, stride, width, P: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_M: tl.constexpr):
    """A parameter of every slice, or of all alike where the stride is 0: (BLOCK_P, 1, BLOCK_M)."""
    k = tl.arange(0, BLOCK_P)[:, None]
    m = tl.arange(0, BLOCK_M)[None, :]
    found = tl.load(ptr + k * stride + m, mask=(k < P) & (m < width), other=0.0).to(tl.float32)
    return found[:, None, :]


@triton.jit
def keep_scales(seed_ptr, rows, width, dropout, BLOCK_P: tl.constexpr, BLOCK_M: tl.constexpr):
    """0 or 1 / (1 - dropout); every place of every slice has its own."""
    k = tl.arange(0, BLOCK_P)[:, None, None]
    at = rows[None, :, None] * width + tl.arange(0, BLOCK_M)[None, None, :]
    return kept(tl.load(seed_ptr), at * BLOCK_P + k, dropout)


@triton.jit
def long_tube_norm_forward_kernel(
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
    BLOCK_P: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_INVERSE: tl.constexpr,
    HAS_MATRIX: tl.constexpr,
    HAS_DROPOUT: tl.constexpr,
    POST: tl.constexpr,
    WRITE_NORM: tl.constexpr,
    KEEP_SUM: tl.constexpr,
):
    """R = x + drop(W (s + b)); n = (r - mean) / std gamma + beta; yh = Z n, as tube_norm_forward_kernel."""
    rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    at, mask = tube_offsets(rows, num_tokens, num_tokens, width, P, BLOCK_P, BLOCK_M)
    in_width = (tl.arange(0, BLOCK_M) < width)[None, None, :]
    r = tl.load(s_ptr + at, mask=mask, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    if HAS_BIAS:
        r += load_parameters(bias_ptr, width, width, P, BLOCK_P, BLOCK_M)
    r = mix_tubes(inverse_ptr, r, P, BLOCK_P, BLOCK_N, BLOCK_M, False, not HAS_INVERSE)
    if HAS_DROPOUT:
        r = r * keep_scales(seed_ptr, rows, width, dropout, BLOCK_P, BLOCK_M)
    r += x
    mean = tl.sum(r, axis=2) / width
    centred = tl.where(in_width, r - mean[:, :, None], 0.0)
    rstd = tl.rsqrt(tl.sum(centred * centred, axis=2) / width + eps)
    n = centred * rstd[:, :, None] * load_parameters(gamma_ptr, gamma_stride, width, P, BLOCK_P, BLOCK_M)
    n += load_parameters(beta_ptr, gamma_stride, width, P, BLOCK_P, BLOCK_M)
    if WRITE_NORM:
        nh = mix_tubes(matrix_ptr, n, P, BLOCK_P, BLOCK_N, BLOCK_M, False, not HAS_MATRIX)
        tl.store(yh_ptr + at, nh, mask=mask)
    if POST:
        tl.store(y_ptr + at, n, mask=mask)
    else:
        tl.store(y_ptr + at, r, mask=mask)
    if KEEP_SUM:
        tl.store(r_ptr + at, r, mask=mask)
    k = tl.arange(0, BLOCK_P)[:, None]
    at_rows = k.to(tl.int64) * num_tokens + rows[None, :]
    of_rows = (k < P) & (rows < num_tokens)[None, :]
    tl.store(mean_ptr + at_rows, mean, mask=of_rows)
    tl.store(rstd_ptr + at_rows, rstd, mask=of_rows)


@triton.jit
def long_tube_norm_backward_kernel(
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
    BLOCK_P: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    HAS_DY: tl.constexpr,
    HAS_DYH: tl.constexpr,
    HAS_INVERSE: tl.constexpr,
    HAS_MATRIX: tl.constexpr,
    HAS_DROPOUT: tl.constexpr,
    POST: tl.constexpr,
    WRITE_DROPPED: tl.constexpr,
):
    """The gradients that tube_norm_backward_kernel describes, and a program's sums of those of the parameters."""
    in_width = (tl.arange(0, BLOCK_M) < width)[None, None, :]
    gamma = load_parameters(gamma_ptr, gamma_stride, width, P, BLOCK_P, BLOCK_M)
    dgamma = tl.zeros((BLOCK_P, BLOCK_M), tl.float32)
    dbeta = tl.zeros((BLOCK_P, BLOCK_M), tl.float32)
    dbias = tl.zeros((BLOCK_P, BLOCK_M), tl.float32)
    k = tl.arange(0, BLOCK_P)[:, None]
    for block in range(blocks_per_program):
        rows = (tl.program_id(0) * blocks_per_program + block) * BLOCK_N + tl.arange(0, BLOCK_N)
        at, mask = tube_offsets(rows, num_tokens, num_tokens, width, P, BLOCK_P, BLOCK_M)
        at_rows = k.to(tl.int64) * num_tokens + rows[None, :]
        of_rows = (k < P) & (rows < num_tokens)[None, :]
        mean = tl.load(mean_ptr + at_rows, mask=of_rows, other=0.0)[:, :, None]
        rstd = tl.load(rstd_ptr + at_rows, mask=of_rows, other=0.0)[:, :, None]
        unit = (tl.load(r_ptr + at, mask=mask, other=0.0).to(tl.float32) - mean) * rstd
        unit = tl.where(in_width, unit, 0.0)
        dn = tl.zeros((BLOCK_P, BLOCK_N, BLOCK_M), tl.float32)
        if HAS_DYH:
            dyh = tl.load(dyh_ptr + at, mask=mask, other=0.0).to(tl.float32)
            dn = mix_tubes(matrix_ptr, dyh, P, BLOCK_P, BLOCK_N, BLOCK_M, True, not HAS_MATRIX)
        if HAS_DY:
            dy = tl.load(dy_ptr + at, mask=mask, other=0.0).to(tl.float32)
            if POST:
                dn += dy
        dgamma += tl.sum(dn * unit, axis=1)
        dbeta += tl.sum(dn, axis=1)
        scaled = dn * gamma
        along = tl.sum(scaled * unit, axis=2) / width
        level = tl.sum(scaled, axis=2) / width
        dr = (scaled - unit * along[:, :, None] - level[:, :, None]) * rstd
        if HAS_DY:
            if not POST:
                dr += dy
        tl.store(dx_ptr + at, dr, mask=mask)
        if HAS_DROPOUT:
            dr = dr * keep_scales(seed_ptr, rows, width, dropout, BLOCK_P, BLOCK_M)
        if WRITE_DROPPED:
            tl.store(g_ptr + at, dr, mask=mask)
        ds = mix_tubes(inverse_ptr, dr, P, BLOCK_P, BLOCK_N, BLOCK_M, True, not HAS_INVERSE)
        dbias += tl.sum(ds, axis=1)  # tokens beyond the end have 1 / std = 0
        tl.store(ds_ptr + at, ds, mask=mask)
    m = tl.arange(0, BLOCK_M)[None, :]
    sums_ptr += tl.program_id(0).to(tl.int64) * 3 * P * width
    at = k * width + m
    mask = (k < P) & (m < width)
    tl.store(sums_ptr + at, dgamma, mask=mask)
    tl.store(sums_ptr + P * width + at, dbeta, mask=mask)
    tl.store(sums_ptr + 2 * P * width + at, dbias, mask=mask)
