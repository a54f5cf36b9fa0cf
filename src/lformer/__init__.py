"""Tensor Transformers under the L-product.

`lformer.algebra` is the calculus, `lformer.nn` the layers; the models below behave like any other Hugging Face model
and are known to its Auto classes as soon as this package is imported.
"""

from lformer.models import (
    LFormerConfig,
    LFormerForCausalLM,
    LFormerForConditionalGeneration,
    LFormerForMaskedLM,
    LFormerForSequenceClassification,
    LFormerModel,
)
from lformer.version import __version__

__all__ = [
    "LFormerConfig",
    "LFormerForCausalLM",
    "LFormerForConditionalGeneration",
    "LFormerForMaskedLM",
    "LFormerForSequenceClassification",
    "LFormerModel",
    "__version__",
]
