"""What all lformer models share: how they start, and the stack of layers between embeddings and a head."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.masking_utils import create_causal_mask
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPastAndCrossAttentions
from transformers.utils.generic import can_return_tuple

from lformer.models.configuration import LFormerConfig
from lformer.nn import (
    Entry,
    HeadNorm,
    LDecoderLayer,
    LEncoderLayer,
    LLinear,
    LowRankLLinear,
    RotaryPositions,
    TensorLayerNorm,
    TubePositionalEncoding,
    TubeTransform,
    fold_slices,
    unfold_slices,
)
from lformer.nn.positions import UNLIMITED


class LFormerPreTrainedModel(PreTrainedModel):
    """Loading, saving and initialisation of every lformer model."""

    config_class = LFormerConfig
    config: LFormerConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["LEncoderLayer", "LDecoderLayer"]  # noqa: RUF012 - the base class types it so
    _skip_keys_device_placement = ["past_key_values"]  # noqa: RUF012
    _supports_sdpa = True
    _can_compile_fullgraph = True

    def resize_token_embeddings(self, new_num_tokens: int | None = None, *args: Any, **kwargs: Any) -> nn.Embedding:
        """A vocabulary of another size; not with a tensor head, whose slices would all have to be cut anew."""
        if self.config.output_projection == "tensor" and self.get_output_embeddings() is not None:
            raise ValueError(
                "resize_token_embeddings: output_projection='tensor' spreads the vocabulary over the slices, so its "
                "size cannot change; make a model with the new vocab_size, or with output_projection='dense'"
            )
        return super().resize_token_embeddings(new_num_tokens, *args, **kwargs)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """How every weight starts, g = config.initializer_range (1 by default):

        | module                      | weight                                          | bias |
        |-----------------------------|-------------------------------------------------|------|
        | token embedding             | normal, std g / sqrt(D); the padding row is 0   |      |
        | LLinear, linear heads       | normal, std g / sqrt(3 fan-in), fan-in of a slice; | 0 |
        |                             | real and imaginary parts of the DFT: / sqrt(2)  |      |
        | LowRankLLinear              | right as LLinear; left normal, std 1 / sqrt(R): | 0    |
        |                             | so their product has the variance of LLinear    |      |
        | TensorLayerNorm, HeadNorm   | 1                                               | 0    |
        | learned positions           | normal, std 0.02 g                              |      |
        | fixed and learned transforms, sinusoids | what they are, or their start       |      |
        """
        gain = self.config.initializer_range
        if isinstance(module, nn.Embedding):
            init.normal_(module.weight, std=gain / math.sqrt(module.embedding_dim))
            if module.padding_idx is not None and not getattr(module.weight, "_is_hf_initialized", False):
                module.weight[module.padding_idx].zero_()
        elif isinstance(module, LLinear):
            if isinstance(module, LowRankLLinear):
                _init_slices(module, module.right, gain / math.sqrt(3 * module.right.shape[-1]))
                _init_slices(module, module.left, 1 / math.sqrt(module.rank))
            else:
                _init_slices(module, module.weight, gain / math.sqrt(3 * module.weight.shape[-1]))
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.Linear):
            init.normal_(module.weight, std=gain / math.sqrt(3 * module.in_features))
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, TensorLayerNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)
        elif isinstance(module, HeadNorm):
            init.ones_(module.weight)
        elif isinstance(module, TubeTransform | TubePositionalEncoding):
            for name, value in module.initial_values().items():
                init.copy_(getattr(module, name), value)
            if isinstance(module, TubePositionalEncoding) and module.strategy == "learned":
                init.normal_(module.table, std=0.02 * gain)


def _init_slices(module: LLinear, weight: Tensor, std: float) -> None:
    """Normal numbers; of a complex slice the real and the imaginary part have half the variance each."""
    stds = torch.full((module.tube_length, 1, 1), std)
    stds[module.tube_length - 2 * module.num_complex :] /= math.sqrt(2)
    init.copy_(weight, torch.randn(weight.shape) * stds)


class LFormerModel(LFormerPreTrainedModel):
    """Token embeddings, positions, and a stack of tensor layers: an encoder, or with `is_decoder` a causal decoder.

    The activations are folded into slices once on entry and unfolded once on exit; outside they are (B, T, D).
    """

    def __init__(self, config: LFormerConfig, *, is_decoder: bool | None = None, cross_attention: bool = False) -> None:
        super().__init__(config)
        self.is_decoder = config.is_decoder if is_decoder is None else is_decoder
        self.cross_attention = cross_attention
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, config.pad_token_id)
        self.embed_scale = math.sqrt(config.hidden_size) if config.scale_embedding else 1.0
        self.positions = TubePositionalEncoding(
            config.hidden_size, config.tube_length, config.max_position_embeddings, config.positional
        )
        self.rotary = RotaryPositions(config.head_dim, config.rope_theta) if config.positional == "rope" else None
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.depth = (config.num_decoder_layers or 0) if cross_attention else config.num_hidden_layers
        self.layers = nn.ModuleList(
            LDecoderLayer(config, index, cross_attention=cross_attention)
            if self.is_decoder
            else LEncoderLayer(config, index)
            for index in range(1 if config.share_layers else self.depth)
        )
        self.norm = _final_norm(config)
        self.gradient_checkpointing = False
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput | BaseModelOutputWithPastAndCrossAttentions:
        """Shapes: input_ids and attention_mask (B, T), 1 for tokens and 0 for padding -> last_hidden_state (B, T, D).

        The attention maps, if asked for, are (B, P H, T, T): slices outermost among the heads; fewer under the DFT,
        where two conjugate slices share one.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("LFormerModel needs either input_ids or inputs_embeds, and not both")
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        output_attentions = self.config.output_attentions if output_attentions is None else output_attentions
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        if output_attentions and self.config.token_mixing == "fourier":
            raise ValueError("output_attentions=True: there are no attention maps with token_mixing='fourier'")
        explicit = output_attentions or self.config._attn_implementation == "eager"

        past_key_values = self._cache(past_key_values, use_cache)
        past = past_key_values.get_seq_length() if past_key_values is not None else 0
        self._check_length(inputs_embeds.shape[1], past)
        if position_ids is None:
            position_ids = _position_ids(inputs_embeds, attention_mask, past)
        mask, is_causal = self._mask(inputs_embeds, attention_mask, past_key_values)
        options: dict[str, Any] = {"is_causal": is_causal, "output_attentions": explicit, "cache": past_key_values}
        if self.rotary is not None:
            options["rotary"] = self.rotary(position_ids)
        memory: list[Tensor] = []  # positional below: reentrant checkpointing loses the gradient of keyword arguments
        if self.cross_attention:
            if encoder_hidden_states is None:
                raise ValueError("a decoder with cross-attention needs encoder_hidden_states")
            memory = [fold_slices(encoder_hidden_states, self.config.tube_length)]
            options["memory_mask"] = _key_mask(encoder_attention_mask)

        x = fold_slices(inputs_embeds * self.embed_scale, self.config.tube_length)
        x = self.dropout(self.positions(x, position_ids))
        hidden_states, maps, cross_maps = [x], [], []
        xh = None
        for depth, (layer, following) in enumerate(zip(self._stack(), self._following(), strict=True)):
            if self.config.share_layers:
                options["layer_index"] = depth  # a shared layer does not know at which depth it stands
            outputs = layer(x, *memory, mask=mask, xh=xh, following=following, **options)
            x, xh = outputs[0], None if following is None else outputs[-1]
            hidden_states.append(x)
            maps.append(outputs[1])
            cross_maps.append(outputs[2] if self.is_decoder else None)
        if self.norm is not None:
            x = hidden_states[-1] = self.norm(x) if xh is None else xh

        width = self.config.hidden_size
        output: dict[str, Any] = {"last_hidden_state": unfold_slices(x, width)}
        if output_hidden_states:
            output["hidden_states"] = tuple(unfold_slices(state, width) for state in hidden_states)
        if output_attentions:
            output["attentions"] = tuple(maps)
        if not self.is_decoder:
            return BaseModelOutput(**output)
        if output_attentions and self.cross_attention:
            output["cross_attentions"] = tuple(cross_maps)
        return BaseModelOutputWithPastAndCrossAttentions(past_key_values=past_key_values, **output)

    def _stack(self) -> list[nn.Module]:
        """The layers in the order in which they are called: a shared one again at every depth."""
        return [self.layers[0]] * self.depth if self.config.share_layers else list(self.layers)

    def _following(self) -> list[Entry | None]:
        """What stands after each layer, for it to do in passing: what the next one does first, or the last norm."""
        if self.gradient_checkpointing and self.training:
            return [None] * self.depth  # what is computed again must begin and end with the residual stream
        last = None
        if self.norm is not None and self.config.norm_placement == "pre" and self.config.transform_scope == "sublayer":
            last = Entry(self.norm, None)
        entries: list[Entry | None] = [layer.entry for layer in self._stack()]  # type: ignore[misc]
        return [*entries[1:], last]

    def _cache(self, past_key_values: Any, use_cache: bool | None) -> Any:
        if not self.is_decoder:
            return None
        use_cache = self.config.use_cache if use_cache is None else use_cache
        if self.gradient_checkpointing and self.training:
            use_cache = False  # the second forward pass would find the keys of the first
        if not use_cache:
            return past_key_values
        if past_key_values is None:
            past_key_values = DynamicCache()
        if self.cross_attention and not isinstance(past_key_values, EncoderDecoderCache):
            past_key_values = EncoderDecoderCache(past_key_values, DynamicCache())
        return past_key_values

    def _check_length(self, length: int, past: Any) -> None:
        limit = self.config.max_position_embeddings
        if self.config.positional in UNLIMITED or isinstance(past, Tensor) or length + past <= limit:
            return
        raise ValueError(
            f"the input has {length + past} tokens, but max_position_embeddings={limit}; truncate the input, or make "
            "the model with a larger max_position_embeddings (positional='rope' has no limit)"
        )

    def _mask(
        self, inputs_embeds: Tensor, attention_mask: Tensor | None, past_key_values: Any
    ) -> tuple[Tensor | None, bool]:
        """The mask for self-attention, and whether attention is causal without one."""
        if not self.is_decoder:
            return _key_mask(attention_mask), False
        own = getattr(past_key_values, "self_attention_cache", past_key_values)
        mask: Any = create_causal_mask(
            config=self.config, inputs_embeds=inputs_embeds, attention_mask=attention_mask, past_key_values=own
        )
        return mask, mask is None and inputs_embeds.shape[1] > 1


