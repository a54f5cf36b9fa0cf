"""A step that needs nothing from the host is the ordinary step, to rounding: on the CPU, where it is not captured."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lformer.data import Prepared
from lformer.settings import UserError
from lformer.train import Diverged, Recipe, RunFolder, evaluate, evaluation, make_task, train
from lformer.train.batches import epoch_batches
from lformer.train.captured import why_not_captured
from lformer.train.loop import Training
from lformer.train.resident import ResidentSteps
from lformer.train.resident_data import Kind, ResidentData
from lformer.train.runner import set_up
from tests.train.conftest import MODEL, RECIPE
from tests.train.test_loop import NO_DROPOUT, assert_same
from tests.train.test_resume import stop_at

STEADY = {**MODEL, **NO_DROPOUT}
# 96 examples: six batches of 15 and one of 6.
SHORT = replace(RECIPE, batch_size=15, epochs=3, log_steps=5)
CPU = torch.device("cpu")


def losses_of(prepared: Prepared, path: Path, recipe: Recipe, *, resident: bool, **options: Any) -> list[list[float]]:
    """The loss of every step, and the share that was right."""
    training = set_up(prepared, path, model=STEADY, recipe=recipe, quiet=True, _resident=resident, **options)
    assert (training.resident is not None) == resident
    path.mkdir()
    found: list[list[float]] = []
    plain = Training.log

    def log(self: Training) -> None:
        self._collect()
        found.extend([float(loss), float(right)] for loss, right in zip(self.losses, self.correct, strict=True))
        plain(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Training, "log", log)
        training.run()
    return found


def assert_same_training(prepared: Prepared, path: Path, recipe: Recipe, **options: Any) -> None:
    ordinary = losses_of(prepared, path / "ordinary", recipe, resident=False, **options)
    resident = losses_of(prepared, path / "resident", recipe, resident=True, **options)
    assert len(ordinary) > 20
    np.testing.assert_allclose(resident, ordinary, rtol=2e-5)
    # Adam makes steps of the rounding in the gradient of the key bias, which is 0.
    assert_same(path / "ordinary", path / "resident", leave_out="key_value.bias", rtol=1e-3, atol=1e-5)
    lines = [list(RunFolder(path / name).metrics()) for name in ("ordinary", "resident")]
    rates = [[line["learning_rate"] for line in run if line["kind"] == "train"] for run in lines]
    assert rates[0] == rates[1]
    scores = [[line["accuracy"] for line in run if "split" in line] for run in lines]
    assert scores[0] == scores[1]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"clip_norm": 0.05},
        {"clip_norm": 0.0},
        {"lr_scale": "slice"},
        {"ema": 0.8},
        {"label_smoothing": 0.2},
        {"bucket": True},
        {"schedule": "linear", "log_steps": 3},
        {"early_stopping": 1, "epochs": 4},
    ],
    ids=str,
)
def test_resident_steps_are_ordinary_steps(reviews: Prepared, tmp_path: Path, changes: dict[str, Any]) -> None:
    assert_same_training(reviews, tmp_path, replace(SHORT, **changes))


def test_a_causal_language_model_too(reviews: Prepared, tmp_path: Path) -> None:
    recipe = replace(SHORT, sequence_length=12, batch_size=5)
    assert_same_training(reviews, tmp_path, recipe, task="causal-lm")


def test_a_translation_too(pairs: Prepared, tmp_path: Path) -> None:
    """The loss of a batch is divided by its number of labels, which only the device knows."""
    assert_same_training(pairs, tmp_path, replace(SHORT, batch_size=7, label_smoothing=0.1))


@pytest.mark.parametrize("multiple", [8, 32])
def test_pairs_looked_up_are_the_pairs_that_the_host_makes(pairs: Prepared, multiple: int) -> None:
    task = make_task(None, pairs, Recipe())
    split = pairs.split("train")
    data = task.resident(split, CPU, multiple)
    assert data is not None
    found_widths = set()
    for rows in (*epoch_batches(task.lengths(split), 5, seed=0, epoch=0, bucket=True), np.array([len(split) - 1])):
        kind = data.kind(rows)
        found_widths.add((kind.width, kind.target_width))
        made, found = task.batch(split, rows, np.random.default_rng(0)), data.batch(torch.from_numpy(rows), kind)
        assert found.keys() == made.keys()
        assert found["input_ids"].shape == (len(rows), kind.width)
        assert found["labels"].shape == found["decoder_input_ids"].shape == (len(rows), kind.target_width + 1)
        filler = {"input_ids": 0, "attention_mask": 0, "decoder_input_ids": 0, "labels": -100}
        for name, array in made.items():
            size = array.shape[1]
            assert (found[name][:, :size].numpy() == array).all(), name
            assert (found[name][:, size:] == filler[name]).all(), name
        assert data.weight(found) == task.weight(made)
    assert len(found_widths) > (1 if multiple == 8 else 0)


def test_the_host_makes_the_batches_of_other_tasks(reviews: Prepared, tmp_path: Path) -> None:
    training = set_up(reviews, tmp_path, model=STEADY, recipe=SHORT, task="masked-lm", quiet=True, _resident=True)
    assert training.resident is None


class NoQuestions(TorchDispatchMode):
    """Refuses operations that make a GPU and Python wait for each other: where a number or a shape comes from the
    device, and where a tensor is made of Python's numbers.
    """

    refused = ("_local_scalar_dense", "nonzero", "unique", "equal", "lift_fresh")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert not any(name in str(func) for name in self.refused), str(func)
        return func(*args, **(kwargs or {}))


def places(training: Training) -> list[int]:
    """Where in memory everything is that a step leaves to the next."""
    steps = training.resident
    assert steps is not None
    state = [value for values in training.optimizer.state.values() for value in values.values()]
    model = [*training.model.parameters(), *training.model.buffers()]
    average = [] if training.ema is None else [*training.ema.parameters(), *training.ema.buffers()]
    own = [steps.order, steps.step_on_device, steps.place_on_device, steps.figures, steps.rates]
    return [tensor.data_ptr() for tensor in (*state, *model, *average, *own)]


@pytest.mark.parametrize("task", ["classification", "causal-lm", "translation"])
def test_a_step_asks_the_device_nothing_and_leaves_everything_in_its_place(
    reviews: Prepared, pairs: Prepared, tmp_path: Path, task: str
) -> None:
    recipe = replace(SHORT, ema=0.9, lr_scale="slice", label_smoothing=0.1, sequence_length=12)
    data = pairs if task == "translation" else reviews
    training = set_up(data, tmp_path, model=MODEL, recipe=recipe, task=task, quiet=True, _resident=True)
    training.model.train()
    rows = np.arange(15)
    training.step(rows)
    assert training.resident is not None
    assert training.ema is not None
    for average, parameter in zip(training.ema.parameters(), training.model.parameters(), strict=True):
        assert (average == parameter).all()  # the first average is a copy
    before, moved = places(training), training.resident.step_on_device.clone()
    with NoQuestions():
        training.resident.compute(training.resident.data.kind(rows))
    assert places(training) == before
    assert training.resident.step_on_device == moved + 1
    assert all(parameter.grad is None for parameter in training.model.parameters())
    assert all(isinstance(group["lr"], float) for group in training.optimizer.param_groups)
    with pytest.raises(AssertionError, match="_local_scalar_dense"), NoQuestions():
        bool(moved > 0)
    with pytest.raises(AssertionError, match="lift_fresh"), NoQuestions():
        torch.tensor([1.0])


VARIANTS: list[dict[str, Any]] = [
    *({"transform": name} for name in ("dft", "hadamard", "identity", "learned", "learned-orthogonal")),
    *({"positional": name} for name in ("standard", "harmonic", "learned", "learned-alpha", "rope", "none")),
    {"tube_length": 1},
    {"norm_placement": "pre"},
    {"transform_scope": "block"},
    {"activation_domain": "original"},
    {"interleave": True},
    {"paper_counts": True},
]


@pytest.mark.parametrize("task", ["classification", "causal-lm", "translation"])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_no_variant_of_the_model_asks_the_device(
    reviews: Prepared, pairs: Prepared, tmp_path: Path, task: str, variant: dict[str, Any]
) -> None:
    recipe = replace(SHORT, sequence_length=12)
    data = pairs if task == "translation" else reviews
    training = set_up(data, tmp_path, model={**MODEL, **variant}, recipe=recipe, task=task, _resident=True)
    training.model.train()
    training.step(np.arange(15))
    assert training.resident is not None
    with NoQuestions():
        training.resident.compute(training.resident.data.kind(np.arange(15)))


def test_a_step_on_any_examples_in_any_order(reviews: Prepared, tmp_path: Path) -> None:
    """As the loop's benchmark makes them: not those that the epoch planned, and more than fit between two logs."""
    found = []
    for resident in (False, True):
        torch.manual_seed(0)
        recipe = replace(SHORT, log_steps=2)
        training = set_up(reviews, tmp_path, model=STEADY, recipe=recipe, quiet=True, _resident=resident)
        training.model.train()
        batches = epoch_batches(training.task.lengths(training.train_split), 15, seed=3, epoch=9)
        if training.resident is not None:
            training.resident.plan(batches)
        for rows in [*batches[::-1], batches[0][:4]]:
            training.step(rows)
        training._collect()
        found.append([float(loss) for loss in training.losses])
    assert len(found[0]) == 8
    np.testing.assert_allclose(found[1], found[0], rtol=2e-5)


