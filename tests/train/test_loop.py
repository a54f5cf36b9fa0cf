"""What a training does, on data that takes a second."""

import json
import math
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from lformer import LFormerForSequenceClassification
from lformer.data import Prepared
from lformer.settings import UserError
from lformer.train import Diverged, Recipe, RunFolder, train
from lformer.train.runner import set_up
from tests.train.conftest import MODEL, RECIPE

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model" / "model.safetensors")


def assert_same(first: Path, second: Path, *, leave_out: str | None = None, **tolerance: Any) -> None:
    a, b = weights(first), weights(second)
    assert a.keys() == b.keys()
    for name in a:
        if leave_out is not None and name.endswith(leave_out):
            continue
        torch.testing.assert_close(a[name], b[name], **(tolerance or {"rtol": 0, "atol": 0}), msg=name)


def test_scaled_gradients_are_scaled_back(reviews: Prepared, tmp_path: Path) -> None:
    """As fp16 on a GPU has them; without clipping, which would scale them back by itself."""
    found = []
    for scaler in (None, torch.amp.GradScaler("cpu", init_scale=1024.0)):
        recipe = replace(RECIPE, clip_norm=0.0, capture="never")
        training = set_up(reviews, tmp_path / "run", model={**MODEL, **NO_DROPOUT}, recipe=recipe, quiet=True)
        training.accelerator.scaler = scaler
        training.model.train()
        for start in range(3):
            training.step(np.arange(start, start + 8))
        found.append([p.detach().clone() for p in training.model.parameters()])
        training.accelerator.scaler = None
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-6)


