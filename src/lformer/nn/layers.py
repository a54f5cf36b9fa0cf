"""Encoder and decoder layers: sublayers, residuals, norms, and where L and L^-1 stand around them.

With transform_scope="sublayer" (the paper's definitions) every sublayer has its own L and L^-1 and the norms are in the
original domain; slices then mix through the norms. With "block" (the paper's footnote and figure) L stands before the
layer and L^-1 after it, norms inside: in a stack L^-1 meets L of the next layer and cancels, so that the whole stack is
P independent Transformers. tests/nn/test_scope.py proves both.

Between the product that ends one sublayer and the product that begins the next stand L^-1, residual, norm and L. They
are one operation, `tube_norm`, also across layers: a layer can be given the transformed input `xh` that the layer
before it made, and make that of the layer that is `following`. A feed-forward network with a fold of its own
(feed_forward_fold="shuffled") has a shuffle between norm and L, and there the transforms stand apart.
"""

from typing import Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from lformer.kernels import interleave_slices, require_backend, tube_norm, use_triton
from lformer.nn.attention import LAttention
from lformer.nn.config import LayerConfig
from lformer.nn.feed_forward import LFeedForward
from lformer.nn.folding import fold_slices, unfold_slices
from lformer.nn.fourier import FOR_ENCODERS, FourierMixing
from lformer.nn.linear import LLinear
from lformer.nn.norm import TensorLayerNorm
from lformer.nn.tube_transform import TubeTransform


class Entry(NamedTuple):
    """What stands before a sublayer: its norm in a pre-norm layer, the shuffle of a fold of its own, and its L, if it
    has one of its own.
    """

    norm: TensorLayerNorm | None
    transform: TubeTransform | None
    shuffled: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        """The sublayer's input, made from the residual stream."""
        return self.after_norm(x if self.norm is None else self.norm(x))

    def after_norm(self, x: Tensor) -> Tensor:
        if self.shuffled:
            x = interleave_slices(x)
        return x if self.transform is None else self.transform(x)


class _Layer(GradientCheckpointingLayer):
    """What encoder and decoder layers share: the way from one sublayer to the next, and the transforms of a block."""

    attention: LAttention | FourierMixing
    attention_norm: TensorLayerNorm

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config = LayerConfig.of(config)
        require_backend(config.backend)
        self.is_post = config.norm_placement == "post"
        self.transform = (
            TubeTransform(config.tube_length, config.transform, config.backend)
            if config.transform_scope == "block"
            else None
        )

    def _norm(self) -> TensorLayerNorm:
        return TensorLayerNorm(self.config.hidden_size, self.config.tube_length, eps=self.config.layer_norm_eps)

    @property
    def entry(self) -> Entry | None:
        """What the layer does first, for the layer before it to do in passing; None if it has a block's transform."""
        return self._before(self.attention, self.attention_norm) if self.transform is None else None

    def _before(self, sublayer: nn.Module, norm: TensorLayerNorm) -> Entry:
        own = getattr(sublayer, "transform", None) if self.transform is None else None
        return Entry(None if self.is_post else norm, own, getattr(sublayer, "shuffled", False))

    def _leaves_bias(self, x: Tensor) -> bool:
        """Whether a sublayer's last bias is left to tube_norm; without the kernels it is free inside the product."""
        return use_triton(self.config.backend, x)

    def _join(
        self,
        y: Tensor,
        x: Tensor,
        last: LLinear | None,
        sublayer: nn.Module,
        norm: TensorLayerNorm,
        following: Entry | None,
    ) -> tuple[Tensor, Tensor | None]:
        """From a sublayer's output y and the residual stream x to the new stream and the input of what follows.

        Norm(x + y) after a post-norm sublayer, x + y and the norm of what follows after a pre-norm one; dropout on y.
        """
        dropout = self.config.hidden_dropout_prob if self.training else 0.0
        transform = getattr(sublayer, "transform", None) if self.transform is None else None
        bias = last.bias if last is not None and self._leaves_bias(x) else None
        if isinstance(sublayer, LFeedForward) and sublayer.shuffled:
            y = sublayer.leave(y if bias is None else y + bias.to(y.dtype)[:, None, None])
            transform, bias = None, None
        inverse = None if transform is None else transform.matrices()[1]
        if not self.is_post and (following is None or following.norm is None):
            if bias is not None:
                y = y + bias[:, None, None]
            return x + F.dropout(y if transform is None else transform.inverse(y), dropout, dropout > 0), None
        if not self.is_post:
            assert following is not None
            assert following.norm is not None
            norm = following.norm
        matrix = None
        if following is not None and following.transform is not None and not following.shuffled:
            matrix = following.transform.matrices()[0]
        x, xh = tube_norm(
            y,
            x,
            bias,
            inverse,
            norm.weight,
            norm.bias,
            matrix,
            eps=norm.eps,
            dropout=dropout,
            post=self.is_post,
            transformed=following is not None,
            backend=self.config.backend,
        )
        if following is not None and following.shuffled:
            assert xh is not None
            xh = following.after_norm(xh)
        return x, xh

    def _attend(
        self, attention: LAttention | FourierMixing, xh: Tensor, *memory: Tensor, **options: Any
    ) -> tuple[Tensor, Tensor | None]:
        return attention.slices(xh, *memory, bias=not self._leaves_bias(xh), **options)

    def _feed(
        self,
        xh: Tensor,
        x: Tensor,
        feed_forward: LFeedForward,
        norm: TensorLayerNorm,
        following: Entry | None,
    ) -> tuple[Tensor, Tensor | None]:
        y = feed_forward.slices(xh, bias=not self._leaves_bias(xh))
        return self._join(y, x, feed_forward.outer, feed_forward, norm, following)


