"""Attention of short sequences in Triton: a program holds all keys of one head of one slice.

    o = dropout(softmax(q k^T / sqrt(E) + mask)) v

For T of at most 128 the scores of some queries fit on the chip at once, so that there is one pass over memory, forward
and backward, and nothing to keep for the backward pass but q, k and v themselves. The gradients are written with the
layout of the projection, so that nothing is concatenated. A mask of keys costs nothing in the kernel, but heads above
WIDE_HEAD take it for a mask alone: without one torch's flash kernel is faster (at E = 96 19 us, and 36 here).

Layout: qkv (P, B, T, 3, H, E) contiguous, out (P, B, T, H, E). A "text" is one of the P B sequences.
"""

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from lformer.kernels.gpu.dropout import kept
from lformer.kernels.gpu.launch import dot_precision, next_power_of_2, on_device_of_tensors, placeholder, split_width

WIDE_HEAD = 64  # above it torch's flash kernel is the faster one forward; backward ours is at every size


@triton.jit
def load_part(ptr, t, length, size, stride, TILES: tl.constexpr, BLOCK_E: tl.constexpr):
    """Queries, keys or values of a head: a tuple of tiles (tokens, BLOCK_E)."""
    tiles = ()
    for c in tl.static_range(TILES):
        e = c * BLOCK_E + tl.arange(0, BLOCK_E)
        mask = (t < length)[:, None] & (e < size)[None, :]
        tiles = tiles + (tl.load(ptr + t[:, None] * stride + e[None, :], mask=mask, other=0.0),)
    return tiles


@triton.jit
def store_part(ptr, tiles, t, length, size, stride, TILES: tl.constexpr, BLOCK_E: tl.constexpr):
    for c in tl.static_range(TILES):
        e = c * BLOCK_E + tl.arange(0, BLOCK_E)
        mask = (t < length)[:, None] & (e < size)[None, :]
        tl.store(ptr + t[:, None] * stride + e[None, :], tiles[c], mask=mask)


@triton.jit
def dot_along_features(a, b, ROWS: tl.constexpr, COLUMNS: tl.constexpr, TILES: tl.constexpr, PRECISION: tl.constexpr):
    """The product a b^T of two tuples of tiles."""
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for c in tl.static_range(TILES):
        total = tl.dot(a[c], tl.trans(b[c]), total, input_precision=PRECISION)
    return total


@triton.jit
def attention_weights(scores, keys_ptr, b, queries, t, length, HAS_MASK: tl.constexpr, CAUSAL: tl.constexpr):
    """The softmax over the keys that may be seen; a query without any looks at nothing."""
    seen = (t < length)[None, :]
    if HAS_MASK:
        seen = seen & (tl.load(keys_ptr + b * length + t, mask=t < length, other=0) != 0)[None, :]
    if CAUSAL:
        seen = seen & (queries[:, None] >= t[None, :])
    scores = tl.where(seen, scores, -float("inf"))
    top = tl.max(scores, axis=1)
    top = tl.where(top == -float("inf"), 0.0, top)
    weights = tl.exp(scores - top[:, None])
    total = tl.sum(weights, axis=1)
    return weights / tl.where(total == 0.0, 1.0, total)[:, None]


@triton.jit
def kept_weights(seed_ptr, queries, t, length, head, dropout):
    """0 or 1 / (1 - dropout) for every weight of some queries of a head."""
    return kept(tl.load(seed_ptr), (head * length + queries[:, None]) * length + t[None, :], dropout)


