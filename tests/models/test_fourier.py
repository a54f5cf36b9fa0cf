"""Models whose encoder mixes tokens by Fourier transforms."""

import pytest
import torch

from lformer.nn import coupling

from .cases import BASE, CAUSAL, CLASSIFIER, MASKED, SEQ2SEQ, assert_close, make_ids, make_inputs, make_model, output_of

FOURIER = {"token_mixing": "fourier"}
VARIANTS = {"dct": {}, "standard": {"tube_length": 1}, "pre-shared": {"norm_placement": "pre", "share_layers": True}}


@pytest.mark.parametrize("kind", [BASE, CLASSIFIER, MASKED])
@pytest.mark.parametrize("variant", VARIANTS)
def test_it_trains_and_comes_back(kind, variant, tmp_path):
    model = make_model(kind, dtype=torch.float32, **FOURIER, **VARIANTS[variant])
    inputs = make_inputs(kind)
    output_of(model, **inputs, attention_mask=(inputs["input_ids"] > 4).long()).sin().sum().backward()
    assert all(value.grad.abs().max() > 0 for value in model.parameters())
    model.save_pretrained(tmp_path)
    loaded = kind.from_pretrained(tmp_path)
    assert loaded.config.token_mixing == "fourier"
    assert torch.equal(output_of(loaded, **inputs), output_of(model, **inputs))


def test_content_under_padding_is_not_seen():
    model = make_model(CLASSIFIER, **FOURIER)
    ids, mask = make_ids(), torch.ones(2, 6, dtype=torch.long)
    mask[1, 4:] = 0
    other = ids.clone()
    other[1, 4:] = 3
    assert_close(model(ids, mask).logits, model(other, mask).logits)


@pytest.mark.parametrize("kind", [CAUSAL, SEQ2SEQ])
def test_decoders_refuse_it(kind):
    with pytest.raises(ValueError, match="it is for encoders"):
        make_model(kind, **FOURIER)


def test_there_are_no_maps():
    with pytest.raises(ValueError, match="no attention maps"):
        make_model(BASE, **FOURIER)(make_ids(), output_attentions=True)


def test_slices_meet_only_in_the_norms():
    values = {
        name: coupling(make_model(BASE, transform=name, **FOURIER), {"input_ids": make_ids()})
        for name in ("dct", "identity")
    }
    assert max(values["identity"]) < 1e-10
    assert min(values["dct"]) > 0.001