def _final_norm(config: LFormerConfig) -> TensorLayerNorm | None:
    """Pre-norm stacks end with a norm. The paper's printed counts imply one of width M, shared by all slices."""
    if config.norm_placement == "pre":
        return TensorLayerNorm(config.hidden_size, config.tube_length, eps=config.layer_norm_eps)
    if config.paper_counts and config.tube_length > 1:
        return TensorLayerNorm(config.hidden_size, config.tube_length, eps=config.layer_norm_eps, shared=True)
    return None


def _position_ids(inputs_embeds: Tensor, attention_mask: Tensor | None, past: Any) -> Tensor:
    """Positions that count tokens and not padding, on whichever side the padding is: (B or 1, T)."""
    length = inputs_embeds.shape[1]
    if attention_mask is None or attention_mask.ndim != 2:
        return (torch.arange(length, device=inputs_embeds.device) + past)[None]
    return (attention_mask.long().cumsum(-1) - 1).clamp_min(0)[:, -length:]


def _key_mask(attention_mask: Tensor | None) -> Tensor | None:
    """Which keys may be looked at, for attention: (B, T) -> (B, 1, 1, T), or (B, 1, T, T) as it is."""
    if attention_mask is None:
        return None
    if attention_mask.ndim == 2:
        return attention_mask.bool()[:, None, None, :]
    return attention_mask[:, None] if attention_mask.ndim == 3 else attention_mask
