"""The sequence classifier of the paper: encoder, masked mean over tokens, one linear layer."""

from typing import Any

from torch import Tensor, nn
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils.generic import can_return_tuple

from lformer.models.base import LFormerModel, LFormerPreTrainedModel
from lformer.models.configuration import LFormerConfig
from lformer.models.heads import masked_mean


class LFormerForSequenceClassification(LFormerPreTrainedModel):
    """Classes, several labels at once, or numbers for a text, by config.problem_type (from the labels if not set)."""

    accepts_loss_kwargs = False  # the loss is a mean over texts; Trainer divides it when it accumulates gradients

    def __init__(self, config: LFormerConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = LFormerModel(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels or 0)
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
    ) -> SequenceClassifierOutput:
        """Shapes: input_ids (B, T), labels (B,) or (B, num_labels) -> logits (B, num_labels)."""
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            **kwargs,
        )
        logits = self.classifier(self.dropout(masked_mean(outputs.last_hidden_state, attention_mask)))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )
