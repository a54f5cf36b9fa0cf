"""The costs that `config.summary()` states are those that torch counts."""

from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from lformer import LFormerConfig, LFormerForCausalLM, LFormerForConditionalGeneration, LFormerForSequenceClassification
from lformer.models.summary import multiply_adds

SMALL = {"vocab_size": 101, "hidden_size": 64, "num_hidden_layers": 2, "num_decoder_layers": 3}
CONFIGS: dict[str, dict[str, Any]] = {
    "tensor": {},
    "dense": {"tube_length": 1},
    "p does not divide d": {"tube_length": 5, "num_attention_heads": 5},
    "dft": {"transform": "dft"},
    "dft, odd p": {"transform": "dft", "tube_length": 3, "num_attention_heads": 3},
    "identity": {"transform": "identity"},
    "block": {"transform_scope": "block"},
    "original": {"activation_domain": "original"},
    "heads in the original domain": {"attention_domain": "original"},
    "paper counts": {"paper_counts": True},
    "learned, interleave, rope": {"transform": "learned", "interleave": True, "positional": "rope"},
    "fourier": {"token_mixing": "fourier"},
    "fourier, block": {"token_mixing": "fourier", "transform_scope": "block"},
    "low rank": {"linear_rank": 5},
    "low rank, dft": {"linear_rank": 5, "transform": "dft", "paper_counts": True},
    "qk_norm": {"qk_norm": True},
    "gated": {"gated": True, "hidden_act": "silu"},
    "gated, original, low rank": {"gated": True, "activation_domain": "original", "linear_rank": 6},
    "shuffled": {"feed_forward_fold": "shuffled"},
    "causal": {"is_decoder": True},
    "tensor head": {"is_decoder": True, "output_projection": "tensor", "tie_word_embeddings": False},
    "encoder-decoder": {"is_encoder_decoder": True},
    "encoder-decoder, low rank": {"is_encoder_decoder": True, "linear_rank": 3, "paper_counts": True},
    "encoder-decoder, block": {"is_encoder_decoder": True, "transform_scope": "block"},
}


def build(config: LFormerConfig) -> Any:
    if config.is_encoder_decoder:
        return LFormerForConditionalGeneration(config)
    return LFormerForCausalLM(config) if config.is_decoder else LFormerForSequenceClassification(config)


def counted_flops(config: LFormerConfig, length: int) -> int:
    ids = torch.zeros(1, length, dtype=torch.long)
    inputs: dict[str, Any] = {"input_ids": ids}
    if config.is_decoder or config.is_encoder_decoder:
        inputs["use_cache"] = False
    if config.is_encoder_decoder:
        inputs["decoder_input_ids"] = ids
    # Torch's counter does not know the fused attention of the CPU.
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        build(config).eval()(**inputs)
    return counter.get_total_flops()


@pytest.mark.parametrize("options", CONFIGS.values(), ids=CONFIGS)
def test_multiply_adds_are_half_of_the_counted_flops(options: dict[str, Any]) -> None:
    config = LFormerConfig(**{**SMALL, **options})
    rows = multiply_adds(config, 24)
    rows.pop("Fourier mixing", None)  # torch's counter does not know FFTs
    assert 2 * sum(rows.values()) == counted_flops(config, 24)


@pytest.mark.parametrize("options", CONFIGS.values(), ids=CONFIGS)
def test_parameters_are_those_of_the_model(options: dict[str, Any]) -> None:
    config = LFormerConfig(**{**SMALL, **options})
    summary = config.summary(24)
    assert summary.tensor.total_parameters == build(config).num_parameters()
    assert summary.tensor.weight_bytes == 4 * summary.tensor.total_parameters


def test_the_paper_breakdown_at_768() -> None:
    """paper: Table "Parameter breakdown at d=768": 23.0M, 28.4M / 7.1M, 51.4M / 30.2M (0.59x)."""
    summary = LFormerConfig(hidden_size=768, num_attention_heads=8, tube_length=4).summary(128)
    assert summary.tensor.parameters["token embedding"] == 23_040_000
    assert (summary.tensor.stack_parameters, summary.dense.stack_parameters) == (7_117_824, 28_351_488)
    assert round(summary.tensor.total_parameters / summary.dense.total_parameters, 2) == 0.59


def test_projections_cost_one_p_th_and_attention_the_same() -> None:
    summary = LFormerConfig(hidden_size=256, num_attention_heads=4, tube_length=4).summary(128)
    tensor, dense = summary.tensor.multiply_adds, summary.dense.multiply_adds
    for row in ("Q, K, V projections", "output projection", "feed-forward"):
        assert tensor[row] * 4 == dense[row]
    assert tensor["scores"] == dense["scores"] == 4 * 128**2 * 256


def test_activations_grow_with_length_and_exclude_the_weights() -> None:
    config = LFormerConfig(**SMALL)
    short, long = (config.summary(length).tensor.activation_bytes for length in (32, 64))
    assert 1.9 < long / short < 2.1  # fused attention keeps no T x T map
    hidden = 64 * 32 * 4
    layers = config.num_hidden_layers
    # A layer keeps at least its input, q, k, v, the attention's output and the hidden activations, but no weights.
    assert layers * 9 * hidden < short < layers * 40 * hidden


def test_the_table_names_both_models() -> None:
    text = str(LFormerConfig(**SMALL).summary(16))
    assert "T4 (dct)" in text
    assert "dense" in text
    assert "parameters: total" in text