def test_only_the_short_batch_of_an_epoch_is_its_rest(reviews: Prepared, tmp_path: Path) -> None:
    for size, rests in ((15, [False] * 6 + [True]), (128, [False])):  # 96 examples
        training = set_up(
            reviews, tmp_path, model=STEADY, recipe=replace(SHORT, batch_size=size), quiet=True, _resident=True
        )
        assert training.resident is not None
        batches = epoch_batches(training.lengths, size, seed=0, epoch=0)
        assert [training.resident.is_rest(training.resident.data.kind(rows)) for rows in batches] == rests


def test_the_order_of_an_epoch_is_sent_once(reviews: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    plain = ResidentSteps.plan

    def plan(self: ResidentSteps, batches: list[Any]) -> None:
        sizes.append(len(batches))
        plain(self, batches)

    monkeypatch.setattr(ResidentSteps, "plan", plan)
    train(reviews, tmp_path / "run", model=MODEL, recipe=SHORT, quiet=True, _resident=True)
    assert sizes == [7, 7, 7]


@pytest.mark.parametrize(("before", "after"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("ema", [0.0, 0.8])
def test_either_kind_of_run_goes_on_as_the_other(
    reviews: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool, after: bool, ema: float
) -> None:
    recipe = replace(SHORT, checkpoint_steps=4, ema=ema, epochs=2)
    train(reviews, tmp_path / "whole", model=STEADY, recipe=recipe, quiet=True)
    stop_at(10, monkeypatch)  # the third batch of the second epoch; the checkpoint is of step 8
    with pytest.raises(KeyboardInterrupt):
        train(reviews, tmp_path / "run", model=STEADY, recipe=recipe, quiet=True, _resident=before)
    monkeypatch.undo()
    train(reviews, tmp_path / "run", resume=True, quiet=True, _resident=after)
    assert_same(tmp_path / "whole", tmp_path / "run", leave_out="query_key_value.bias", rtol=1e-3, atol=1e-5)


def test_a_resident_run_that_stopped_ends_with_the_same_bits(
    reviews: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(SHORT, checkpoint_steps=4, epochs=2)
    train(reviews, tmp_path / "whole", model=MODEL, recipe=recipe, quiet=True, _resident=True)
    stop_at(10, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        train(reviews, tmp_path / "run", model=MODEL, recipe=recipe, quiet=True, _resident=True)
    monkeypatch.undo()
    train(reviews, tmp_path / "run", resume=True, quiet=True, _resident=True)
    assert_same(tmp_path / "whole", tmp_path / "run")


def test_a_loss_that_is_no_number_is_found_and_its_step_named(
    reviews: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = ResidentSteps.run

    def run(self: ResidentSteps, step: int, rows: Any) -> int:
        if step == 5:
            with torch.no_grad():
                next(self.model.parameters()).fill_(float("nan"))
        return plain(self, step, rows)

    monkeypatch.setattr(ResidentSteps, "run", run)
    recipe = replace(SHORT, checkpoint_steps=2, log_steps=4)
    with pytest.raises(Diverged, match=r"loss of step 6 .*step-00000004"):
        train(reviews, tmp_path / "run", model=STEADY, recipe=recipe, quiet=True, _resident=True)


@pytest.mark.parametrize("multiple", [8, 32])
def test_a_batch_looked_up_is_the_batch_that_the_host_makes(reviews: Prepared, multiple: int) -> None:
    task = make_task(None, reviews, Recipe())
    split = reviews.split("train")
    data = task.resident(split, CPU, multiple)
    assert data is not None
    kinds = set()
    for rows in (*epoch_batches(split.lengths, 8, seed=0, epoch=0, bucket=True), np.array([len(split) - 1])):
        kind = data.kind(rows)
        kinds.add((kind.width, kind.masked))
        made, found = task.batch(split, rows, np.random.default_rng(0)), data.batch(torch.from_numpy(rows), kind)
        size = made["input_ids"].shape[1]
        assert kind == Kind(len(rows), kind.width, ("attention_mask" in found))
        assert (found["input_ids"][:, :size].numpy() == made["input_ids"]).all()
        assert (found["input_ids"][:, size:] == task.tokenizer.pad_token_id).all()
        mask = found.get("attention_mask", torch.ones_like(found["input_ids"]))
        assert (mask[:, :size].numpy() == made["attention_mask"]).all()
        assert (mask[:, size:] == 0).all()
        assert (found["labels"].numpy() == made["labels"]).all()
        assert data.weight(found) == task.weight(made)
    assert {width for width, _ in kinds} == ({8, 16} if multiple == 8 else {16})


def test_a_batch_without_padding_has_no_mask(reviews: Prepared) -> None:
    task = make_task(None, reviews, Recipe())
    split = reviews.split("train")
    data = task.resident(split, CPU, multiple=1)
    assert data is not None
    length = int(split.lengths.max())
    rows = np.flatnonzero(split.lengths == length)[:4]
    assert data.kind(rows) == Kind(len(rows), length, masked=False)
    assert "attention_mask" not in data.batch(torch.from_numpy(rows), data.kind(rows))
    shorter = np.append(rows, np.flatnonzero(split.lengths < length)[0])
    assert data.kind(shorter).masked


@pytest.mark.parametrize("task_name", [None, "causal-lm", "translation"])
def test_evaluation_is_the_same_with_the_data_on_the_device(
    reviews: Prepared, pairs: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task_name: str | None
) -> None:
    recipe = replace(SHORT, eval_batch_size=7, sequence_length=12)
    data = pairs if task_name == "translation" else reviews
    training = set_up(data, tmp_path, model=STEADY, recipe=recipe, task=task_name, quiet=True)
    used: list[ResidentData] = []
    plain = type(training.task).resident

    def resident(self: Any, *args: Any) -> Any:
        used.append(plain(self, *args))
        return used[-1]

    monkeypatch.setattr(type(training.task), "resident", resident)
    found = []
    for on_device in (False, True):
        monkeypatch.setattr(evaluation, "_belongs_on", lambda device, split, answer=on_device: answer)
        found.append(evaluate(training.model, training.task, data.split("test"), training.accelerator))
    assert len(used) == 1
    assert found[1].scores == pytest.approx(found[0].scores, rel=1e-5)
    if task_name is None:
        assert (found[0].predictions == found[1].predictions).all()
        np.testing.assert_allclose(found[1].probabilities, found[0].probabilities, atol=1e-6)


@pytest.mark.skipif(torch.cuda.is_available(), reason="where there is a CUDA device, these steps are captured")
def test_what_cannot_be_captured_says_why(reviews: Prepared, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"capture='always', but .*there is no CUDA device"):
        set_up(reviews, tmp_path, model=MODEL, recipe=replace(RECIPE, capture="always"), quiet=True)
    assert set_up(reviews, tmp_path, model=MODEL, recipe=RECIPE, quiet=True).resident is None
    with pytest.raises(UserError, match="capture='sometimes' is not one of"):
        replace(RECIPE, capture="sometimes")


def test_the_reasons_against_capture() -> None:
    class Checkpointed(torch.nn.Module):
        is_gradient_checkpointing = True

    def why_not(recipe: Recipe = RECIPE, model: torch.nn.Module | None = None, **given: Any) -> str:
        options = {"processes": 1, "precision": "bf16", **given}
        return why_not_captured(recipe, model or torch.nn.Module(), torch.device("cuda"), **options)

    assert why_not() == ""
    assert "2 processes" in why_not(processes=2)
    assert "accumulate=3" in why_not(replace(RECIPE, accumulate=3))
    assert "fp16" in why_not(precision="fp16")
    assert "compile" in why_not(replace(RECIPE, compile=True))
    assert why_not(replace(RECIPE, compile=True, capture="always")) == ""
    assert "checkpointing" in why_not(model=Checkpointed())
