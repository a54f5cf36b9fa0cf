"""What the tests of the models share: tiny models whose weights are all in play, texts, and the one way to compare."""

import torch

from lformer import (
    LFormerConfig,
    LFormerForCausalLM,
    LFormerForConditionalGeneration,
    LFormerForMaskedLM,
    LFormerForSequenceClassification,
    LFormerModel,
)
from lformer.train.language_presets import recommended

VOCAB, T = 30, 6
BASE, CLASSIFIER, MASKED = LFormerModel, LFormerForSequenceClassification, LFormerForMaskedLM
CAUSAL, SEQ2SEQ = LFormerForCausalLM, LFormerForConditionalGeneration
HEADS = (CLASSIFIER, MASKED, CAUSAL, SEQ2SEQ)
POSITIONAL = ("standard", "linear", "exponential", "harmonic", "learned", "learned-alpha", "rope", "none")

VARIANTS = {
    "dct": {},
    "standard": {"tube_length": 1, "num_attention_heads": 2},
    "block-pre": {"transform_scope": "block", "norm_placement": "pre", "hidden_act": "gelu"},
    "dft-even": {"transform": "dft"},
    "dft-odd": {"transform": "dft", "tube_length": 3, "hidden_size": 12, "num_attention_heads": 3},
    "learned": {"transform": "learned", "positional": "learned"},
    "orthogonal-rope": {"transform": "learned-orthogonal", "positional": "rope"},
    "interleave-original": {"interleave": True, "activation_domain": "original", "positional": "linear"},
    "all-original": {
        "attention_domain": "original",
        "activation_domain": "original",
        "transform": "learned",
        "positional": "rope",
        "norm_placement": "pre",
    },
    "recommended": recommended(),
    "dft-original": {"attention_domain": "original", "transform": "dft"},
    "odd-width": {"hidden_size": 18, "num_attention_heads": 20, "tube_length": 4, "positional": "harmonic"},
    "paper-counts": {"paper_counts": True, "transform": "haar"},
    "shared-low-rank": {"share_layers": True, "linear_rank": 2},
    "gated-shuffled": {
        "qk_norm": True,
        "gated": True,
        "hidden_act": "silu",
        "feed_forward_fold": "shuffled",
        "norm_placement": "pre",
        "positional": "rope",
    },
}


def make_config(**changes):
    options = {
        "vocab_size": VOCAB,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "intermediate_size": 32,
        "max_position_embeddings": 24,
        "tube_length": 4,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "pad_token_id": 0,
        "decoder_start_token_id": 1,
    }
    return LFormerConfig(**{**options, **changes})


def make_model(kind, seed=0, dtype=torch.float64, **changes):
    """A model in evaluation mode, every parameter moved so that no bias is zero and no norm trivial."""
    torch.manual_seed(seed)
    model = kind(make_config(**changes)).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def make_ids(batch=2, length=T, seed=0):
    """Tokens that are neither padding (0) nor the start (1)."""
    return torch.randint(2, VOCAB, (batch, length), generator=torch.Generator().manual_seed(seed))


def make_inputs(kind, batch=2, length=T, seed=0):
    inputs = {"input_ids": make_ids(batch, length, seed)}
    if kind is SEQ2SEQ:
        inputs["decoder_input_ids"] = make_ids(batch, length - 2, seed + 100)
    return inputs


def output_of(model, **inputs):
    """The logits of a head, the last hidden state of the base model."""
    outputs = model(**inputs)
    return outputs.logits if "logits" in outputs else outputs.last_hidden_state


def pad(ids, mask, count, side, token=0):
    """Texts in a longer batch: `count` tokens of padding on one side, with the attention mask that says so."""
    filler = torch.full((len(ids), count), token)
    parts = [(filler, torch.zeros_like(filler)), (ids, mask)]
    if side == "right":
        parts.reverse()
    return tuple(torch.cat(columns, dim=1) for columns in zip(*parts, strict=True))


def assert_close(actual, expected, tolerance=1e-10):
    assert actual.shape == expected.shape, f"shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    assert actual.dtype == expected.dtype, f"dtype {actual.dtype}, expected {expected.dtype}"
    assert actual.numel() > 0, "nothing to compare"
    difference = (actual.detach().double() - expected.detach().double()).abs().max().item()
    scale = max(1.0, expected.detach().double().abs().max().item())
    assert difference <= tolerance * scale, f"differs by {difference:.3g}, at most {tolerance * scale:.3g} is allowed"


def assert_differs(actual, other, by=1e-3):
    difference = (actual - other).detach().abs().max().item()
    assert difference > by, f"differs by {difference:.3g} only"
