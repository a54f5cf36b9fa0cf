"""Hidden states, attention maps, and both ways to compute attention."""

import pytest
import torch

from .cases import (
    BASE,
    CAUSAL,
    CLASSIFIER,
    HEADS,
    MASKED,
    SEQ2SEQ,
    VARIANTS,
    T,
    assert_close,
    assert_differs,
    make_ids,
    make_inputs,
    make_model,
    output_of,
)

over_variants = pytest.mark.parametrize("variant", VARIANTS)


def num_maps(config):
    layer = config.layer_config()
    if layer.attention_domain == "original":
        return config.num_attention_heads
    return config.num_attention_heads - layer.num_complex * layer.heads_per_slice


@over_variants
@pytest.mark.parametrize("kind", [BASE, CLASSIFIER, MASKED, CAUSAL])
def test_maps_and_hidden_states(kind, variant):
    model = make_model(kind, **VARIANTS[variant])
    inputs = make_inputs(kind)
    expected = output_of(model, **inputs)
    outputs = model(**inputs, output_attentions=True, output_hidden_states=True)
    assert_close(output_of(model, **inputs, output_attentions=True), expected)
    assert len(outputs.attentions) == 2
    assert len(outputs.hidden_states) == 3
    for maps in outputs.attentions:
        assert maps.shape == (2, num_maps(model.config), T, T)
        assert_close(maps.sum(-1), torch.ones_like(maps[..., 0]))
        assert (maps.triu(1).abs().max() == 0) == (kind is CAUSAL)
    for state in outputs.hidden_states:
        assert state.shape == (2, T, model.config.hidden_size)
    if kind is BASE:
        assert torch.equal(outputs.hidden_states[-1], outputs.last_hidden_state)
    assert_differs(outputs.hidden_states[0], outputs.hidden_states[1])
    plain = model(**inputs)
    assert plain.attentions is None
    assert plain.hidden_states is None


@over_variants
def test_maps_of_a_translation(variant):
    model = make_model(SEQ2SEQ, **VARIANTS[variant])
    inputs = make_inputs(SEQ2SEQ)
    outputs = model(**inputs, output_attentions=True, output_hidden_states=True)
    heads, targets = num_maps(model.config), inputs["decoder_input_ids"].shape[1]
    shapes = {"encoder_attentions": (T, T), "decoder_attentions": (targets, targets), "cross_attentions": (targets, T)}
    for name, shape in shapes.items():
        assert [tuple(maps.shape) for maps in outputs[name]] == [(2, heads, *shape)] * 2
        for maps in outputs[name]:
            assert_close(maps.sum(-1), torch.ones_like(maps[..., 0]))
    assert len(outputs.encoder_hidden_states) == len(outputs.decoder_hidden_states) == 3
    assert torch.equal(outputs.encoder_last_hidden_state, outputs.encoder_hidden_states[-1])
    assert_close(outputs.logits, model(**inputs).logits)
    assert model(**inputs).cross_attentions is None


@over_variants
@pytest.mark.parametrize("kind", HEADS)
def test_eager_attention_is_the_same(kind, variant, tmp_path):
    model = make_model(kind, **VARIANTS[variant])
    model.save_pretrained(tmp_path)
    eager = kind.from_pretrained(tmp_path, attn_implementation="eager", dtype=torch.float64).eval()
    assert eager.config._attn_implementation == "eager"
    inputs = make_inputs(kind)
    mask = torch.ones(2, T, dtype=torch.long)
    mask[1, :2] = 0
    for options in ({}, {"attention_mask": mask}):
        expected, actual = (output_of(m, **inputs, **options) for m in (model, eager))
        if kind in (MASKED, CAUSAL):
            keep = options.get("attention_mask", torch.ones_like(mask)).bool()
            actual, expected = actual[keep], expected[keep]
        assert_close(actual, expected, 1e-9)
    assert eager(**inputs).get("attentions") is None


def test_tuples_and_configured_outputs():
    model = make_model(CLASSIFIER)
    (logits,) = model(make_ids(), return_dict=False)
    assert torch.equal(logits, model(make_ids()).logits)
    model.config.output_hidden_states = True
    assert len(model(make_ids()).hidden_states) == 3


def test_embeddings_may_be_given_instead_of_tokens():
    model = make_model(CAUSAL)
    ids = make_ids()
    assert_close(model(inputs_embeds=model.get_input_embeddings()(ids)).logits, model(ids).logits)
    for wrong in ({}, {"input_ids": ids, "inputs_embeds": model.get_input_embeddings()(ids)}):
        with pytest.raises(ValueError, match="either input_ids or inputs_embeds"):
            model(**wrong)


@pytest.mark.parametrize("scaled", [True, False])
def test_what_enters_the_stack(scaled):
    """Token embeddings times sqrt(D), as in the original Transformer, plus positions."""
    model = make_model(BASE, scale_embedding=scaled, positional="linear")
    entered = model(make_ids(), output_hidden_states=True).hidden_states[0]
    expected = model.positions(model.embed_tokens(make_ids()) * (4.0 if scaled else 1.0))
    assert_close(entered, expected)


def test_only_the_last_logits_if_asked():
    model = make_model(CAUSAL)
    assert_close(model(make_ids(), logits_to_keep=2).logits, model(make_ids()).logits[:, -2:])


def test_blocks_make_a_model_of_independent_ones():
    """The whole stack in block scope, against P models of width M on slices of the transform domain."""
    changes = {"positional": "none", "scale_embedding": False}
    model = make_model(BASE, transform_scope="block", **changes)
    sizes = {"hidden_size": 4, "tube_length": 1, "num_attention_heads": 2, "intermediate_size": 8}
    x = torch.randn(2, T, 16, dtype=torch.float64)
    transform = model.layers[0].transform
    xh = transform(x.unflatten(-1, (4, 4)).movedim(2, 0).contiguous())
    yh = []
    for k in range(4):
        alone = make_model(BASE, **sizes, **changes)
        state = {name: value[k : k + 1] for name, value in model.state_dict().items() if name.startswith("layers")}
        alone.load_state_dict(state, strict=False)
        yh.append(alone(inputs_embeds=xh[k]).last_hidden_state)
    expected = transform.inverse(torch.stack(yh)).movedim(0, 2).flatten(-2)
    assert_close(model(inputs_embeds=x).last_hidden_state, expected)
    other = make_model(BASE, transform_scope="sublayer", **changes)
    other.load_state_dict(model.state_dict())
    assert_differs(other(inputs_embeds=x).last_hidden_state, expected, 0.05)
