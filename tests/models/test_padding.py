"""The same text in a longer batch gives the same logits, whichever side the padding is on."""

import pytest
import torch

from .cases import (
    CAUSAL,
    CLASSIFIER,
    HEADS,
    MASKED,
    POSITIONAL,
    SEQ2SEQ,
    VARIANTS,
    T,
    assert_close,
    assert_differs,
    make_ids,
    make_inputs,
    make_model,
    output_of,
    pad,
)

sides = pytest.mark.parametrize("side", ["left", "right"])
over_heads = pytest.mark.parametrize("kind", HEADS)


def padded_output(model, kind, inputs, side, token=0, count=3):
    mask = torch.ones_like(inputs["input_ids"])
    ids, mask = pad(inputs["input_ids"], mask, count, side, token)
    output = output_of(model, **{**inputs, "input_ids": ids, "attention_mask": mask})
    if kind in (MASKED, CAUSAL):
        return output[:, count:] if side == "left" else output[:, :-count]
    return output


@sides
@over_heads
@pytest.mark.parametrize("positional", POSITIONAL)
def test_padding_changes_nothing(kind, positional, side):
    model = make_model(kind, positional=positional)
    inputs = make_inputs(kind)
    expected = output_of(model, **inputs)
    assert_close(padded_output(model, kind, inputs, side), expected)
    assert_close(padded_output(model, kind, inputs, side, token=7), expected)  # nor what the padding is


@sides
@over_heads
@pytest.mark.parametrize("variant", VARIANTS)
def test_padding_changes_nothing_in_any_variant(kind, variant, side):
    model = make_model(kind, **VARIANTS[variant])
    inputs = make_inputs(kind)
    assert_close(padded_output(model, kind, inputs, side), output_of(model, **inputs))


@sides
@over_heads
def test_each_text_of_a_mixed_batch_is_as_if_alone(kind, side):
    model = make_model(kind)
    long, short = make_inputs(kind, batch=1), make_inputs(kind, batch=1, length=T, seed=1)
    short["input_ids"] = short["input_ids"][:, :4]
    ids, mask = pad(short["input_ids"], torch.ones(1, 4, dtype=torch.long), T - 4, side)
    both = {name: torch.cat([value, short[name]]) for name, value in long.items() if name != "input_ids"}
    both["input_ids"] = torch.cat([long["input_ids"], ids])
    both["attention_mask"] = torch.cat([torch.ones(1, T, dtype=torch.long), mask])
    output = output_of(model, **both)
    keep = mask[0].bool() if kind in (MASKED, CAUSAL) else slice(None)
    assert_close(output[:1], output_of(model, **long))
    assert_close(output[1:, keep] if kind in (MASKED, CAUSAL) else output[1:], output_of(model, **short))


def test_padding_of_the_decoder():
    model = make_model(SEQ2SEQ)
    inputs = make_inputs(SEQ2SEQ)
    expected = output_of(model, **inputs)
    for side in ("left", "right"):
        ids, mask = pad(inputs["decoder_input_ids"], torch.ones_like(inputs["decoder_input_ids"]), 2, side)
        output = output_of(model, input_ids=inputs["input_ids"], decoder_input_ids=ids, decoder_attention_mask=mask)
        assert_close(output[:, 2:] if side == "left" else output[:, :-2], expected)


@pytest.mark.parametrize("kind", [CLASSIFIER, MASKED, SEQ2SEQ])  # a causal model never looks at what follows
def test_without_the_mask_padding_is_seen(kind):
    model = make_model(kind)
    inputs = make_inputs(kind)
    ids, _ = pad(inputs["input_ids"], torch.ones_like(inputs["input_ids"]), 3, "right", token=7)
    output = output_of(model, **{**inputs, "input_ids": ids})
    assert_differs(output[:, :T] if kind is MASKED else output, output_of(model, **inputs))


@pytest.mark.parametrize("variant", VARIANTS)
@over_heads
def test_a_text_of_padding_alone_gives_finite_logits(kind, variant):
    model = make_model(kind, dtype=torch.float32, **VARIANTS[variant])
    inputs = make_inputs(kind)
    mask = torch.ones_like(inputs["input_ids"])
    mask[1] = 0
    for options in ({}, {"output_attentions": True}):
        output = output_of(model, **inputs, attention_mask=mask, **options)
        assert torch.isfinite(output).all()
        alone = {name: value[:1] for name, value in inputs.items()}
        assert_close(output[:1], output_of(model, **alone), 1e-5)
    output.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_a_mask_may_be_boolean_or_float():
    model = make_model(CLASSIFIER)
    ids, mask = pad(make_ids(), torch.ones(2, T, dtype=torch.long), 3, "right")
    expected = output_of(model, input_ids=ids, attention_mask=mask)
    for dtype in (torch.bool, torch.float32, torch.int32):
        assert_close(output_of(model, input_ids=ids, attention_mask=mask.to(dtype)), expected)
