"""Training on a GPU, in the mixed precision that is the default there, with the step captured in CUDA graphs."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lformer.data import Examples, Prepared, TextData, prepare
from lformer.settings import UserError
from lformer.train import Diverged, Recipe, train
from lformer.train.captured import WARM_UP_STEPS, Capture
from lformer.train.loop import Training
from lformer.train.resident import ResidentSteps
from lformer.train.runner import set_up
from tests.train.conftest import MODEL, RECIPE
from tests.train.test_loop import NO_DROPOUT, assert_same
from tests.train.test_resume import stop_at

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

STEADY = {**MODEL, **NO_DROPOUT}
LONG = replace(RECIPE, epochs=1, bucket=True, mixed_precision="no", log_steps=7, learning_rate=1e-3)


@pytest.fixture(scope="module")
def long_reviews(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Texts of 5 to 128 tokens: batches of four widths, and 645 is no multiple of the batch size."""
    generator = np.random.default_rng(0)
    lengths, labels = generator.integers(5, 90, size=645), generator.integers(0, 2, size=645)
    texts: list[tuple[str, ...]] = [
        (" ".join(f"w{word + 40 * label}" for word in generator.integers(0, 60, size=length)),)
        for length, label in zip(lengths, labels, strict=True)
    ]
    splits = {"train": Examples(texts, labels.tolist()), "test": Examples(texts[:50], labels[:50].tolist())}
    data = TextData("random", "classification", splits, ["no", "yes"], "random", [])
    return prepare(data, tmp_path_factory.mktemp("long") / "tokens", max_length=128, vocab_size=400)


def losses_of(training: Training) -> list[float]:
    """Runs a training; returns the loss of every step."""
    found: list[float] = []
    plain = Training.log

    def log(self: Training) -> None:
        self._collect()
        found.extend(float(loss) for loss in self.losses)
        plain(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Training, "log", log)
        training.folder.path.mkdir()
        training.run()
    return found


def capture_of(training: Training) -> Capture:
    assert training.resident is not None
    assert isinstance(training.resident.launch, Capture)
    return training.resident.launch


@pytest.mark.parametrize(
    ("compile", "capture"), [(False, "always"), (False, "never"), (True, "auto"), (True, "always")]
)
def test_a_classifier_learns_in_bf16(reviews: Prepared, tmp_path: Path, compile: bool, capture: str) -> None:
    recipe = replace(RECIPE, epochs=8, learning_rate=1e-2, compile=compile, capture=capture)
    result = train(reviews, tmp_path / "run", model=MODEL, recipe=recipe, quiet=True)
    assert result["test"]["accuracy"] > 0.9
    assert result["peak_memory_bytes"] > 0


@pytest.mark.parametrize(
    ("changes", "tolerance"),
    [
        ({}, 1e-3),
        ({"mixed_precision": "bf16"}, 3e-2),
        ({"lr_scale": "slice", "label_smoothing": 0.1, "clip_norm": 0.1}, 1e-3),
        ({"ema": 0.9}, 1e-3),
    ],
    ids=str,
)
def test_captured_steps_are_ordinary_steps(
    long_reviews: Prepared, tmp_path: Path, changes: dict[str, Any], tolerance: float
) -> None:
    found = {}
    for capture in ("never", "always"):
        recipe = replace(LONG, epochs=2, capture=capture, **changes)
        training = set_up(long_reviews, tmp_path / capture, model=STEADY, recipe=recipe, quiet=True)
        found[capture] = losses_of(training)
    kinds = capture_of(training).graphs
    assert {kind.width for kind in kinds} == {32, 64, 96, 128}
    assert {kind.masked for kind in kinds} == {False, True}
    assert len(found["always"]) == 82
    np.testing.assert_allclose(found["always"], found["never"], rtol=tolerance)
    if tolerance < 1e-2:
        close = {"leave_out": "query_key_value.bias", "rtol": 1e-2, "atol": 2e-4}
        assert_same(tmp_path / "never", tmp_path / "always", **close)


