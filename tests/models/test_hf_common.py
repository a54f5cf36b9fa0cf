"""Our equivalents of transformers' common model tests, which its wheel does not ship: what any of its models can do."""

import inspect

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, StaticCache
from transformers.modeling_layers import GradientCheckpointingLayer

from lformer import (
    LFormerConfig,
    LFormerForCausalLM,
    LFormerForConditionalGeneration,
    LFormerForMaskedLM,
    LFormerForSequenceClassification,
    LFormerModel,
)

from . import tiny

over_classes = pytest.mark.parametrize("cls", tiny.ALL)
over_language_models = pytest.mark.parametrize("cls", [LFormerForMaskedLM, *tiny.GENERATIVE])


@torch.no_grad()
def first(model, inputs):
    return model(**inputs)[0]


@over_classes
def test_saved_and_loaded_alike_with_no_key_left_over(cls, tmp_path):
    model = tiny.model(cls)
    model.save_pretrained(tmp_path)
    again, info = cls.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    assert torch.equal(first(again.eval(), tiny.batch(cls)), first(model, tiny.batch(cls)))


@pytest.mark.parametrize("variant", tiny.VARIANTS)
def test_loading_fills_every_tensor_that_is_not_in_the_file(variant, tmp_path):
    """Models are built on the meta device: fixed matrices and tables come from _init_weights."""
    model = tiny.model(LFormerForCausalLM, **tiny.VARIANTS[variant])
    model.save_pretrained(tmp_path)
    again = LFormerForCausalLM.from_pretrained(tmp_path)
    tensors = dict([*again.named_parameters(), *again.named_buffers()])
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        assert torch.equal(tensors[name], value), name


@pytest.mark.parametrize("cls", [LFormerForSequenceClassification, LFormerForMaskedLM, LFormerForCausalLM])
def test_a_head_loads_the_weights_of_the_base_model(cls, tmp_path):
    base = tiny.model(LFormerModel, seed=5, is_decoder=cls is LFormerForCausalLM)
    base.save_pretrained(tmp_path)
    model = cls.from_pretrained(tmp_path).base_model
    assert all(torch.equal(value, base.state_dict()[name]) for name, value in model.state_dict().items())


@over_classes
def test_built_on_the_meta_device(cls):
    with torch.device("meta"):
        model = cls(tiny.config())
    assert {value.device.type for value in model.parameters()} == {"meta"}


@over_classes
def test_tuples_hold_what_the_named_outputs_hold(cls):
    model, inputs = tiny.model(cls), tiny.batch(cls, labels=True)
    options = {"output_hidden_states": True, "output_attentions": True}
    named = model(**inputs, **options).to_tuple()
    plain = model(**inputs, **options, return_dict=False)
    assert isinstance(plain, tuple)
    assert len(plain) == len(named)
    torch.testing.assert_close(next(part for part in plain if part is not None), named[0])


@over_classes
def test_hidden_states_and_attentions_from_the_call_or_the_config(cls):
    prefixes = ("encoder_", "decoder_") if cls is LFormerForConditionalGeneration else ("",)
    inputs = tiny.batch(cls)
    for model, options in (
        (tiny.model(cls), {"output_hidden_states": True, "output_attentions": True}),
        (tiny.model(cls, output_hidden_states=True, output_attentions=True), {}),
    ):
        output = model(**inputs, **options)
        for prefix in prefixes:
            length = inputs["decoder_input_ids" if prefix == "decoder_" else "input_ids"].shape[1]
            assert [state.shape for state in output[f"{prefix}hidden_states"]] == 3 * [(3, length, 16)]
            maps = output[f"{prefix}attentions"]
            assert [part.shape for part in maps] == 2 * [(3, 4, length, length)]
            torch.testing.assert_close(maps[0].sum(-1)[1:], torch.ones(2, 4, length))
    assert tiny.model(cls)(**inputs).get("hidden_states") is None


