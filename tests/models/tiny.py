"""The smallest models that are still tensor Transformers, the batches they take, and a tokenizer made on the spot."""

from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from lformer import (
    LFormerConfig,
    LFormerForCausalLM,
    LFormerForConditionalGeneration,
    LFormerForMaskedLM,
    LFormerForSequenceClassification,
    LFormerModel,
)

VOCAB = 50
ENCODERS = (LFormerModel, LFormerForSequenceClassification, LFormerForMaskedLM)
GENERATIVE = (LFormerForCausalLM, LFormerForConditionalGeneration)
ALL = (*ENCODERS, *GENERATIVE)

# Every choice that changes the graph, in few models.
VARIANTS: dict[str, dict[str, Any]] = {
    "dct": {},
    "dense": {"tube_length": 1},
    "dft": {"transform": "dft"},
    "learned": {"transform": "learned", "positional": "learned"},
    "learned-orthogonal": {"transform": "learned-orthogonal", "positional": "learned-alpha"},
    "rope-interleave": {"positional": "rope", "interleave": True, "norm_placement": "pre"},
    "block": {"transform_scope": "block", "activation_domain": "original", "hidden_act": "gelu"},
    "padded": {"tube_length": 3, "num_attention_heads": 6, "hidden_size": 16},
}


def config(**changes: Any) -> LFormerConfig:
    sizes: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 32,
        "max_position_embeddings": 32,
        "tube_length": 4,
        "num_labels": 3,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    return LFormerConfig(**{**sizes, **changes})


def model(cls: Any, seed: int = 0, **changes: Any) -> Any:
    torch.manual_seed(seed)
    return cls(config(**changes)).eval()


def batch(cls: Any, size: int = 3, length: int = 7, *, labels: bool = False, seed: int = 1) -> dict[str, Tensor]:
    """What a model of this class takes: texts of which the first is padded, on the side where generation wants it."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(3, VOCAB, (size, length), generator=generator)
    mask = torch.ones_like(tokens)
    side = slice(0, length // 3) if cls is LFormerForCausalLM else slice(length - length // 3, None)
    mask[0, side] = 0
    inputs = {"input_ids": tokens, "attention_mask": mask}
    if cls is LFormerForConditionalGeneration:
        inputs["decoder_input_ids"] = tokens.flip(1)[:, : max(length - 2, 1)].contiguous()
    if labels and cls is LFormerForSequenceClassification:
        inputs["labels"] = torch.arange(size) % 3
    elif labels and cls is LFormerForConditionalGeneration:
        inputs["labels"] = inputs["decoder_input_ids"]
    elif labels and cls is not LFormerModel:
        inputs["labels"] = tokens.masked_fill(mask == 0, -100)
    return inputs


SENTENCES = (
    "the film was wonderful and the actors were great",
    "a great and wonderful evening with great actors",
    "what a great film",
    "wonderful actors and a wonderful story",
    "the film was terrible and the actors were dull",
    "a dull and terrible evening with dull actors",
    "what a dull film",
    "terrible actors and a terrible story",
)
LABELS = (1, 1, 1, 1, 0, 0, 0, 0)


def tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE, trained on the sentences above."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    bpe.decoder = decoders.ByteLevel()
    special = ["<pad>", "<s>", "</s>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator(SENTENCES, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        mask_token="<mask>",
        model_max_length=32,
        model_input_names=["input_ids", "attention_mask"],
    )
