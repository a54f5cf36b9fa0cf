"""Language models on one stack: masked (an encoder) and causal (a decoder that generates)."""

import copy
from typing import Any

from torch import Tensor
from transformers import GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithCrossAttentions, MaskedLMOutput
from transformers.utils.generic import can_return_tuple

from lformer.models.base import LFormerModel, LFormerPreTrainedModel
from lformer.models.configuration import LFormerConfig
from lformer.models.heads import vocabulary_head


class LFormerForMaskedLM(LFormerPreTrainedModel):
    """Predicts the tokens at masked places from both sides."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: LFormerConfig) -> None:
        super().__init__(config)
        self.model = LFormerModel(config, is_decoder=False)
        self.lm_head = vocabulary_head(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> MaskedLMOutput:
        """Shapes: input_ids (B, T), labels (B, T) with -100 where nothing is predicted -> logits (B, T, V)."""
        loss_options = _loss_options(kwargs)
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            **kwargs,
        )
        logits = self.lm_head(outputs.last_hidden_state)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, vocab_size=self.config.vocab_size, **loss_options)
        return MaskedLMOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class LFormerForCausalLM(LFormerPreTrainedModel, GenerationMixin):
    """Predicts the next token; `generate` continues a text."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: LFormerConfig) -> None:
        if not config.is_decoder:
            config = copy.deepcopy(config)  # the caller's may also serve an encoder
            config.is_decoder = True
        super().__init__(config)
        self.model = LFormerModel(config)
        self.lm_head = vocabulary_head(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        past_key_values: Any = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithCrossAttentions:
        """Shapes: input_ids (B, T), labels (B, T), shifted inside -> logits (B, T, V), or the last logits_to_keep."""
        loss_options = _loss_options(kwargs)
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            past_key_values=past_key_values,
            use_cache=use_cache if labels is None else False,
            **kwargs,
        )
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(outputs.last_hidden_state[:, kept])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, vocab_size=self.config.vocab_size, **loss_options)
        return CausalLMOutputWithCrossAttentions(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


def _loss_options(kwargs: dict[str, Any]) -> dict[str, Any]:
    """What the trainer hands over for the loss alone; taken out of what goes on to the layers."""
    return {name: kwargs.pop(name) for name in ("num_items_in_batch", "shift_labels") if name in kwargs}
