"""Encoder and decoder layers: sublayers, residuals, norms, and where L and L^-1 stand around them.

With transform_scope="sublayer" (the paper's definitions) every sublayer has its own L and L^-1 and the norms are in the
original domain; slices then mix through the norms. With "block" (the paper's footnote and figure) L stands before the
layer and L^-1 after it, norms inside: in a stack L^-1 meets L of the next layer and cancels, so that the whole stack is
P independent Transformers. tests/nn/test_scope.py proves both.
"""

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from transformers.modeling_layers import GradientCheckpointingLayer

from lformer.nn.attention import LAttention
from lformer.nn.config import LayerConfig
from lformer.nn.feed_forward import LFeedForward
from lformer.nn.folding import fold_slices, unfold_slices
from lformer.nn.norm import TensorLayerNorm
from lformer.nn.tube_transform import TubeTransform


class _Layer(GradientCheckpointingLayer):
    """What encoder and decoder layers share: a residual sublayer, and the transforms around a block."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = LayerConfig.of(config)
        self.transform = (
            TubeTransform(self.config.tube_length, self.config.transform)
            if self.config.transform_scope == "block"
            else None
        )

    def _norm(self) -> TensorLayerNorm:
        return TensorLayerNorm(self.config.hidden_size, self.config.tube_length, eps=self.config.layer_norm_eps)

    def _residual(self, x: Tensor, norm: TensorLayerNorm, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Norm(x + sublayer(x)) or x + sublayer(Norm(x)), with dropout on the sublayer's output."""
        post = self.config.norm_placement == "post"
        y = sublayer(x if post else norm(x))
        x = x + F.dropout(y, self.config.hidden_dropout_prob, self.training)
        return norm(x) if post else x

    def _attend(self, attention: LAttention) -> Callable[..., tuple[Tensor, Tensor | None]]:
        return attention if self.transform is None else attention.slices

    def _feed(self, feed_forward: LFeedForward) -> Callable[[Tensor], Tensor]:
        return feed_forward if self.transform is None else feed_forward.slices


class LEncoderLayer(_Layer):
    """X' = TLN(X + MHA_L(X)), Y = TLN(X' + TFFN(X')). paper: Def. tensor encoder layer.

    Shapes: (P, B, T, M) -> same, or (B, T, D) -> same. The second value returned is the attention maps, or None.
    For tube_length=1 it is `torch.nn.TransformerEncoderLayer`.
    """

    def __init__(self, config: Any, layer_index: int = 0) -> None:
        super().__init__(config)
        self.attention = LAttention(config, layer_index=layer_index)
        self.attention_norm = self._norm()
        self.feed_forward = LFeedForward(config)
        self.feed_forward_norm = self._norm()

    def forward(self, x: Tensor, mask: Tensor | None = None, **options: Any) -> tuple[Tensor, Tensor | None]:
        """`mask` and the options (is_causal, rotary, cache, output_attentions) are those of `LAttention.slices`."""
        if x.ndim == 3:
            y, maps = self(fold_slices(x, self.config.tube_length), mask, **options)
            return unfold_slices(y, self.config.hidden_size), maps
        maps = None

        def attend(z: Tensor) -> Tensor:
            nonlocal maps
            z, maps = self._attend(self.attention)(z, mask=mask, **options)
            return z

        if self.transform is not None:
            x = self.transform(x)
        x = self._residual(x, self.attention_norm, attend)
        x = self._residual(x, self.feed_forward_norm, self._feed(self.feed_forward))
        if self.transform is not None:
            x = self.transform.inverse(x)
        return x, maps


class LDecoderLayer(_Layer):
    """Masked self-attention, then cross-attention to an encoder's output where `cross_attention` asks for it, then the
    feed-forward network, each with its residual and norm. paper: Def. tensor decoder layer.

    Shapes: x (P, B, T, M) and memory (P, B, S, M), or (B, T, D) and (B, S, D). Returns the output and the maps of
    self-attention and cross-attention, or None. For tube_length=1 it is `torch.nn.TransformerDecoderLayer`.
    """

    def __init__(self, config: Any, layer_index: int = 0, *, cross_attention: bool = False) -> None:
        super().__init__(config)
        self.attention = LAttention(config, layer_index=layer_index)
        self.attention_norm = self._norm()
        if cross_attention:
            self.cross_attention = LAttention(config, cross=True, layer_index=layer_index)
            self.cross_attention_norm = self._norm()
        self.has_cross_attention = cross_attention
        self.feed_forward = LFeedForward(config)
        self.feed_forward_norm = self._norm()

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        *,
        is_causal: bool | None = None,
        rotary: tuple[Tensor, Tensor] | None = None,
        cache: Any = None,
        output_attentions: bool = False,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Without a mask the self-attention is causal; several tokens after those of a cache need a mask that says so.
        `cache` is a Cache of transformers, or an EncoderDecoderCache where there is a memory.
        """
        if x.ndim == 3:
            p = self.config.tube_length
            folded = None if memory is None else fold_slices(memory, p)
            y, *maps = self(
                fold_slices(x, p),
                folded,
                mask,
                memory_mask,
                is_causal=is_causal,
                rotary=rotary,
                cache=cache,
                output_attentions=output_attentions,
            )
            return unfold_slices(y, self.config.hidden_size), maps[0], maps[1]
        if is_causal is None:
            is_causal = mask is None and x.shape[2] > 1  # a single query is the newest: it sees the whole cache
        own_cache = getattr(cache, "self_attention_cache", cache)
        maps = [None, None]

        def attend(z: Tensor) -> Tensor:
            z, maps[0] = self._attend(self.attention)(
                z, mask=mask, is_causal=is_causal, rotary=rotary, cache=own_cache, output_attentions=output_attentions
            )
            return z

        def attend_memory(z: Tensor) -> Tensor:
            z, maps[1] = self._attend(self.cross_attention)(
                z, memory, mask=memory_mask, cache=cache, output_attentions=output_attentions
            )
            return z

        if self.transform is not None:
            x = self.transform(x)
            memory = None if memory is None else self.transform(memory)
        x = self._residual(x, self.attention_norm, attend)
        if self.has_cross_attention:
            if memory is None:
                raise ValueError("LDecoderLayer with cross_attention=True needs the encoder's output as memory")
            x = self._residual(x, self.cross_attention_norm, attend_memory)
        x = self._residual(x, self.feed_forward_norm, self._feed(self.feed_forward))
        if self.transform is not None:
            x = self.transform.inverse(x)
        return x, maps[0], maps[1]
