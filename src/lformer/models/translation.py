"""The paper's complete Transformer: an encoder and a decoder that attends to it."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationMixin
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput
from transformers.utils.generic import can_return_tuple

from lformer.models.base import LFormerModel, LFormerPreTrainedModel
from lformer.models.configuration import LFormerConfig
from lformer.models.heads import vocabulary_head


class LFormerForConditionalGeneration(LFormerPreTrainedModel, GenerationMixin):
    """Sequence to sequence, such as translation; tie_word_embeddings also ties the decoder's token embedding to the
    encoder's.

    paper: Sec. complete L-Transformer.
    """

    _tied_weights_keys = {  # noqa: RUF012
        "decoder.embed_tokens.weight": "encoder.embed_tokens.weight",
        "lm_head.weight": "encoder.embed_tokens.weight",
    }

    def __init__(self, config: LFormerConfig) -> None:
        if not config.is_encoder_decoder:
            config = copy.deepcopy(config)
            config.is_encoder_decoder = True
        super().__init__(config)
        self.encoder = LFormerModel(config, is_decoder=False)
        self.decoder = LFormerModel(config, is_decoder=True, cross_attention=True)
        self.lm_head = vocabulary_head(config)
        self.post_init()

    def get_encoder(self, modality: str | None = None) -> LFormerModel:
        return self.encoder

    def get_decoder(self) -> LFormerModel:
        return self.decoder

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.encoder.set_input_embeddings(value)
        self.decoder.set_input_embeddings(value)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        decoder_position_ids: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """Shapes: input_ids (B, S), labels or decoder_input_ids (B, T) -> logits (B, T, V).

        Given labels, the decoder's input is the labels shifted right behind config.decoder_start_token_id.
        """
        if labels is not None and decoder_input_ids is None and decoder_inputs_embeds is None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        asked = {"output_attentions": output_attentions, "output_hidden_states": output_hidden_states}
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids=input_ids,
                attention_mask=attention_mask,
                inputs_embeds=inputs_embeds,
                return_dict=True,
                **asked,
            )
        elif not isinstance(encoder_outputs, BaseModelOutput):
            encoder_outputs = BaseModelOutput(*encoder_outputs)
        outputs = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            position_ids=decoder_position_ids,
            inputs_embeds=decoder_inputs_embeds,
            encoder_hidden_states=encoder_outputs.last_hidden_state,
            encoder_attention_mask=attention_mask,
            past_key_values=past_key_values,
            use_cache=use_cache if labels is None else False,
            return_dict=True,
            **asked,
        )
        logits = self.lm_head(outputs.last_hidden_state)
        loss = None
        if labels is not None:
            loss = self.loss_function(
                logits,
                None,
                vocab_size=self.config.vocab_size,
                shift_labels=labels.contiguous(),  # it is the decoder's input that was shifted
                num_items_in_batch=kwargs.get("num_items_in_batch"),
            )
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            decoder_hidden_states=outputs.hidden_states,
            decoder_attentions=outputs.attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
        )

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """The labels one place later, behind the start token; ignored places (-100) become padding."""
        start, padding = self.config.decoder_start_token_id, self.config.pad_token_id
        if start is None or padding is None:
            raise ValueError(
                "to make the decoder's input from labels the config needs decoder_start_token_id and pad_token_id, "
                f"got {start} and {padding}"
            )
        shifted = torch.cat([torch.full_like(labels[:, :1], start), labels[:, :-1]], dim=1)
        return shifted.masked_fill(shifted == -100, padding)