def test_a_classifier_learns_and_its_folder_tells_all(reviews: Prepared, tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = train(reviews, run, model=MODEL, recipe=replace(RECIPE, epochs=8, learning_rate=1e-2), quiet=True)
    assert result["test"]["accuracy"] > 0.9
    assert result == RunFolder(run).result()
    request = RunFolder(run).request()
    assert request["recipe"]["epochs"] == 8
    assert request["data"]["fingerprint"] == reviews.manifest["fingerprint"]
    assert json.loads((run / "environment.json").read_text())["packages"]["torch"] == metadata.version("torch")
    lines = list(RunFolder(run).metrics())
    losses = [line["loss"] for line in lines if line["kind"] == "train"]
    assert losses[-1] < 0.5 * losses[0]
    assert [line["epoch"] for line in lines if line.get("split") == "validation"] == [*range(1, 9), 8]
    model = LFormerForSequenceClassification.from_pretrained(run / "model")
    assert model.config.id2label == {0: "neg", 1: "pos"}
    predictions = np.load(run / "predictions" / "test.npy")
    assert (predictions == reviews.split("test").labels).mean() == result["test"]["accuracy"]


def test_the_same_seed_gives_the_same_weights_and_another_does_not(reviews: Prepared, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(reviews, tmp_path / name, model=MODEL, recipe=replace(RECIPE, seed=seed), quiet=True)
    assert_same(tmp_path / "a", tmp_path / "b")
    with pytest.raises(AssertionError):
        assert_same(tmp_path / "a", tmp_path / "c")


@pytest.mark.parametrize("task", ["classification", "masked-lm", "causal-lm"])
def test_parts_of_a_batch_give_the_gradient_of_the_whole(reviews: Prepared, tmp_path: Path, task: str) -> None:
    for parts in (1, 3):
        recipe = replace(RECIPE, accumulate=parts, epochs=1, sequence_length=16)
        train(reviews, tmp_path / str(parts), model={**MODEL, **NO_DROPOUT}, recipe=recipe, task=task, quiet=True)
    # The bias of the keys has no gradient (softmax does not see a shift), so that Adam makes steps of its rounding.
    assert_same(tmp_path / "1", tmp_path / "3", leave_out="query_key_value.bias", rtol=1e-3, atol=1e-5)


def test_early_stopping_takes_the_best_weights(reviews: Prepared, tmp_path: Path) -> None:
    recipe = replace(RECIPE, epochs=30, early_stopping=2, learning_rate=1e-2)
    result = train(reviews, tmp_path / "run", model=MODEL, recipe=recipe, quiet=True)
    assert result["epochs"] < 30
    epochs = [line for line in RunFolder(tmp_path / "run").metrics() if line.get("split") == "validation"]
    assert result["validation"]["accuracy"] == max(line["accuracy"] for line in epochs)


def test_a_moving_average_is_what_is_saved(reviews: Prepared, tmp_path: Path) -> None:
    for name, ema in (("plain", 0.0), ("averaged", 0.9)):
        train(reviews, tmp_path / name, model=MODEL, recipe=replace(RECIPE, ema=ema), quiet=True)
    with pytest.raises(AssertionError):
        assert_same(tmp_path / "plain", tmp_path / "averaged")
    result = RunFolder(tmp_path / "averaged").result()
    model = LFormerForSequenceClassification.from_pretrained(tmp_path / "averaged" / "model").eval()
    assert model.num_parameters() == result["parameters"]


def test_max_steps_ends_a_run_and_its_schedule(reviews: Prepared, tmp_path: Path) -> None:
    recipe = replace(RECIPE, max_steps=5, log_steps=1)
    result = train(reviews, tmp_path / "run", model=MODEL, recipe=recipe, quiet=True)
    assert result["steps"] == 5
    rates = [line["learning_rate"] for line in RunFolder(tmp_path / "run").metrics() if line["kind"] == "train"]
    assert len(rates) == 5
    assert rates[-1] == pytest.approx(1e-5)


@pytest.mark.parametrize("task", ["masked-lm", "causal-lm"])
def test_language_models_train(reviews: Prepared, tmp_path: Path, task: str) -> None:
    recipe = replace(RECIPE, sequence_length=16, epochs=6, batch_size=8)
    result = train(reviews, tmp_path / "run", model=MODEL, recipe=recipe, task=task, quiet=True)
    assert result["test"]["loss"] < 0.9 * math.log(reviews.vocab_size)
    assert result["test"]["perplexity"] == pytest.approx(math.exp(result["test"]["loss"]))


def test_a_loss_that_is_no_number_stops_the_run_and_names_the_step(
    reviews: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lformer.train.tasks import Classification

    plain = Classification.loss
    calls = []

    def broken(self: Any, logits: torch.Tensor, labels: torch.Tensor, smoothing: float = 0.0) -> torch.Tensor:
        calls.append(1)
        return plain(self, logits, labels, smoothing) * (float("nan") if len(calls) == 6 else 1)

    monkeypatch.setattr(Classification, "loss", broken)
    recipe = replace(RECIPE, checkpoint_steps=2, log_steps=4)
    with pytest.raises(Diverged, match=r"loss of step 6 .*learning rate .*step-00000004") as error:
        train(reviews, tmp_path / "run", model=MODEL, recipe=recipe, quiet=True)
    assert "smaller learning_rate" in str(error.value)
    assert not RunFolder(tmp_path / "run").is_finished


def test_a_folder_that_holds_something_is_left_alone(reviews: Prepared, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="exists and is not empty"):
        train(reviews, tmp_path, model=MODEL, recipe=RECIPE, quiet=True)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_mistakes_in_the_model_are_a_users_and_start_nothing(reviews: Prepared, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="use 4 or 8"):
        train(reviews, tmp_path / "run", model={**MODEL, "num_attention_heads": 6}, recipe=RECIPE, quiet=True)
    with pytest.raises(UserError, match="no task 'regress'"):
        train(reviews, tmp_path / "run", model=MODEL, recipe=RECIPE, task="regress", quiet=True)
    with pytest.raises(UserError, match="fewer than one sequence"):
        train(
            reviews, tmp_path / "run", model=MODEL, recipe=Recipe(sequence_length=10**6), task="causal-lm", quiet=True
        )
    assert not (tmp_path / "run").exists()


def test_bf16_runs(reviews: Prepared, tmp_path: Path) -> None:
    recipe = replace(RECIPE, epochs=1, mixed_precision="bf16")
    result = train(reviews, tmp_path / "run", model=MODEL, recipe=recipe, quiet=True)
    assert math.isfinite(result["test"]["loss"])
