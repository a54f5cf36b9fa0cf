"""A saved model comes back the same: weights from safetensors, known numbers made again."""

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
)

from lformer import LFormerConfig

from .cases import (
    BASE,
    CAUSAL,
    CLASSIFIER,
    HEADS,
    MASKED,
    POSITIONAL,
    SEQ2SEQ,
    VARIANTS,
    assert_close,
    assert_differs,
    make_config,
    make_inputs,
    make_model,
    output_of,
)

TRANSFORMS = ("dct", "dst", "hartley", "hadamard", "haar", "dft", "fft", "identity", "random", "learned")
LM_HEADS = {
    "tied": {},
    "untied": {"tie_word_embeddings": False},
    "tensor": {"tie_word_embeddings": False, "output_projection": "tensor"},
    "tensor-dft": {"tie_word_embeddings": False, "output_projection": "tensor", "transform": "dft", "vocab_size": 31},
}
AUTO = {
    BASE: AutoModel,
    CLASSIFIER: AutoModelForSequenceClassification,
    MASKED: AutoModelForMaskedLM,
    CAUSAL: AutoModelForCausalLM,
    SEQ2SEQ: AutoModelForSeq2SeqLM,
}


def assert_survives(model, kind, folder, loader=None):
    model = model.float()
    model.save_pretrained(folder)
    loaded = (loader or kind).from_pretrained(folder).eval()
    assert type(loaded) is kind
    inputs = make_inputs(kind)
    assert torch.equal(output_of(loaded, **inputs), output_of(model, **inputs))
    state, expected = loaded.state_dict(), model.state_dict()
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], value) for name, value in expected.items())
    for name, buffer in model.named_buffers():
        assert torch.equal(loaded.get_buffer(name), buffer), name
    return loaded


@pytest.mark.parametrize("transform", [*TRANSFORMS, "learned-orthogonal"])
@pytest.mark.parametrize("scope", ["sublayer", "block"])
def test_every_transform(transform, scope, tmp_path):
    assert_survives(make_model(BASE, transform=transform, transform_scope=scope), BASE, tmp_path)


@pytest.mark.parametrize("positional", POSITIONAL)
def test_every_positional_encoding(positional, tmp_path):
    assert_survives(make_model(CAUSAL, positional=positional), CAUSAL, tmp_path)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", HEADS)
def test_every_model(kind, variant, tmp_path):
    assert_survives(make_model(kind, **VARIANTS[variant]), kind, tmp_path, AUTO[kind])


@pytest.mark.parametrize("head", LM_HEADS)
@pytest.mark.parametrize("kind", [MASKED, CAUSAL, SEQ2SEQ])
def test_every_vocabulary_head(kind, head, tmp_path):
    model = make_model(kind, **LM_HEADS[head])
    loaded = assert_survives(model, kind, tmp_path)
    embedding = loaded.get_input_embeddings().weight
    shared = loaded.lm_head.weight.data_ptr() == embedding.data_ptr()
    assert shared == (head == "tied")
    assert loaded(**make_inputs(kind)).logits.shape[-1] == model.config.vocab_size


def test_a_tied_head_is_saved_once_and_known_numbers_never(tmp_path):
    make_model(CAUSAL, positional="linear").save_pretrained(tmp_path)
    names = load_file(tmp_path / "model.safetensors").keys()
    assert "model.embed_tokens.weight" in names
    assert "lm_head.weight" not in names
    assert not [name for name in names if "transform" in name or "positions" in name]


@pytest.mark.parametrize("kind", [CLASSIFIER, MASKED, CAUSAL])
def test_the_base_model_goes_into_a_head_and_back(kind, tmp_path):
    base = make_model(BASE, dtype=torch.float32, is_decoder=kind is CAUSAL)
    inputs = make_inputs(BASE)
    expected = output_of(base, **inputs)
    base.save_pretrained(tmp_path / "base")
    headed = kind.from_pretrained(tmp_path / "base").eval()
    assert torch.equal(output_of(headed.model, **inputs), expected)
    assert torch.isfinite(headed(**inputs).logits).all()
    headed.save_pretrained(tmp_path / "headed")
    assert torch.equal(output_of(BASE.from_pretrained(tmp_path / "headed").eval(), **inputs), expected)


def test_what_a_checkpoint_lacks_starts_as_the_table_says(tmp_path):
    """Loading makes a model without values first; what is missing must not keep what was in memory."""
    make_model(BASE, dtype=torch.float32).save_pretrained(tmp_path)
    torch.manual_seed(0)
    head = CLASSIFIER.from_pretrained(tmp_path, num_labels=50).classifier
    assert head.bias.abs().max() == 0
    assert head.weight.std().item() == pytest.approx(1 / (3 * 16) ** 0.5, rel=0.15)


def test_configurations_survive(tmp_path):
    for changes in VARIANTS.values():
        config = make_config(num_labels=7, **changes)
        config.save_pretrained(tmp_path)
        loaded = LFormerConfig.from_pretrained(tmp_path)
        assert loaded.to_dict() == config.to_dict()
        assert isinstance(AutoConfig.from_pretrained(tmp_path), LFormerConfig)
        assert {name: getattr(loaded, name) for name in changes} == changes


def test_a_head_does_not_change_the_configuration_it_was_given():
    config = make_config()
    CAUSAL(config), SEQ2SEQ(config)
    assert not config.is_decoder
    assert not config.is_encoder_decoder
    assert CAUSAL(config).config.is_decoder
    assert SEQ2SEQ(config).config.is_encoder_decoder


def test_another_transform_would_be_seen(tmp_path):
    model = make_model(BASE, dtype=torch.float32)
    model.save_pretrained(tmp_path)
    other = BASE.from_pretrained(tmp_path, transform="hartley").eval()
    assert_differs(output_of(other, **make_inputs(BASE)), output_of(model, **make_inputs(BASE)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", [CLASSIFIER, CAUSAL, SEQ2SEQ])
def test_half_precision(kind, variant, dtype, tmp_path):
    model = make_model(kind, dtype=torch.float32, **VARIANTS[variant])
    model.save_pretrained(tmp_path)
    inputs = make_inputs(kind)
    expected = output_of(model, **inputs)
    loaded = kind.from_pretrained(tmp_path, dtype=dtype).eval()
    assert {parameter.dtype for parameter in loaded.parameters()} == {dtype}
    for half in (loaded, model.to(dtype)):
        output = output_of(half, **inputs)
        assert output.dtype == dtype
        assert_close(output.float(), expected, 0.1 if dtype == torch.bfloat16 else 0.02)
    assert_close(output_of(loaded, **inputs), output_of(model, **inputs), 0.05)
