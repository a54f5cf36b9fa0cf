"""Keys and values from a cache give the logits of the whole text, token by token and chunk by chunk."""

import pytest
import torch
from transformers.cache_utils import DynamicCache, EncoderDecoderCache, StaticCache

from .cases import CAUSAL, SEQ2SEQ, VARIANTS, assert_close, assert_differs, make_ids, make_model, pad

over_variants = pytest.mark.parametrize("variant", VARIANTS)
LENGTH = 7


def step_by_step(model, ids, sizes, name="input_ids", mask_name="attention_mask", mask=None, **inputs):
    """Logits of the whole text, fed in chunks of the given sizes."""
    cache, logits, start = inputs.pop("past_key_values", None), [], 0
    for size in sizes:
        end = start + size
        options = {mask_name: mask[:, :end]} if mask is not None else {}
        outputs = model(**{name: ids[:, start:end]}, past_key_values=cache, use_cache=True, **inputs, **options)
        cache = outputs.past_key_values
        logits.append(outputs.logits)
        start = end
    assert start == ids.shape[1]
    assert cache.get_seq_length() == start
    return torch.cat(logits, dim=1)


@over_variants
@pytest.mark.parametrize("sizes", [[1] * LENGTH, [3, 1, 1, 2], [LENGTH - 1, 1]], ids=str)
def test_causal_model(variant, sizes):
    model = make_model(CAUSAL, **VARIANTS[variant])
    ids = make_ids(length=LENGTH)
    expected = model(ids, use_cache=False).logits
    assert_close(step_by_step(model, ids, sizes), expected)


@over_variants
def test_causal_model_with_left_padding(variant):
    model = make_model(CAUSAL, **VARIANTS[variant])
    ids, mask = pad(make_ids(length=LENGTH - 2), torch.ones(2, LENGTH - 2, dtype=torch.long), 2, "left")
    mask[0], ids[0] = 1, make_ids(1, LENGTH, seed=5)[0]
    expected = model(ids, attention_mask=mask, use_cache=False).logits
    cached = step_by_step(model, ids, [4, 1, 2], mask=mask)
    assert_close(cached[0], expected[0])
    assert_close(cached[1, 2:], expected[1, 2:])


@over_variants
@pytest.mark.parametrize("sizes", [[1] * LENGTH, [3, 1, 1, 2]], ids=str)
def test_cross_attention(variant, sizes):
    model = make_model(SEQ2SEQ, **VARIANTS[variant])
    source, ids = make_ids(), make_ids(length=LENGTH, seed=1)
    mask = torch.ones_like(source)
    mask[1, 4:] = 0
    expected = model(source, mask, decoder_input_ids=ids, use_cache=False).logits
    encoded = model.encoder(source, mask)
    cached = step_by_step(
        model, ids, sizes, "decoder_input_ids", encoder_outputs=encoded, attention_mask=mask, mask_name="_"
    )
    assert_close(cached, expected)


def test_the_memory_is_projected_once():
    model = make_model(SEQ2SEQ)
    source, ids = make_ids(), make_ids(seed=1)
    encoded = model.encoder(source)
    calls = []
    for layer in model.decoder.layers:
        projection = layer.cross_attention.key_value
        projection.slices = lambda x, inner=projection.slices: calls.append(1) or inner(x)
    step_by_step(model, ids, [1] * 6, "decoder_input_ids", encoder_outputs=encoded)
    assert len(calls) == len(model.decoder.layers)


def test_a_cache_holds_slices_as_heads():
    model = make_model(CAUSAL)
    cache = model(make_ids(), use_cache=True).past_key_values
    assert isinstance(cache, DynamicCache)
    assert len(cache.layers) == 2
    assert cache.layers[0].keys.shape == (2, 8, 6, 2)  # (B, P H, T, E)
    model = make_model(SEQ2SEQ)
    cache = model(make_ids(), decoder_input_ids=make_ids(length=3), use_cache=True).past_key_values
    assert isinstance(cache, EncoderDecoderCache)
    assert cache.self_attention_cache.layers[0].keys.shape == (2, 8, 3, 2)
    assert cache.cross_attention_cache.layers[0].keys.shape == (2, 8, 6, 2)


@pytest.mark.parametrize("layers", [(1, 3), (3, 1)])
def test_encoder_and_decoder_of_different_depth(layers):
    model = make_model(SEQ2SEQ, num_hidden_layers=layers[0], num_decoder_layers=layers[1])
    source, ids = make_ids(), make_ids(seed=1)
    expected = model(source, decoder_input_ids=ids, use_cache=False).logits
    encoded = model.encoder(source)
    assert_close(step_by_step(model, ids, [2, 1, 3], "decoder_input_ids", encoder_outputs=encoded), expected)


def test_a_stale_cache_is_seen():
    model = make_model(CAUSAL)
    ids = make_ids(length=LENGTH)
    other = model(make_ids(length=3, seed=9), use_cache=True).past_key_values
    wrong = model(ids[:, 3:], past_key_values=other).logits
    assert_differs(wrong, model(ids).logits[:, 3:])


@pytest.mark.parametrize("variant", ["dct", "dft-odd", "orthogonal-rope"])
def test_a_static_cache(variant):
    model = make_model(CAUSAL, **VARIANTS[variant])
    ids = make_ids(length=LENGTH)
    with torch.no_grad():
        expected = model(ids, use_cache=False).logits
        cache = StaticCache(config=model.config, max_cache_len=12)
        assert_close(step_by_step(model, ids, [3, 1, 1, 2], past_key_values=cache), expected)


def test_too_long_a_text_is_refused_with_the_limit():
    model = make_model(CAUSAL)
    with pytest.raises(ValueError, match=r"25 tokens, but max_position_embeddings=24; truncate .*='rope'"):
        model(make_ids(length=25))
    cache = model(make_ids(length=24)).past_key_values
    with pytest.raises(ValueError, match="25 tokens"):
        model(make_ids(length=1), past_key_values=cache)
    assert make_model(CAUSAL, positional="rope")(make_ids(length=25)).logits.shape == (2, 25, 30)
