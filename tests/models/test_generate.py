"""generate: the same tokens with and without a cache, alone and in a batch, greedy, by beams and sampled."""

import pytest
import torch

from .cases import CAUSAL, SEQ2SEQ, VARIANTS, make_ids, make_model, pad

over_variants = pytest.mark.parametrize("variant", VARIANTS)
WAYS = {
    "greedy": {"do_sample": False},
    "beam": {"do_sample": False, "num_beams": 3},
    "sample": {"do_sample": True, "top_k": 5, "temperature": 0.8},
}


def generate(model, ids, *, seed=0, **options):
    torch.manual_seed(seed)
    options = {"max_new_tokens": 6, "min_new_tokens": 6, "pad_token_id": 0, **options}
    options.setdefault("attention_mask", torch.ones_like(ids))
    return model.generate(ids, **options)


@over_variants
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [CAUSAL, SEQ2SEQ])
def test_the_cache_changes_nothing(kind, variant, way):
    model = make_model(kind, **VARIANTS[variant])
    ids = make_ids(length=4)
    with_cache = generate(model, ids, use_cache=True, **WAYS[way])
    without = generate(model, ids, use_cache=False, **WAYS[way])
    assert torch.equal(with_cache, without)
    assert with_cache.shape == (2, (4 if kind is CAUSAL else 1) + 6)


def test_greedy_takes_the_likeliest_token_each_time():
    model = make_model(CAUSAL)
    ids = make_ids(length=4)
    expected = ids
    for _ in range(6):
        expected = torch.cat([expected, model(expected).logits[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(generate(model, ids, do_sample=False), expected)


def test_greedy_translation_takes_the_likeliest_token_each_time():
    model = make_model(SEQ2SEQ)
    source = make_ids()
    expected = torch.full((2, 1), model.config.decoder_start_token_id)
    for _ in range(6):
        logits = model(source, decoder_input_ids=expected).logits
        expected = torch.cat([expected, logits[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(generate(model, source, do_sample=False), expected)


@over_variants
@pytest.mark.parametrize("kind", [CAUSAL, SEQ2SEQ])
def test_a_padded_batch_is_its_texts_alone(kind, variant):
    model = make_model(kind, **VARIANTS[variant])
    long, short = make_ids(1, 6), make_ids(1, 3, seed=1)
    ids, mask = pad(short, torch.ones_like(short), 3, "left")
    both = generate(
        model,
        torch.cat([long, ids]),
        attention_mask=torch.cat([torch.ones_like(long), mask]),
        do_sample=False,
    )
    alone = [generate(model, text, do_sample=False) for text in (long, short)]
    assert torch.equal(both[0, -6:], alone[0][0, -6:])
    assert torch.equal(both[1, -6:], alone[1][0, -6:])


def test_sampling_follows_the_seed():
    model = make_model(CAUSAL)
    ids = make_ids(length=4)
    first, again, other = (generate(model, ids, seed=seed, do_sample=True, top_k=0) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("kind", [CAUSAL, SEQ2SEQ])
@pytest.mark.parametrize("variant", ["dct", "dft-odd", "orthogonal-rope"])
def test_a_static_cache_changes_nothing(kind, variant):
    model = make_model(kind, **VARIANTS[variant])
    model.generation_config.disable_compile = True
    long, short = make_ids(1, 6), make_ids(1, 3, seed=1)
    ids, mask = pad(short, torch.ones_like(short), 3, "left")
    ids, mask = torch.cat([long, ids]), torch.cat([torch.ones_like(long), mask])
    dynamic, static = (
        generate(model, ids, attention_mask=mask, do_sample=False, cache_implementation=name)
        for name in (None, "static")
    )
    assert torch.equal(dynamic, static)


def test_it_stops_at_the_end_token():
    model = make_model(CAUSAL)
    ids = make_ids(1, 4)
    free = generate(model, ids, do_sample=False)
    end = free[0, 5].item()
    first = (free[0, 4:] == end).nonzero()[0].item()
    stopped = generate(model, ids, do_sample=False, eos_token_id=end, min_new_tokens=0)
    assert stopped.tolist() == free[:, : 4 + first + 1].tolist()
