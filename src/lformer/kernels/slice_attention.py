"""slice_attention: self-attention in every slice. Letters are in nn/folding.py."""

import torch
import torch.nn.functional as F
from torch import Tensor

from lformer.kernels.backend import outside_kernel, use_triton
from lformer.kernels.cpu import slice_attention_cpu, writes_scores

MAX_LENGTH = 128
MAX_HEAD = 128
MAX_FLOAT32 = 64  # one of the two, in float32: of numbers twice as large half as many fit
TOO_LARGE = (
    f"it takes sequences of up to {MAX_LENGTH} tokens and heads of up to {MAX_HEAD} features, "
    f"in float32 at most {MAX_FLOAT32} of one of them"
)


def slice_attention(
    qkv: Tensor,
    keys: Tensor | None = None,
    *,
    dropout: float = 0.0,
    is_causal: bool = False,
    backend: str = "auto",
) -> Tensor:
    """softmax(q k^T / sqrt(E)) v for every head of every slice. Shapes: qkv (P, B, T, 3, H, E) -> (P, B, T, H, E).

    keys: (B, T), True where a key may be looked at. A kernel takes sequences of up to MAX_LENGTH tokens; longer ones go
    to torch, where a mask costs the flash kernel.
    """
    if not _is_short(qkv):
        outside_kernel(backend, qkv, "attention", TOO_LARGE)
    elif use_triton(backend, qkv):
        from lformer.kernels.gpu.slice_attention import slice_attention_op

        seed = torch.randint(2**62, (1,), device=qkv.device) if dropout > 0 else None
        keys = None if keys is None else keys.contiguous()
        return slice_attention_op(qkv.contiguous(), keys, seed, dropout, is_causal)
    plain = keys is None and dropout == 0 and not is_causal
    if plain and qkv.device.type == "cpu" and writes_scores(qkv):
        return slice_attention_cpu(qkv)
    return slice_attention_reference(qkv, keys, dropout=dropout, is_causal=is_causal)


def slice_attention_reference(
    qkv: Tensor, keys: Tensor | None = None, *, dropout: float = 0.0, is_causal: bool = False
) -> Tensor:
    """The same by torch: slices are part of the batch, and nothing is copied."""
    p, b, t = qkv.shape[:3]
    q, k, v = (part.transpose(1, 2) for part in qkv.flatten(0, 1).unbind(2))  # (P B, H, T, E), views
    mask = None
    if keys is not None:
        mask = keys.bool()[:, None, None, :].repeat(p, 1, 1, 1)
        if is_causal:
            mask = mask & torch.ones(t, t, dtype=torch.bool, device=qkv.device).tril()
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=is_causal and mask is None, dropout_p=dropout)
    return y.transpose(1, 2).unflatten(0, (p, b))


def _is_short(qkv: Tensor) -> bool:
    """Whether all queries, keys and values of a head fit on the chip."""
    length, size = qkv.shape[2], qkv.shape[-1]
    if length > MAX_LENGTH or size > MAX_HEAD:
        return False
    return qkv.element_size() == 2 or size <= MAX_FLOAT32 or length <= MAX_FLOAT32
