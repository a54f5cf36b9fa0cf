"""L-multi-head attention: ordinary multi-head attention in every slice of the transform domain.

Shape letters are in folding.py. The slices are folded into the batch of one scaled-dot-product call, so that nothing is
copied; with a cache, which is (batch, heads, T, E) everywhere, they are folded into the heads instead.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lformer.kernels import outside_kernel, rotate, slice_attention, tube_rotary
from lformer.nn.config import LayerConfig
from lformer.nn.folding import fold_slices, unfold_slices
from lformer.nn.head_norm import HeadNorm
from lformer.nn.linear import LLinear
from lformer.nn.low_rank import projection
from lformer.nn.tube_transform import TubeTransform


class LAttention(nn.Module):
    """MHA_L(X) = L^-1(Y), with Y_k = Concat_j(Softmax(Q_kj K_kj^T / sqrt(E)) V_kj) W_O,k for every slice k.

    paper: Sec. L-MHA and Algorithm 1; our E is their d_h. `cross` takes keys and values from a second tensor.
    Shapes: (P, B, T, M) -> same, or (B, T, D) -> same. `slices` is the part inside the transform domain.

    Under the DFT the scores are Hermitian and the softmax takes their real part, Re(q k^H) = Re q Re k + Im q Im k:
    real attention on real and imaginary parts side by side.

    attention_domain="original" (ours) takes Q, K and V back to the original domain before the heads are formed, and the
    heads' output to the transform domain again: Q = X * W_Q and so on, each projection an L-product of its own, so that
    a head sees all features. Its slices mix in every product, at the price of L^-1 of (Q, K, V) and one more L.

    With qk_norm every query and key is divided by its root mean square and scaled (`HeadNorm`), before it is rotated.
    """

    def __init__(self, config: Any, *, cross: bool = False, layer_index: int = 0) -> None:
        super().__init__()
        config = LayerConfig.of(config)
        self.config = config
        self.cross = cross
        self.layer_index = layer_index
        self.dropout = config.attention_probs_dropout_prob
        self.head_shape = (config.heads_per_slice, config.head_size)
        self.scale = config.head_size**-0.5
        self.in_original = config.attention_domain == "original"
        self.num_complex_heads = 0 if self.in_original else config.num_complex * config.heads_per_slice
        self.transform = (
            TubeTransform(config.tube_length, config.transform, config.backend)
            if config.transform_scope == "sublayer"
            else None
        )
        if cross:
            self.query = _projection(config, 1)
            self.key_value = _projection(config, 2)
        else:
            self.query_key_value = _projection(config, 3)
        # The second projection of Q, K and V that the paper's printed counts imply.
        self.again = nn.ModuleList(_projection(config, 1) for _ in range(3)) if config.paper_counts else None
        self.query_norm = _head_norm(config)
        self.key_norm = _head_norm(config)
        self.output = _projection(config, 1)

    def forward(
        self, x: Tensor, memory: Tensor | None = None, *, mask: Tensor | None = None, **options: Any
    ) -> tuple[Tensor, Tensor | None]:
        """The layer on the original domain, with the options of `slices`. Returns the output and the maps, if asked."""
        if x.ndim == 3:
            p, d = self.config.tube_length, self.config.hidden_size
            folded = None if memory is None else fold_slices(memory, p)
            y, maps = self(fold_slices(x, p), folded, mask=mask, **options)
            return unfold_slices(y, d), maps
        if self.transform is None:
            raise ValueError("LAttention with transform_scope='block' has no transform of its own; call .slices")
        if memory is not None and not self.is_cached(options.get("cache"), options.get("layer_index")):
            memory = self.transform(memory)
        yh, maps = self.slices(self.transform(x), memory, mask=mask, **options)
        return self.transform.inverse(yh), maps

    def slices(
        self,
        xh: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        is_causal: bool = False,
        rotary: tuple[Tensor, Tensor] | None = None,
        cache: Any = None,
        layer_index: int | None = None,
        output_attentions: bool = False,
        bias: bool = True,
    ) -> tuple[Tensor, Tensor | None]:
        """Attention in the transform domain, (P, B, T, M) -> (P, B, T, M).

        mask: (B or 1, 1, T or 1, keys), True where a query may look, or a float tensor to add to the scores.
        is_causal: a query sees no later key; for T queries and T keys without a mask.
        cache: of transformers' kind, holding (B, P H, T, E); for cross-attention an EncoderDecoderCache.
        layer_index: whose keys and values to use in the cache, where one layer serves at several depths of a stack.
        output_attentions: also return the maps, (B, P H, T, keys), slices outermost among the heads. In the
        transform domain the DFT has one map for a pair of conjugate slices, so (P - C) H of them.
        bias: whether to add that of the output projection, or to leave it to whoever comes next.
        """
        interleaved = self.config.interleave
        keys = _key_mask(mask, xh)
        other_mask = mask is not None and keys is None
        reason = self._why_not_fused(cache is not None, rotary is not None, output_attentions, other_mask)
        if reason is None:
            qkv = self._to_heads(self.query_key_value.slices(xh)).unflatten(-1, (3, *self.head_shape))
            dropout = self.dropout if self.training else 0.0
            y = slice_attention(qkv, keys, dropout=dropout, is_causal=is_causal, backend=self.config.backend)
            y = self._from_heads(y.flatten(-2))
            return self.output.slices(y, bias=bias, interleaved=interleaved), None
        outside_kernel(self.config.backend, xh, "attention", reason)
        parts = self._heads(xh, None if self.is_cached(cache, layer_index) else memory, rotary)
        if cache is None and not output_attentions and not self.num_complex_heads:
            y, maps = self._attend_slices_as_batch(parts, mask, is_causal), None
        else:
            heads = [part.permute(1, 0, 3, 2, 4).flatten(1, 2) for part in parts]  # each (B, P H, T, E)
            q, k, v = heads if cache is None else self._update(cache, layer_index, *heads)
            y, maps = self._attend_slices_as_heads(q, k, v, mask, is_causal, output_attentions)
        return self.output.slices(self._from_heads(y), bias=bias, interleaved=interleaved), maps

    def _why_not_fused(self, cached: bool, rotated: bool, maps: bool, other_mask: bool) -> str | None:
        """What `slice_attention` has no form for, if there is anything."""
        reasons = (
            (self.cross, "keys and values come from a second tensor"),
            (self.again is not None, "paper_counts projects queries, keys and values twice"),
            (self.num_complex_heads > 0, "slices of the DFT are complex"),
            (self.config.qk_norm, "qk_norm is between projection and scores"),
            (rotated, "rotary positions come before it, in one pass of tube_rotary"),
            (cached, "keys and values are in a cache"),
            (maps, "its maps are asked for"),
            (other_mask, "the mask is not one of keys alone"),
        )
        return next((reason for applies, reason in reasons if applies), None)

    def _to_heads(self, projected: Tensor) -> Tensor:
        """From the domain of the projections to that of the heads."""
        if not self.in_original:
            return projected
        assert self.transform is not None
        return self.transform.inverse(projected)

    def _from_heads(self, y: Tensor) -> Tensor:
        """And back."""
        if not self.in_original:
            return y
        assert self.transform is not None
        return self.transform(y)

    def _heads(self, xh: Tensor, memory: Tensor | None, rotary: tuple[Tensor, Tensor] | None) -> list[Tensor]:
        """Queries, keys and values as torch's attention takes them, each (P, B, T, H, E), as `_project` has them."""
        if not self.cross and self.again is None and not self.config.qk_norm:
            qkv = self.query_key_value.slices(xh).unflatten(-1, (3, *self.head_shape))
            return list(tube_rotary(qkv, self._inverse(), *(rotary or (None, None)), backend=self.config.backend))
        parts = [part.unflatten(-1, self.head_shape) for part in self._project(xh, memory)]
        if self.query_norm is not None and self.key_norm is not None:
            # Where the memory's keys are in the cache, normed already, there are only queries.
            parts[:2] = [norm(part) for norm, part in zip((self.query_norm, self.key_norm), parts, strict=False)]
        if rotary is not None:
            parts[:2] = [rotate(part, rotary) for part in parts[:2]]
        return parts

    def _inverse(self) -> Tensor | None:
        """The matrix that `_to_heads` mixes slices with; None for the identity."""
        if not self.in_original:
            return None
        assert self.transform is not None
        return self.transform.matrices()[1]

    def _project(self, xh: Tensor, memory: Tensor | None) -> list[Tensor]:
        """Queries, keys and values, each (P, B, T, M); queries alone where the memory's are in the cache."""
        if not self.cross:
            whole = [(self.query_key_value.slices(xh), 3)]
        else:
            whole = [(self.query.slices(xh), 1)]
            if memory is not None:
                whole.append((self.key_value.slices(memory), 2))
        if self.again is None:
            return [part for projected, count in whole for part in self._to_heads(projected).chunk(count, dim=-1)]
        parts = [part for projected, count in whole for part in projected.chunk(count, dim=-1)]
        return [self._to_heads(layer(part)) for layer, part in zip(self.again, parts, strict=False)]

    def is_cached(self, cache: Any, layer_index: int | None = None) -> bool:
        """Whether the keys and values of the memory are in the cache already."""
        index = self.layer_index if layer_index is None else layer_index
        return self.cross and cache is not None and bool(cache.is_updated.get(index))

    def _update(self, cache: Any, layer_index: int | None, q: Tensor, *new: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The queries with all keys and values, the cached and the new ones, each (B, P H, T, E)."""
        index = self.layer_index if layer_index is None else layer_index
        if not self.cross:
            return q, *cache.update(*new, index)
        if new:
            cache.cross_attention_cache.update(*new, index)
            cache.is_updated[index] = True
        layer = cache.cross_attention_cache.layers[index]
        return q, layer.keys, layer.values

    def _attend_slices_as_batch(self, parts: list[Tensor], mask: Tensor | None, is_causal: bool) -> Tensor:
        p = self.config.tube_length
        q, k, v = (part.flatten(0, 1).transpose(1, 2) for part in parts)  # (P B, H, T, E), views
        if mask is not None and mask.shape[0] != 1:
            mask = mask.repeat(p, 1, 1, 1)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=is_causal, dropout_p=dropout)
        return y.transpose(1, 2).flatten(-2).unflatten(0, (p, -1))

    def _attend_slices_as_heads(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        is_causal: bool,
        output_attentions: bool,
    ) -> tuple[Tensor, Tensor | None]:
        outputs, maps = [], []
        for q_part, k_part, v_part in zip(*(self._group(part) for part in (q, k, v)), strict=True):
            if output_attentions:
                y, weights = self._explicit(q_part, k_part, v_part, mask, is_causal)
                maps.append(weights)
            else:
                y = F.scaled_dot_product_attention(
                    q_part,
                    k_part,
                    v_part,
                    attn_mask=mask,
                    is_causal=is_causal,
                    dropout_p=self.dropout if self.training else 0.0,
                    scale=self.scale,
                )
            outputs.append(y)
        y = self._ungroup(outputs).unflatten(1, (-1, self.head_shape[0]))  # (B, P, H, T, E)
        return y.permute(1, 0, 3, 2, 4).flatten(-2), torch.cat(maps, dim=1) if maps else None

    def _group(self, x: Tensor) -> list[Tensor]:
        """Heads that attend alike: all for a real transform; for the DFT the real slices' heads, (B, R H, T, E), and
        the complex slices', real and imaginary parts side by side, (B, C H, T, 2E).
        """
        c = self.num_complex_heads
        if c == 0:
            return [x]
        real, re, im = x.split([x.shape[1] - 2 * c, c, c], dim=1)
        return [real, torch.cat([re, im], dim=-1)]

    def _ungroup(self, parts: list[Tensor]) -> Tensor:
        if len(parts) == 1:
            return parts[0]
        return torch.cat([parts[0], *parts[1].chunk(2, dim=-1)], dim=1)

    def _explicit(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool) -> tuple[Tensor, Tensor]:
        """The same attention with the maps in the open."""
        scores = torch.matmul(q, k.transpose(-2, -1)) * self.scale
        if is_causal:
            scores = scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), float("-inf"))
        if mask is not None and mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        elif mask is not None:
            scores = scores + mask
        maps = scores.softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(q.dtype)
        maps = F.dropout(maps, self.dropout, self.training)
        return torch.matmul(maps, v), maps


def _projection(config: LayerConfig, count: int) -> LLinear:
    return projection(config, config.padded_size, count * config.padded_size)


def _head_norm(config: LayerConfig) -> HeadNorm | None:
    return HeadNorm(config.tube_length, config.head_size, eps=config.layer_norm_eps) if config.qk_norm else None


def _key_mask(mask: Tensor | None, xh: Tensor) -> Tensor | None:
    """A mask that only says which keys are tokens, the same for every query: (B, T); else None."""
    if mask is None or mask.dtype != torch.bool or mask.ndim != 4 or mask.shape[1:3] != (1, 1):
        return None
    return mask[:, 0, 0].expand(xh.shape[1], -1)