class LEncoderLayer(_Layer):
    """X' = TLN(X + MHA_L(X)), Y = TLN(X' + TFFN(X')). paper: Def. tensor encoder layer.

    Shapes: (P, B, T, M) -> same, or (B, T, D) -> same. The second value returned is the attention maps, or None.
    For tube_length=1 it is `torch.nn.TransformerEncoderLayer`. With token_mixing="fourier" `FourierMixing` is in the
    place of MHA_L.
    """

    def __init__(self, config: Any, layer_index: int = 0) -> None:
        super().__init__(config)
        mixes_by_fourier = self.config.token_mixing == "fourier"
        self.attention = FourierMixing() if mixes_by_fourier else LAttention(config, layer_index=layer_index)
        self.attention_norm = self._norm()
        self.feed_forward = LFeedForward(config)
        self.feed_forward_norm = self._norm()

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        xh: Tensor | None = None,
        following: Entry | None = None,
        **options: Any,
    ) -> tuple[Any, ...]:
        """`mask` and the options (is_causal, rotary, cache, layer_index, output_attentions) are those of
        `LAttention.slices`.

        With `following`, what stands after this layer in a stack, its input is returned as a third value.
        """
        if x.ndim == 3:
            y, maps = self(fold_slices(x, self.config.tube_length), mask, **options)
            return unfold_slices(y, self.config.hidden_size), maps
        if self.transform is not None:
            x = self.transform(x)
        if xh is None:
            xh = self._before(self.attention, self.attention_norm)(x)
        y, maps = self._attend(self.attention, xh, mask=mask, **options)
        between = self._before(self.feed_forward, self.feed_forward_norm)
        x, xh = self._join(y, x, self.attention.output, self.attention, self.attention_norm, between)
        assert xh is not None
        x, xh = self._feed(xh, x, self.feed_forward, self.feed_forward_norm, following)
        if self.transform is not None:
            x = self.transform.inverse(x)
        return (x, maps) if following is None else (x, maps, xh)


class LDecoderLayer(_Layer):
    """Masked self-attention, then cross-attention to an encoder's output where `cross_attention` asks for it, then the
    feed-forward network, each with its residual and norm. paper: Def. tensor decoder layer.

    Shapes: x (P, B, T, M) and memory (P, B, S, M), or (B, T, D) and (B, S, D). Returns the output and the maps of
    self-attention and cross-attention, or None. For tube_length=1 it is `torch.nn.TransformerDecoderLayer`.
    """

    attention: LAttention

    def __init__(self, config: Any, layer_index: int = 0, *, cross_attention: bool = False) -> None:
        super().__init__(config)
        if self.config.token_mixing == "fourier":
            raise ValueError(FOR_ENCODERS)
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
        layer_index: int | None = None,
        output_attentions: bool = False,
        xh: Tensor | None = None,
        following: Entry | None = None,
    ) -> tuple[Any, ...]:
        """Without a mask the self-attention is causal; several tokens after those of a cache need a mask that says so.
        `cache` is a Cache of transformers, or an EncoderDecoderCache where there is a memory; `layer_index` is the
        place in it where one layer serves at several depths of a stack.

        With `following`, what stands after this layer in a stack, its input is returned as a last value.
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
                layer_index=layer_index,
                output_attentions=output_attentions,
            )
            return unfold_slices(y, self.config.hidden_size), maps[0], maps[1]
        if is_causal is None:
            is_causal = mask is None and x.shape[2] > 1  # a single query is the newest: it sees the whole cache
        if self.has_cross_attention and memory is None:
            raise ValueError("LDecoderLayer with cross_attention=True needs the encoder's output as memory")
        if self.transform is not None:
            x = self.transform(x)
        if xh is None:
            xh = self._before(self.attention, self.attention_norm)(x)
        y, maps = self._attend(
            self.attention,
            xh,
            mask=mask,
            is_causal=is_causal,
            rotary=rotary,
            cache=getattr(cache, "self_attention_cache", cache),
            layer_index=layer_index,
            output_attentions=output_attentions,
        )
        feed = self._before(self.feed_forward, self.feed_forward_norm)
        cross_maps = None
        if not self.has_cross_attention:
            x, xh = self._join(y, x, self.attention.output, self.attention, self.attention_norm, feed)
        else:
            cross = self._before(self.cross_attention, self.cross_attention_norm)
            x, xh = self._join(y, x, self.attention.output, self.attention, self.attention_norm, cross)
            assert xh is not None
            y, cross_maps = self._attend_memory(
                xh,
                memory,
                mask=memory_mask,
                cache=cache,
                layer_index=layer_index,
                output_attentions=output_attentions,
            )
            last = self.cross_attention.output
            x, xh = self._join(y, x, last, self.cross_attention, self.cross_attention_norm, feed)
        assert xh is not None
        x, xh = self._feed(xh, x, self.feed_forward, self.feed_forward_norm, following)
        if self.transform is not None:
            x = self.transform.inverse(x)
        return (x, maps, cross_maps) if following is None else (x, maps, cross_maps, xh)

    def _attend_memory(
        self, xh: Tensor, memory: Any, *, cache: Any, layer_index: int | None, **options: Any
    ) -> tuple[Tensor, Tensor | None]:
        attention = self.cross_attention
        transform = self.transform or attention.transform
        if transform is not None and not attention.is_cached(cache, layer_index):
            memory = transform(memory)
        return self._attend(attention, xh, memory, cache=cache, layer_index=layer_index, **options)