def test_a_causal_language_model_is_captured(long_reviews: Prepared, tmp_path: Path) -> None:
    found = {}
    for capture in ("never", "always"):
        recipe = replace(LONG, capture=capture, sequence_length=64)
        training = set_up(long_reviews, tmp_path / capture, model=STEADY, recipe=recipe, task="causal-lm", quiet=True)
        found[capture] = losses_of(training)
    assert len(capture_of(training).graphs) == 1
    assert len(found["always"]) > 30
    np.testing.assert_allclose(found["always"], found["never"], rtol=1e-3)


@pytest.mark.parametrize(("before", "after"), [("always", "always"), ("always", "never"), ("never", "always")])
def test_captured_and_ordinary_runs_go_on_as_each_other(
    long_reviews: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str
) -> None:
    recipe = replace(LONG, epochs=2, checkpoint_steps=9, capture=before)
    train(long_reviews, tmp_path / "whole", model=STEADY, recipe=recipe, quiet=True)
    stop_at(50, monkeypatch)  # in the second epoch; the checkpoint is of step 45
    with pytest.raises(KeyboardInterrupt):
        train(long_reviews, tmp_path / "run", model=STEADY, recipe=recipe, quiet=True)
    monkeypatch.undo()
    request = tmp_path / "run" / "run.json"
    request.write_text(request.read_text().replace(f'"capture": "{before}"', f'"capture": "{after}"'))
    train(long_reviews, tmp_path / "run", resume=True, quiet=True)
    close = {"leave_out": "query_key_value.bias", "rtol": 1e-2, "atol": 5e-4}
    assert_same(tmp_path / "whole", tmp_path / "run", **close)


def test_a_loss_that_is_no_number_is_found_in_a_replay(
    long_reviews: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = ResidentSteps.run

    def run(self: ResidentSteps, step: int, rows: Any) -> int:
        if step == 30:
            with torch.no_grad():
                next(self.model.parameters()).fill_(float("nan"))
        return plain(self, step, rows)

    monkeypatch.setattr(ResidentSteps, "run", run)
    recipe = replace(LONG, capture="always", checkpoint_steps=10)
    with pytest.raises(Diverged, match=r"loss of step 31 .*step-00000030"):
        train(long_reviews, tmp_path / "run", model=STEADY, recipe=recipe, quiet=True)


def ready(prepared: Prepared, path: Path, recipe: Recipe, model: dict[str, Any]) -> tuple[Training, Any]:
    """A training whose step on one batch is captured, and the batch."""
    training = set_up(prepared, path, model=model, recipe=recipe, quiet=True)
    training.model.train()
    rows = np.arange(recipe.batch_size)
    for _ in range(WARM_UP_STEPS + 1):
        training.step(rows)
    assert len(capture_of(training).graphs) == 1
    training._collect()
    return training, rows


def test_every_replay_drops_other_activations(long_reviews: Prepared, tmp_path: Path) -> None:
    recipe = replace(LONG, learning_rate=1e-12, final_learning_rate=1e-12, capture="always")
    training, rows = ready(long_reviews, tmp_path, recipe, {**MODEL, "hidden_dropout_prob": 0.5})
    training.losses.clear()
    for _ in range(4):
        training.step(rows)
    training._collect()
    assert len({float(loss) for loss in training.losses}) == 4


def test_python_does_not_wait_for_a_replay(long_reviews: Prepared, tmp_path: Path) -> None:
    training, rows = ready(long_reviews, tmp_path, replace(LONG, capture="always", log_steps=50), STEADY)
    assert training.resident is not None
    again = [rows.copy() for _ in range(3)]
    training.resident.plan(again)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the mode is a prototype
        torch.cuda.set_sync_debug_mode("error")
        try:
            for batch in again:
                training.step(batch)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert training.progress.step == WARM_UP_STEPS + 4


def test_what_cannot_be_captured_says_why(
    reviews: Prepared, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = replace(RECIPE, accumulate=2)
    assert set_up(reviews, tmp_path, model=MODEL, recipe=recipe).resident is None
    assert "not captured in a CUDA graph: accumulate=2" in capsys.readouterr().err
    assert set_up(reviews, tmp_path, model=MODEL, recipe=RECIPE, task="masked-lm").resident is None
    assert "the host makes its batches" in capsys.readouterr().err
    with pytest.raises(UserError, match="accumulate=2"):
        set_up(reviews, tmp_path, model=MODEL, recipe=replace(recipe, capture="always"), quiet=True)