@over_classes
def test_eager_attention_equals_sdpa(cls):
    model, inputs = tiny.model(cls), tiny.batch(cls)
    expected = first(model, inputs)
    model.set_attn_implementation("eager")
    found = first(model, inputs)
    kept = slice(1, None) if cls is LFormerForCausalLM else slice(None)  # the first text's padding means nothing
    torch.testing.assert_close(found[kept], expected[kept], atol=1e-5, rtol=1e-5)


@over_classes
def test_inputs_embeds_equal_input_ids(cls):
    model, inputs = tiny.model(cls), tiny.batch(cls)
    embeds = dict(inputs)
    for name in ("input_ids", "decoder_input_ids"):
        if name in embeds:
            embeds[name.replace("input_ids", "inputs_embeds")] = model.get_input_embeddings()(embeds.pop(name))
    assert torch.equal(first(model, embeds), first(model, inputs))


@over_classes
@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_changes_no_gradient(cls, reentrant):
    inputs = tiny.batch(cls, labels=True)
    model = tiny.model(cls).train()
    gradients = []
    for enabled in (False, True):
        model.zero_grad()
        if enabled:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
            model.enable_input_require_grads()
            layers = [layer for layer in model.modules() if isinstance(layer, GradientCheckpointingLayer)]
            assert layers
            assert all(layer.gradient_checkpointing for layer in layers)
        model(**inputs)[0].square().sum().backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    for name, value in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], value, atol=1e-5, rtol=1e-4, msg=name)


@over_classes
def test_resized_token_embeddings(cls):
    model, inputs = tiny.model(cls), tiny.batch(cls)
    before = first(model, inputs)
    model.resize_token_embeddings(tiny.VOCAB + 5, mean_resizing=False)
    assert model.config.vocab_size == model.get_input_embeddings().num_embeddings == tiny.VOCAB + 5
    after = first(model, inputs)
    if after.shape[-1] == tiny.VOCAB + 5:
        after = after[..., : tiny.VOCAB]
    assert torch.equal(after, before)
    inputs["input_ids"] = inputs["input_ids"].clamp_min(tiny.VOCAB + 4)
    assert torch.isfinite(first(model, inputs)).all()


@over_language_models
def test_tied_heads_share_one_tensor_also_after_loading(cls, tmp_path):
    model = tiny.model(cls)
    model.save_pretrained(tmp_path)
    for candidate in (model, cls.from_pretrained(tmp_path)):
        assert candidate.get_output_embeddings().weight is candidate.get_input_embeddings().weight
    untied = tiny.model(cls, tie_word_embeddings=False)
    assert untied.get_output_embeddings().weight is not untied.get_input_embeddings().weight


@over_classes
def test_deterministic_in_eval_and_random_in_training(cls):
    model, inputs = tiny.model(cls, hidden_dropout_prob=0.5), tiny.batch(cls)
    assert torch.equal(first(model, inputs), first(model, inputs))
    assert not torch.equal(first(model.train(), inputs), first(model, inputs))


def test_classes_agree_on_names():
    for cls in tiny.ALL:
        assert next(name for name in inspect.signature(cls.forward).parameters if name != "self") == cls.main_input_name
        assert cls.can_generate() == (cls in tiny.GENERATIVE)
        assert {"LEncoderLayer", "LDecoderLayer"} == set(cls._no_split_modules)


def test_device_map_auto(tmp_path):
    model = tiny.model(LFormerForCausalLM)
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path, device_map="auto")
    inputs = {name: value.to(again.device) for name, value in tiny.batch(LFormerForCausalLM).items()}
    torch.testing.assert_close(first(again.eval(), inputs).cpu(), first(model, tiny.batch(LFormerForCausalLM)))


def test_config_survives_json_and_keeps_common_fields(tmp_path):
    config = tiny.config(transform="dft", output_attentions=True, id2label={0: "a", 1: "b"}, num_labels=2)
    config.save_pretrained(tmp_path)
    again = AutoConfig.from_pretrained(tmp_path)
    assert type(again) is LFormerConfig
    assert {**again.to_dict(), "_name_or_path": ""} == config.to_dict()
    assert again.num_labels == 2


# Generation


