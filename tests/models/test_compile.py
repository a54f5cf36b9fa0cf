"""torch.compile(fullgraph=True): one graph for every model and variant, with the results of the eager model."""

from typing import Any

import pytest
import torch

from lformer import LFormerForCausalLM, LFormerForConditionalGeneration, LFormerForSequenceClassification, LFormerModel

from . import tiny

OPTIONS: dict[str, dict[str, Any]] = {
    "shared": {"share_layers": True, "num_hidden_layers": 2},
    "qk_norm": {"qk_norm": True, "positional": "rope"},
    "gated": {"gated": True, "hidden_act": "silu"},
    "shuffled": {"feed_forward_fold": "shuffled"},
    "low rank": {"linear_rank": 2},
    "low rank, dft": {"linear_rank": 2, "transform": "dft"},
}


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def check(model: Any, inputs: dict[str, Any], backend: str, *, tolerance: float = 1e-5) -> None:
    """A forward and a backward pass, compiled as one graph, against eager: the first output and every gradient."""
    results = []
    for call in (model, torch.compile(model, fullgraph=True, backend=backend)):
        model.zero_grad()
        output = call(**inputs)
        # Not the sum of squares: after a norm that is a constant, and its gradient is rounding.
        weight = torch.randn(output[0].shape, generator=torch.Generator().manual_seed(0))
        (output[0] * weight.to(output[0])).sum().backward()
        results.append((output[0].detach(), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}))
    (expected, gradients), (found, compiled_gradients) = results
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)
    assert compiled_gradients.keys() == gradients.keys()
    for name, gradient in gradients.items():
        scale = max(float(gradient.abs().max()), 1.0)
        torch.testing.assert_close(
            compiled_gradients[name] / scale, gradient / scale, atol=tolerance, rtol=tolerance, msg=name
        )


@pytest.mark.parametrize("cls", tiny.ALL)
def test_a_training_step_of_every_model_is_one_graph(cls):
    check(tiny.model(cls).train(), tiny.batch(cls, labels=True), "aot_eager")


@pytest.mark.parametrize("cls", [LFormerModel, LFormerForCausalLM, LFormerForConditionalGeneration])
def test_without_masks(cls):
    inputs = {name: value for name, value in tiny.batch(cls).items() if name != "attention_mask"}
    check(tiny.model(cls, num_hidden_layers=1).train(), inputs, "aot_eager")


@pytest.mark.parametrize("variant", tiny.VARIANTS)
def test_every_variant_is_one_graph(variant):
    model = tiny.model(LFormerModel, num_hidden_layers=1, **tiny.VARIANTS[variant])
    check(model.train(), tiny.batch(LFormerModel), "aot_eager")


@pytest.mark.parametrize("variant", ["dft", "learned-orthogonal", "rope-interleave"])
def test_every_variant_of_the_decoder_is_one_graph(variant):
    model = tiny.model(LFormerForCausalLM, num_hidden_layers=1, **tiny.VARIANTS[variant])
    check(model.train(), tiny.batch(LFormerForCausalLM, labels=True), "aot_eager")


@pytest.mark.parametrize(("cls", "option"), [(LFormerModel, "fourier"), *((LFormerForCausalLM, o) for o in OPTIONS)])
def test_every_option_is_one_graph(cls, option):
    options = OPTIONS.get(option, {"token_mixing": option})
    model = tiny.model(cls, **{"num_hidden_layers": 1, **options})
    check(model.train(), tiny.batch(cls, labels=True), "aot_eager")


@pytest.mark.parametrize(
    ("cls", "variant"), [(LFormerForSequenceClassification, "dct"), (LFormerForCausalLM, "rope-interleave")]
)
def test_inductor(cls, variant):
    model = tiny.model(cls, num_hidden_layers=1, **tiny.VARIANTS[variant])
    check(model.train(), tiny.batch(cls, labels=True), "inductor", tolerance=1e-4)


def test_dropout_compiles():
    model = tiny.model(LFormerForSequenceClassification, num_hidden_layers=1, hidden_dropout_prob=0.5).train()
    inputs = tiny.batch(LFormerForSequenceClassification, labels=True)
    loss = torch.compile(model, fullgraph=True, backend="aot_eager")(**inputs).loss
    loss.backward()
    assert torch.isfinite(loss)
    assert model.model.embed_tokens.weight.grad.abs().sum() > 0


def test_one_graph_serves_other_sizes():
    model = tiny.model(LFormerForSequenceClassification, num_hidden_layers=1)
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
    with torch.no_grad(), torch._dynamo.config.patch(error_on_recompile=True):
        for size, length in ((3, 7), (5, 12), (2, 9)):
            inputs = tiny.batch(LFormerForSequenceClassification, size, length)
            torch.testing.assert_close(compiled(**inputs).logits, model(**inputs).logits)
