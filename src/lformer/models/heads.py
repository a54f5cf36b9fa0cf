"""What stands after a stack: pooling for a sentence, and the projection to the vocabulary."""

import torch
from torch import Tensor, nn

from lformer.models.configuration import LFormerConfig
from lformer.nn import LLinear


def vocabulary_head(config: LFormerConfig) -> nn.Module:
    """(..., D) -> (..., V): Mat_p then W_out ("dense"), or an L-product with W_out in slices, then Mat_p ("tensor").

    paper: Sec. complete L-Transformer. Their tensor projection has V columns in every slice, which unfold to P V; ours
    has V / P (rounded up), so that they unfold to V: 1/P of the dense head's weights.
    """
    if config.output_projection == "dense":
        return nn.Linear(config.hidden_size, config.vocab_size, bias=False)
    return LLinear(config.hidden_size, config.vocab_size, config.tube_length, bias=False, transform=config.transform)


def masked_mean(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """The mean over tokens that are not padding: (B, T, D), (B, T) -> (B, D). An empty text gives zeros."""
    if attention_mask is None:
        return x.mean(dim=1)
    weight = attention_mask.to(x.dtype).unsqueeze(-1)
    return (x * weight).sum(dim=1) / weight.sum(dim=1).clamp_min(torch.finfo(x.dtype).tiny)
