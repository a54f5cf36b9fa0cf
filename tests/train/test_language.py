"""Language models and translation: presets that match, evaluation between steps, and cuts that move."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from lformer import LFormerConfig, LFormerForCausalLM, LFormerForConditionalGeneration
from lformer.data import Prepared, load_data, prepare
from lformer.settings import UserError
from lformer.train import PRESETS, Recipe, RunFolder, evaluate, make_task, train
from lformer.train.batches import spread
from lformer.train.language_presets import recommended
from lformer.train.runner import set_up
from tests.train.conftest import MODEL, RECIPE

NAMES = ("lm-shakespeare", "lm-enwik8-small", "lm-enwik8", "translate-multi30k")


def layer_parameters(name: str) -> int:
    preset = PRESETS[name]()
    kind = LFormerForConditionalGeneration if preset.task == "translation" else LFormerForCausalLM
    with torch.device("meta"):
        model: Any = kind(LFormerConfig(vocab_size=260, **preset.model))
    return sum(parameter.numel() for name, parameter in model.named_parameters() if "layers." in name)


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_has_a_twin_of_equal_width_and_one_of_equal_size(name: str) -> None:
    tensor, dense, matched = (PRESETS[name + variant]() for variant in ("", "-dense", "-matched"))
    assert dense.model["hidden_size"] == tensor.model["hidden_size"] > matched.model["hidden_size"]
    assert dense.model["tube_length"] == matched.model["tube_length"] == 1
    assert recommended().items() <= tensor.model.items()
    for option in ("interleave", "attention_domain", "activation_domain", "feed_forward_fold"):
        assert option not in dense.model, "it would only keep the dense model from its fast path"
        assert option not in matched.model
    assert tensor.recipe == dense.recipe == matched.recipe
    assert tensor.data == dense.data == matched.data
    own, twin, narrow = (layer_parameters(name + variant) for variant in ("", "-dense", "-matched"))
    assert narrow == pytest.approx(own, rel=0.02)
    assert twin == pytest.approx(tensor.model["tube_length"] * own, rel=0.02)


def test_the_sizes_that_the_presets_promise() -> None:
    assert layer_parameters("lm-enwik8-small") == pytest.approx(3.2e6, rel=0.02)
    assert layer_parameters("lm-enwik8") == pytest.approx(38e6, rel=0.02)
    small = PRESETS["lm-enwik8-small"]()
    recipe = small.recipe
    assert (recipe.batch_size, recipe.sequence_length, recipe.max_steps) == (64, 256, 2_500)
    assert small.data.tokenizer_kind == "byte"


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("language")
    (folder / "input.txt").write_text("".join(f"line {i} of the text\n" for i in range(200)), encoding="utf-8")
    data = load_data(None, folder, task="language-modeling")
    return prepare(data, folder / "tokens", tokenizer_kind="byte")


def test_a_split_that_is_too_short_is_refused_before_the_training(tmp_path: Path) -> None:
    (tmp_path / "input.txt").write_text("to be or not to be " * 60, encoding="utf-8")
    short = prepare(load_data(None, tmp_path, task="language-modeling"), tmp_path / "tokens", tokenizer_kind="byte")
    with pytest.raises(UserError, match=r"the validation split of .*tokens: the text has 5[0-9] tokens"):
        train(short, tmp_path / "run", model=MODEL, recipe=replace(RECIPE, sequence_length=64))
    assert not (tmp_path / "run").exists()


def test_positions_for_less_than_an_example_are_refused_before_the_training(text: Prepared, tmp_path: Path) -> None:
    model = {**MODEL, "positional": "learned", "max_position_embeddings": 8}
    with pytest.raises(UserError, match="max_position_embeddings=8 is less than the 16 tokens of an example"):
        train(text, tmp_path / "run", model=model, recipe=replace(RECIPE, sequence_length=16))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("resident", [False, True])
def test_a_run_inside_its_first_epoch_is_evaluated(text: Prepared, tmp_path: Path, resident: bool) -> None:
    recipe = replace(RECIPE, max_steps=10, batch_size=4, sequence_length=16, eval_steps=3, eval_tokens=64)
    result = train(text, tmp_path / "run", model=MODEL, recipe=recipe, quiet=True, _resident=resident)
    lines = [line for line in RunFolder(tmp_path / "run").metrics() if line["kind"] == "evaluation"]
    assert [(line["step"], line["split"], line.get("tokens")) for line in lines] == [
        *((step, "validation", 64) for step in (3, 6, 9)),
        (10, "validation", None),  # the last is of the whole split
        (10, "test", None),
    ]
    assert lines[-2]["loss"] == result["validation"]["loss"]
    assert result["validation"]["bits"] == pytest.approx(result["validation"]["loss"] / np.log(2))
    assert lines[0]["loss"] > lines[2]["loss"]


def test_evaluation_between_steps_changes_nothing(text: Prepared, tmp_path: Path) -> None:
    recipe = replace(RECIPE, max_steps=9, batch_size=4, sequence_length=16)
    for steps in (0, 2):
        changed = replace(recipe, eval_steps=steps)
        train(text, tmp_path / str(steps), model=MODEL, recipe=changed, quiet=True)
    weights = [(tmp_path / steps / "model" / "model.safetensors").read_bytes() for steps in ("0", "2")]
    assert weights[0] == weights[1]


def test_a_resumed_run_has_the_evaluations_of_a_whole_one(text: Prepared, tmp_path: Path) -> None:
    recipe = replace(RECIPE, max_steps=10, batch_size=4, sequence_length=16, eval_steps=2, checkpoint_steps=4)
    train(text, tmp_path / "run", model=MODEL, recipe=recipe, quiet=True)
    whole = [(line["kind"], line["step"], line.get("loss")) for line in RunFolder(tmp_path / "run").metrics()]
    (tmp_path / "run" / "result.json").unlink()  # as if it had been stopped after the checkpoint of step 8
    train(text, tmp_path / "run", quiet=True, resume=True)
    again = [(line["kind"], line["step"], line.get("loss")) for line in RunFolder(tmp_path / "run").metrics()]
    assert again == whole


def test_bits_per_byte_do_not_depend_on_the_tokenizer(tmp_path: Path) -> None:
    """A model that finds all tokens equally likely needs log2(V) bits a token, of however many bytes."""
    content = "low, lower, lowest, slow, slower, slowest. é\n" * 60
    (tmp_path / "train.txt").write_text(content, encoding="utf-8")
    (tmp_path / "validation.txt").write_text(content, encoding="utf-8")
    data = load_data(None, tmp_path, task="language-modeling")
    for kind in ("byte", "bpe"):
        cache = prepare(data, tmp_path / kind, tokenizer_kind=kind, vocab_size=280, lowercase=False)
        training = set_up(cache, tmp_path / "run", model=MODEL, recipe=replace(RECIPE, sequence_length=8), quiet=True)
        with torch.no_grad():
            for parameter in training.unwrapped().parameters():
                parameter.zero_()
        split = cache.split("validation")
        scores = evaluate(training.model, training.task, split, training.accelerator).scores
        bits = np.log2(len(cache.tokenizer()))
        asked = np.asarray(split.tokens[1 : 1 + len(training.task.lengths(split)) * 8])
        read = len(cache.tokenizer().decode(asked).encode())
        assert scores["bits"] == pytest.approx(bits, rel=1e-5)
        assert scores["bits_per_byte"] == pytest.approx(bits * len(asked) / read, rel=1e-5)
        assert (kind == "byte") == (scores["bits_per_byte"] == pytest.approx(scores["bits"]))


def test_tokens_that_are_not_bytes_have_no_bits_per_byte(tmp_path: Path) -> None:
    vocabulary = {name: i for i, name in enumerate(["[PAD]", "[EOS]", "[UNK]", "low", "lower"])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    given = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]", eos_token="[EOS]", unk_token="[UNK]")
    (tmp_path / "input.txt").write_text("low lower slow\n" * 100, encoding="utf-8")
    cache = prepare(load_data(None, tmp_path, task="language-modeling"), tmp_path / "tokens", tokenizer=given)
    training = set_up(cache, tmp_path / "run", model=MODEL, recipe=replace(RECIPE, sequence_length=8), quiet=True)
    scores = evaluate(training.model, training.task, cache.split("validation"), training.accelerator).scores
    assert "bits" in scores
    assert "bits_per_byte" not in scores  # the unknown word would count five bytes, and blanks none


def test_a_part_of_a_split_is_spread_over_it() -> None:
    lengths = np.full(100, 10)
    assert spread(lengths, 0).tolist() == spread(lengths, 1000).tolist() == list(range(100))
    assert spread(lengths, 50).tolist() == [0, 20, 40, 60, 80]
    assert spread(lengths, 1).tolist() == [0]
    assert len(set(spread(lengths, 670))) == 67


def test_a_classifier_on_a_part_of_its_split(reviews: Prepared, tmp_path: Path) -> None:
    training = set_up(reviews, tmp_path, model=MODEL, recipe=RECIPE, quiet=True)
    split = reviews.split("test")
    whole = evaluate(training.model, training.task, split, training.accelerator)
    tokens = int(split.lengths.sum()) // 3
    part = evaluate(training.model, training.task, split, training.accelerator, tokens=tokens)
    rows = spread(split.lengths, tokens)
    assert whole.predictions is not None
    assert part.predictions is not None
    assert split.labels is not None
    assert 5 < len(rows) < 20
    assert (part.predictions == whole.predictions[rows]).all()
    assert part.scores["accuracy"] == np.mean(whole.predictions[rows] == split.labels[rows])


@pytest.mark.parametrize("name", ["eval_steps", "eval_tokens"])
def test_negative_counts_are_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"{name}=-1 must not be negative"):
        Recipe(**{name: -1})


def test_later_epochs_cut_the_text_at_other_places(text: Prepared) -> None:
    task = make_task(None, text, Recipe(sequence_length=16))
    split = text.split("train")
    count = len(task.lengths(split))
    everything = [np.arange(count)]
    seen = []
    for epoch in range(4):
        (rows,) = task.shifted(everything, split, epoch)
        batch = task.batch(split, rows, np.random.default_rng(0))
        assert (batch["input_ids"][:, 1:] == batch["labels"][:, :-1]).all()
        by = int(rows[0]) // count
        assert 0 <= by < 16
        stream = np.asarray(split.tokens)
        for row, start in ((0, by), (count // 2, count // 2 * 16 + by)):
            assert (batch["input_ids"][row] == stream[start : start + 16]).all()
        seen.append(by)
    assert seen[0] == 0
    assert len(set(seen)) > 1


def test_the_last_sequence_wraps_around(text: Prepared) -> None:
    task = make_task(None, text, Recipe(sequence_length=16))
    split = text.split("train")
    count = len(task.lengths(split))
    for by in range(16):
        batch = task.batch(split, np.array([count - 1 + by * count]), np.random.default_rng(0))
        assert batch["input_ids"].shape == (1, 16)


def test_the_same_cuts_with_the_data_on_the_device(text: Prepared) -> None:
    task = make_task(None, text, Recipe(sequence_length=16))
    split = text.split("train")
    data = task.resident(split, torch.device("cpu"))
    assert data is not None
    for epoch in range(3):
        (rows,) = task.shifted([np.arange(len(data.lengths))], split, epoch)
        made = task.batch(split, rows, np.random.default_rng(0))
        found = data.batch(torch.from_numpy(rows), data.kind(rows))
        assert all((found[name].numpy() == made[name]).all() for name in made)


def test_a_masked_decoder_would_learn_the_same(pairs: Prepared, tmp_path: Path) -> None:
    """The decoder is given no mask: its padding is on the right."""
    training = set_up(pairs, tmp_path, model={**MODEL, "hidden_dropout_prob": 0.0}, recipe=RECIPE, quiet=True)
    training.model.eval()
    batch = training.task.batch(training.train_split, np.arange(8), np.random.default_rng(0))
    tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
    mask = torch.ones_like(tensors["labels"])
    mask[:, 1:] = (tensors["labels"] != -100)[:, :-1].long()
    assert (mask == 0).any()
    losses = []
    for extra in ({}, {"decoder_attention_mask": mask}):
        logits, labels = training.task.predict(training.model, {**tensors, **extra})
        losses.append(training.task.loss(logits, labels).item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)


def test_run_json_has_the_new_fields(text: Prepared, tmp_path: Path) -> None:
    recipe = replace(RECIPE, max_steps=1, sequence_length=16, eval_steps=5)
    train(text, tmp_path / "run", model=MODEL, recipe=recipe, quiet=True)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["recipe"]["eval_steps"] == 5