@pytest.mark.parametrize("cls", tiny.GENERATIVE)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"do_sample": True, "top_k": 5, "top_p": 0.9},
        {"num_beams": 3, "num_return_sequences": 2},
        {"num_beams": 2, "do_sample": True},
        {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
        {"cache_implementation": "static"},
    ],
    ids=str,
)
def test_every_way_to_generate(cls, options):
    inputs = {name: value for name, value in tiny.batch(cls, 2).items() if not name.startswith("decoder")}
    output = tiny.model(cls).generate(
        **inputs, max_new_tokens=4, min_new_tokens=4, return_dict_in_generate=True, output_scores=True, **options
    )
    start = 1 if cls is LFormerForConditionalGeneration else 7
    assert output.sequences.shape == (2 * options.get("num_return_sequences", 1), start + 4)


@pytest.mark.parametrize("how", ["assistant", "prompt lookup"])
def test_assisted_generation_gives_the_greedy_text(how):
    model = tiny.model(LFormerForCausalLM)
    by_assistant = {"assistant_model": tiny.model(LFormerForCausalLM, seed=7)}
    prompt = tiny.batch(LFormerForCausalLM, 1)["input_ids"]
    options = {"attention_mask": torch.ones_like(prompt), "max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    expected = model.generate(prompt, **options)
    help_with = by_assistant if how == "assistant" else {"prompt_lookup_num_tokens": 2}
    assert torch.equal(model.generate(prompt, **help_with, **options), expected)


def test_generate_from_embeddings():
    model, inputs = tiny.model(LFormerForCausalLM), tiny.batch(LFormerForCausalLM)
    options = {"attention_mask": inputs["attention_mask"], "max_new_tokens": 5, "min_new_tokens": 5}
    embeds = model.get_input_embeddings()(inputs["input_ids"])
    expected = model.generate(inputs["input_ids"], **options)[:, inputs["input_ids"].shape[1] :]
    assert torch.equal(model.generate(inputs_embeds=embeds, **options), expected)


def test_a_conversation_goes_on_from_its_cache():
    model = tiny.model(LFormerForCausalLM)
    prompt = tiny.batch(LFormerForCausalLM)["input_ids"]
    options = {"do_sample": False, "min_new_tokens": 3, "pad_token_id": 0}
    begun = model.generate(prompt, max_new_tokens=3, return_dict_in_generate=True, **options)
    gone_on = model.generate(begun.sequences, past_key_values=begun.past_key_values, max_new_tokens=3, **options)
    whole = model.generate(prompt, max_new_tokens=6, **{**options, "min_new_tokens": 6})
    assert torch.equal(gone_on, whole)


def test_generation_takes_only_new_tokens_when_there_is_a_cache():
    model = tiny.model(LFormerForCausalLM)
    prompt = tiny.batch(LFormerForCausalLM)["input_ids"]
    cache = model(prompt[:, :5]).past_key_values
    prepared = model.prepare_inputs_for_generation(
        prompt, past_key_values=cache, next_sequence_length=2, use_cache=True
    )
    assert prepared["input_ids"].shape == (3, 2)
    assert prepared["past_key_values"] is cache


def test_a_static_cache_gives_the_logits_of_no_cache():
    model = tiny.model(LFormerForCausalLM)
    tokens = tiny.batch(LFormerForCausalLM)["input_ids"]
    cache = StaticCache(config=model.config, max_cache_len=16)
    with torch.no_grad():
        parts = [model(part, past_key_values=cache).logits for part in tokens.split([4, 1, 1, 1], dim=1)]
        expected = model(tokens, use_cache=False).logits
    torch.testing.assert_close(torch.cat(parts, dim=1), expected, atol=1e-5, rtol=1e-5)


def test_problem_types():
    inputs = tiny.batch(LFormerForSequenceClassification)
    for problem, labels in (
        ("regression", torch.randn(3, 3)),
        ("single_label_classification", torch.tensor([0, 2, 1])),
        ("multi_label_classification", torch.ones(3, 3)),
    ):
        loss = tiny.model(LFormerForSequenceClassification, problem_type=problem)(**inputs, labels=labels).loss
        assert loss.ndim == 0
        assert torch.isfinite(loss)
