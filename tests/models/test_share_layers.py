"""share_layers: one layer's weights at every depth, as in a model of separate layers that all hold the same."""

import pytest
import torch

from lformer.nn import coupling

from .cases import (
    BASE,
    CAUSAL,
    CLASSIFIER,
    SEQ2SEQ,
    VARIANTS,
    assert_close,
    make_config,
    make_ids,
    make_inputs,
    make_model,
    output_of,
)
from .test_cache import step_by_step

DEPTH = 3
SHARED = {"share_layers": True, "num_hidden_layers": DEPTH, "num_decoder_layers": DEPTH + 1}
KINDS = (BASE, CLASSIFIER, CAUSAL, SEQ2SEQ)
FEW = ("dct", "block-pre", "dft-odd", "orthogonal-rope")


def first_layer(name):
    """The name that the weight of any layer has in the first: "layers.2.x" -> "layers.0.x"."""
    parts = name.split(".")
    if "layers" in parts:
        parts[parts.index("layers") + 1] = "0"
    return ".".join(parts)


def unshared(model, kind, variant):
    """The model with separate layers, every one with the weights of the shared one."""
    twin = make_model(kind, **{**VARIANTS[variant], **SHARED, "share_layers": False})
    state = model.state_dict()
    twin.load_state_dict({name: state[first_layer(name)] for name in twin.state_dict()})
    return twin


@pytest.mark.parametrize("variant", FEW)
@pytest.mark.parametrize("kind", KINDS)
def test_output_and_gradients_are_those_of_equal_separate_layers(kind, variant):
    model = make_model(kind, **VARIANTS[variant], **SHARED)
    twin = unshared(model, kind, variant)
    inputs = make_inputs(kind)
    outputs = [output_of(each, **inputs) for each in (model, twin)]
    assert_close(*outputs)
    for output in outputs:
        (output * torch.arange(output.numel()).view(output.shape).sin()).sum().backward()
    summed = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
    for name, value in twin.named_parameters():
        summed[first_layer(name)] += value.grad
    for name, value in model.named_parameters():
        assert_close(value.grad, summed[name])


@pytest.mark.parametrize("variant", FEW)
def test_the_cache_has_a_place_for_every_depth(variant):
    model = make_model(CAUSAL, **VARIANTS[variant], **SHARED)
    ids = make_ids(length=7)
    assert_close(step_by_step(model, ids, [3, 1, 1, 2]), model(ids, use_cache=False).logits)
    cache = model(ids).past_key_values
    assert len(cache.layers) == DEPTH
    assert not torch.equal(cache.layers[0].keys, cache.layers[1].keys)


@pytest.mark.parametrize("variant", FEW)
def test_the_cache_of_cross_attention(variant):
    model = make_model(SEQ2SEQ, **VARIANTS[variant], **SHARED)
    source, ids = make_ids(), make_ids(length=7, seed=1)
    expected = model(source, decoder_input_ids=ids, use_cache=False).logits
    encoded = model.encoder(source)
    assert_close(step_by_step(model, ids, [3, 1, 1, 2], "decoder_input_ids", encoder_outputs=encoded), expected)
    cache = model(source, decoder_input_ids=ids).past_key_values
    assert len(cache.self_attention_cache.layers) == len(cache.cross_attention_cache.layers) == DEPTH + 1


def test_generate():
    model = make_model(CAUSAL, **SHARED)
    options = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None}
    ids = make_ids()
    with_cache, without = (model.generate(ids, use_cache=cached, **options) for cached in (True, False))
    assert torch.equal(with_cache, without)


@pytest.mark.parametrize("kind", [CLASSIFIER, CAUSAL, SEQ2SEQ])
def test_weights_are_counted_and_saved_once(kind, tmp_path):
    model = make_model(kind, dtype=torch.float32, **SHARED)
    single = make_model(kind, num_hidden_layers=1, num_decoder_layers=1)
    assert model.state_dict().keys() == single.state_dict().keys()
    assert model.num_parameters() == single.num_parameters()
    model.save_pretrained(tmp_path)
    loaded = kind.from_pretrained(tmp_path)
    assert loaded.config.share_layers
    inputs = make_inputs(kind)
    assert torch.equal(output_of(loaded, **inputs), output_of(model, **inputs))


def test_summary_counts_weights_once_and_products_at_every_depth():
    shared, separate = make_config(**SHARED), make_config(**{**SHARED, "share_layers": False})
    assert DEPTH * shared.summary().tensor.stack_parameters == separate.summary().tensor.stack_parameters
    assert shared.summary().tensor.multiply_adds == separate.summary().tensor.multiply_adds
    assert shared.summary().dense == separate.summary().dense


@pytest.mark.parametrize("kind", [CLASSIFIER, SEQ2SEQ])
def test_gradient_checkpointing(kind):
    model = make_model(kind, **SHARED).train()
    inputs, gradients = make_inputs(kind), []
    for recompute in (False, True):
        if recompute:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        model.zero_grad()
        output_of(model, **inputs).sin().sum().backward()
        gradients.append({name: value.grad.clone() for name, value in model.named_parameters()})
    for name, expected in gradients[0].items():
        assert_close(gradients[1][name], expected)


def test_coupling_has_a_value_for_every_depth():
    model = make_model(BASE, **SHARED)
    separate = unshared(model, BASE, "dct")
    values, expected = (coupling(each, {"input_ids": make_ids()}, probes=1) for each in (model, separate))
    assert values == pytest.approx(expected, abs=1e-10)
    assert len(set(values)) == DEPTH
