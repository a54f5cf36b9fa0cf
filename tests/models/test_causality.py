"""A causal model's logits do not know later tokens; an encoder's do."""

import pytest
import torch

from .cases import CAUSAL, MASKED, SEQ2SEQ, VARIANTS, T, assert_differs, make_inputs, make_model, output_of

over_variants = pytest.mark.parametrize("variant", VARIANTS)


def change_later(inputs, name, place):
    changed = dict(inputs)
    changed[name] = inputs[name].clone()
    changed[name][:, place:] = 2 + (changed[name][:, place:] + 3) % 20
    return changed


@over_variants
@pytest.mark.parametrize(("kind", "name"), [(CAUSAL, "input_ids"), (SEQ2SEQ, "decoder_input_ids")])
def test_later_tokens_change_nothing_before_them(variant, kind, name):
    model = make_model(kind, **VARIANTS[variant])
    inputs = make_inputs(kind)
    before = output_of(model, **inputs)
    for place in range(1, inputs[name].shape[1]):
        after = output_of(model, **change_later(inputs, name, place))
        assert torch.equal(before[:, :place], after[:, :place])
        assert_differs(before[:, place:], after[:, place:])


@over_variants
def test_with_maps_and_with_padding_too(variant):
    model = make_model(CAUSAL, **VARIANTS[variant])
    inputs = make_inputs(CAUSAL)
    mask = torch.ones(2, T, dtype=torch.long)
    mask[0, :2] = 0
    for options in ({"output_attentions": True}, {"attention_mask": mask}):
        before, after = (output_of(model, **i, **options) for i in (inputs, change_later(inputs, "input_ids", 4)))
        assert torch.equal(before[:, :4], after[:, :4])
        assert_differs(before, after)


def test_an_encoder_looks_both_ways():
    inputs = make_inputs(MASKED)
    model = make_model(MASKED)
    changed = output_of(model, **change_later(inputs, "input_ids", 4))
    assert_differs(output_of(model, **inputs)[:, :4], changed[:, :4])
    model = make_model(SEQ2SEQ)
    inputs = make_inputs(SEQ2SEQ)
    changed = output_of(model, **change_later(inputs, "input_ids", 4))
    assert_differs(output_of(model, **inputs)[:, :1], changed[:, :1])
