"""The kernels of tube_norm: some tokens and all P slices of them in one program, the tubes in registers.

Letters: N tokens, P slices, M features of a slice. Every (P, N, M) tensor is contiguous. Slices are unrolled, and a
slice's features are TILES tiles (192 = 3 x 64, so that no thread is idle): the tubes of some tokens are a tuple of
P TILES tiles (BLOCK_N, BLOCK_M), tile c of slice k at k TILES + c. The P x P mixing is then arithmetic between
registers and costs no traffic. Offsets inside a slice are 32 bits wide, which saves registers; slices are reached by
64 bits. All loads stand before the first store, and those of the next tokens before the stores of these, since the
compiler may not swap them.
"""

import triton
import triton.language as tl

from lformer.kernels.gpu.dropout import kept


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
def keep_scale(seed, rows, c, j, width, dropout, P: tl.constexpr, BLOCK_M: tl.constexpr):
    """0 or 1 / (1 - dropout) for tile c of slice j."""
    offsets = rows[:, None] * width + tile_columns(c, BLOCK_M)[None, :]
    return kept(seed, offsets * P + j, dropout)


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
                mixed = mixed * keep_scale(seed, rows, c, j, width, dropout, P, BLOCK_M)
            mixed += x[j * TILES + c].to(tl.float32)
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
                    dr = dr * keep_scale(seed, rows, c, j, width, dropout, P, BLOCK_M)
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
