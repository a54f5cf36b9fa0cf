"""The models on a GPU: what they compute on the CPU; in float32 and under autocast, compiled, captured, generating."""

from typing import Any

import pytest
import torch

from lformer import LFormerConfig, LFormerForCausalLM, LFormerForConditionalGeneration, LFormerForSequenceClassification

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

SMALL: dict[str, Any] = {
    "vocab_size": 60,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "max_position_embeddings": 48,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "eos_token_id": 1,
    "decoder_start_token_id": 2,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "dct": {},
    "dense": {"tube_length": 1},
    "block": {"transform_scope": "block"},
    "dft": {"transform": "dft"},
    "odd": {"tube_length": 3, "num_attention_heads": 3},
    "orthogonal, interleave, rope, pre": {
        "transform": "learned-orthogonal",
        "interleave": True,
        "positional": "rope",
        "norm_placement": "pre",
    },
    "L-products, learned, interleave, rope, pre": {
        "transform": "learned",
        "attention_domain": "original",
        "activation_domain": "original",
        "interleave": True,
        "positional": "rope",
        "norm_placement": "pre",
        "hidden_act": "gelu",
    },
    "heads original, post": {"attention_domain": "original"},
    "shared, low rank": {"share_layers": True, "linear_rank": 5},
    "gated, shuffled, qk_norm": {
        "gated": True,
        "hidden_act": "silu",
        "feed_forward_fold": "shuffled",
        "qk_norm": True,
        "positional": "rope",
    },
    "gated, shuffled, pre": {"gated": True, "feed_forward_fold": "shuffled", "norm_placement": "pre"},
}
FOR_ENCODERS: dict[str, dict[str, Any]] = {**VARIANTS, "fourier": {"token_mixing": "fourier"}}


def batch() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    mask = torch.ones(4, 24, dtype=torch.long)
    mask[1, 15:] = 0
    return {"input_ids": torch.randint(3, 60, (4, 24), generator=generator), "attention_mask": mask}


def on_gpu(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.cuda() for name, value in inputs.items()}


@pytest.mark.parametrize("options", FOR_ENCODERS.values(), ids=FOR_ENCODERS)
def test_logits_and_gradients_are_those_of_the_cpu(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = LFormerForSequenceClassification(LFormerConfig(**{**SMALL, **options}))
    labels = torch.tensor([0, 1, 1, 0])
    expected = model(**batch(), labels=labels)
    expected.loss.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    model.cuda()
    found = model(**on_gpu(batch()), labels=labels.cuda())
    found.loss.backward()
    torch.testing.assert_close(found.logits.cpu(), expected.logits, rtol=1e-4, atol=1e-5)
    for name, p in model.named_parameters():
        if name in gradients:
            torch.testing.assert_close(p.grad.cpu(), gradients[name], rtol=1e-3, atol=1e-5, msg=name)


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_bf16_autocast_compiled_and_captured(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = LFormerForSequenceClassification(LFormerConfig(**{**SMALL, **options})).cuda().eval()
    inputs = on_gpu(batch())
    with torch.no_grad():
        expected = model(**inputs).logits
        compiled = torch.compile(model, fullgraph=True, mode="reduce-overhead")  # a CUDA graph
        with torch.autocast("cuda", torch.bfloat16):
            for _ in range(3):
                found = compiled(**inputs).logits.clone()
    torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_generation_with_a_cache_is_the_one_without(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    for kind in (LFormerForCausalLM, LFormerForConditionalGeneration):
        model = kind(LFormerConfig(**{**SMALL, **options})).cuda().eval()
        inputs = {"input_ids": batch()["input_ids"].cuda()}
        for beams in (1, 3):
            found = [
                model.generate(**inputs, max_new_tokens=8, num_beams=beams, use_cache=cached)
                for cached in (True, False)
            ]
            assert torch.equal(*found)
