"""Hugging Face models of the tensor Transformer, known to the Auto classes once lformer is imported."""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
)

from lformer.models.base import LFormerModel, LFormerPreTrainedModel
from lformer.models.classification import LFormerForSequenceClassification
from lformer.models.configuration import LFormerConfig
from lformer.models.language import LFormerForCausalLM, LFormerForMaskedLM
from lformer.models.translation import LFormerForConditionalGeneration

AutoConfig.register("lformer", LFormerConfig)
AutoModel.register(LFormerConfig, LFormerModel)
AutoModelForSequenceClassification.register(LFormerConfig, LFormerForSequenceClassification)
AutoModelForMaskedLM.register(LFormerConfig, LFormerForMaskedLM)
AutoModelForCausalLM.register(LFormerConfig, LFormerForCausalLM)
AutoModelForSeq2SeqLM.register(LFormerConfig, LFormerForConditionalGeneration)

__all__ = [
    "LFormerConfig",
    "LFormerForCausalLM",
    "LFormerForConditionalGeneration",
    "LFormerForMaskedLM",
    "LFormerForSequenceClassification",
    "LFormerModel",
    "LFormerPreTrainedModel",
]