@triton.jit
def slice_attention_forward_kernel(
    o_ptr,
    qkv_ptr,
    keys_ptr,
    seed_ptr,
    batch,
    length,
    heads,
    size,
    scale,
    dropout,
    BLOCK_Q: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_E: tl.constexpr,
    TILES: tl.constexpr,
    HAS_MASK: tl.constexpr,
    HAS_DROPOUT: tl.constexpr,
    CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Some queries of one head of one text."""
    program = tl.program_id(0)
    head, text = program % heads, (program // heads).to(tl.int64)
    queries = tl.program_id(1) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    t = tl.arange(0, BLOCK_T)
    width = heads * size
    qkv_ptr += text * length * 3 * width + head * size
    q = load_part(qkv_ptr, queries, length, size, 3 * width, TILES, BLOCK_E)
    k = load_part(qkv_ptr + width, t, length, size, 3 * width, TILES, BLOCK_E)
    v = load_part(qkv_ptr + 2 * width, t, length, size, 3 * width, TILES, BLOCK_E)
    scores = dot_along_features(q, k, BLOCK_Q, BLOCK_T, TILES, PRECISION) * scale
    weights = attention_weights(scores, keys_ptr, text % batch, queries, t, length, HAS_MASK, CAUSAL)
    if HAS_DROPOUT:
        weights = weights * kept_weights(seed_ptr, queries, t, length, program, dropout)
    weights = weights.to(v[0].dtype)
    o = ()
    for c in tl.static_range(TILES):
        o = o + (tl.dot(weights, v[c], input_precision=PRECISION),)
    store_part(o_ptr + text * length * width + head * size, o, queries, length, size, width, TILES, BLOCK_E)


@triton.jit
def slice_attention_backward_kernel(
    dqkv_ptr,
    do_ptr,
    qkv_ptr,
    keys_ptr,
    seed_ptr,
    batch,
    length,
    heads,
    size,
    scale,
    dropout,
    BLOCK_T: tl.constexpr,
    BLOCK_E: tl.constexpr,
    TILES: tl.constexpr,
    HAS_MASK: tl.constexpr,
    HAS_DROPOUT: tl.constexpr,
    CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """With w the weights and a = drop(w): dv = a^T do, dw = drop(do v^T), ds = w (dw - sum w dw), dq = ds k and
    dk = ds^T q.
    """
    program = tl.program_id(0)
    head, text = program % heads, (program // heads).to(tl.int64)
    t = tl.arange(0, BLOCK_T)
    width = heads * size
    at = text * length * 3 * width + head * size
    qkv_ptr += at
    dqkv_ptr += at
    do_ptr += text * length * width + head * size
    k = load_part(qkv_ptr + width, t, length, size, 3 * width, TILES, BLOCK_E)
    v = load_part(qkv_ptr + 2 * width, t, length, size, 3 * width, TILES, BLOCK_E)
    q = load_part(qkv_ptr, t, length, size, 3 * width, TILES, BLOCK_E)
    do = load_part(do_ptr, t, length, size, width, TILES, BLOCK_E)
    scores = dot_along_features(q, k, BLOCK_T, BLOCK_T, TILES, PRECISION) * scale
    w = attention_weights(scores, keys_ptr, text % batch, t, t, length, HAS_MASK, CAUSAL)
    w = tl.where((t < length)[:, None], w, 0.0)
    dw = dot_along_features(do, v, BLOCK_T, BLOCK_T, TILES, PRECISION)
    a = w
    if HAS_DROPOUT:
        keep = kept_weights(seed_ptr, t, t, length, program, dropout)
        a = w * keep
        dw = dw * keep
    ds = (w * (dw - tl.sum(w * dw, axis=1)[:, None]) * scale).to(k[0].dtype)
    a_t = tl.trans(a.to(k[0].dtype))
    ds_t = tl.trans(ds)
    dq, dk, dv = (), (), ()
    for c in tl.static_range(TILES):
        dv = dv + (tl.dot(a_t, do[c], input_precision=PRECISION),)
        dq = dq + (tl.dot(ds, k[c], input_precision=PRECISION),)
        dk = dk + (tl.dot(ds_t, q[c], input_precision=PRECISION),)
    store_part(dqkv_ptr, dq, t, length, size, 3 * width, TILES, BLOCK_E)
    store_part(dqkv_ptr + width, dk, t, length, size, 3 * width, TILES, BLOCK_E)
    store_part(dqkv_ptr + 2 * width, dv, t, length, size, 3 * width, TILES, BLOCK_E)


def slice_attention_forward(
    qkv: Tensor, keys: Tensor | None, seed: Tensor | None, dropout: float, causal: bool
) -> Tensor:
    """From qkv (P, B, T, 3, H, E) to o (P, B, T, H, E). keys (B, T): which may be looked at."""
    p, b, t, _, heads, size = qkv.shape
    if size > WIDE_HEAD and qkv.is_cuda and keys is None and dropout == 0:
        return attention_of_torch(qkv, causal)
    o = qkv.new_empty(p, b, t, heads, size)
    if o.numel():
        block = min(64, max(16, next_power_of_2(t)))  # queries of a program
        slice_attention_forward_kernel[(p * b * heads, triton.cdiv(t, block))](
            o,
            *_arguments(qkv, keys, seed, dropout),
            **_options(qkv, keys, dropout, causal),
            BLOCK_Q=block,
            num_warps=4,
        )
    return o


def attention_of_torch(qkv: Tensor, causal: bool) -> Tensor:
    """The same by torch, contiguous as the compiler was told, which not every implementation leaves it."""
    q, k, v = (part.transpose(1, 2) for part in qkv.flatten(0, 1).unbind(2))
    o = F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)
    return o.contiguous().unflatten(0, qkv.shape[:2])


def slice_attention_backward(
    do: Tensor, qkv: Tensor, keys: Tensor | None, seed: Tensor | None, dropout: float, causal: bool
) -> Tensor:
    """The gradient of qkv, of the same layout."""
    p, b, _, _, heads, _ = qkv.shape
    dqkv = torch.empty_like(qkv)
    if dqkv.numel():
        slice_attention_backward_kernel[(p * b * heads,)](
            dqkv, do, *_arguments(qkv, keys, seed, dropout), **_options(qkv, keys, dropout, causal), num_warps=8
        )
    return dqkv


def _arguments(qkv: Tensor, keys: Tensor | None, seed: Tensor | None, dropout: float) -> tuple[Any, ...]:
    _, b, t, _, heads, size = qkv.shape
    return qkv, placeholder(keys, qkv), placeholder(seed, qkv), b, t, heads, size, size**-0.5, dropout


def _options(qkv: Tensor, keys: Tensor | None, dropout: float, causal: bool) -> dict[str, Any]:
    block, count = split_width(qkv.shape[-1], 64)
    return {
        "BLOCK_T": max(16, next_power_of_2(qkv.shape[2])),
        "BLOCK_E": block,
        "TILES": count,
        "HAS_MASK": keys is not None,
        "HAS_DROPOUT": dropout > 0,
        "CAUSAL": causal,
        "PRECISION": dot_precision(qkv.dtype),
    }


@torch.library.custom_op(
    "lformer::slice_attention",
    mutates_args=(),
    schema="(Tensor qkv, Tensor? keys, Tensor? seed, float dropout, bool causal) -> Tensor",
)
@on_device_of_tensors
def slice_attention_op(qkv: Tensor, keys: Tensor | None, seed: Tensor | None, dropout: float, causal: bool) -> Tensor:
    return slice_attention_forward(qkv, keys, seed, dropout, causal)


@slice_attention_op.register_fake
def _output(qkv: Tensor, *_: Any) -> Tensor:
    p, b, t, _three, heads, size = qkv.shape
    return qkv.new_empty(p, b, t, heads, size)


@torch.library.custom_op(
    "lformer::slice_attention_backward",
    mutates_args=(),
    schema="(Tensor do, Tensor qkv, Tensor? keys, Tensor? seed, float dropout, bool causal) -> Tensor",
)
@on_device_of_tensors
def slice_attention_backward_op(
    do: Tensor, qkv: Tensor, keys: Tensor | None, seed: Tensor | None, dropout: float, causal: bool
) -> Tensor:
    return slice_attention_backward(do.contiguous(), qkv, keys, seed, dropout, causal)


@slice_attention_backward_op.register_fake
def _gradient(do: Tensor, qkv: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(qkv)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    qkv, keys, seed, ctx.dropout, ctx.causal = inputs
    ctx.save_for_backward(qkv, keys, seed)


def _backward(ctx: Any, do: Tensor) -> tuple[Any, ...]:
    dqkv = torch.ops.lformer.slice_attention_backward(do, *ctx.saved_tensors, ctx.dropout, ctx.causal)
    return dqkv, None, None, None, None


slice_attention_op.register_autograd(_backward, setup_context=_remember)
