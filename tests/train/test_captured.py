"""Steps recorded and replayed without a GPU: with a stand-in for CUDA, and with a tape. test_gpu.py has the graphs."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lformer.data import Prepared
from lformer.settings import UserError
from lformer.train import captured
from lformer.train.batches import epoch_batches
from lformer.train.captured import MOST_GRAPHS, WARM_UP_STEPS, Capture
from lformer.train.resident import ResidentSteps
from lformer.train.resident_data import Kind
from lformer.train.runner import set_up
from tests.train.test_resident import SHORT, STEADY

FULL, LAST = Kind(16, 32, masked=True), Kind(5, 32, masked=True)


class FakeStream:
    device = "cuda"

    def __init__(self, *_: Any) -> None:
        pass

    def wait_stream(self, _: Any) -> None:
        pass


class Steps:
    """Writes down what happens to it."""

    def __init__(self) -> None:
        self.accelerator = SimpleNamespace(device="cuda")
        self.fails = self.recording = False
        self.did: list[tuple[str, Kind]] = []
        self.said: list[str] = []

    def is_rest(self, kind: Kind) -> bool:
        return kind == LAST

    def compute(self, kind: Kind) -> None:
        if self.recording and self.fails:
            raise RuntimeError("operation not permitted when stream is capturing\nand more lines")
        self.did.append(("recorded" if self.recording else "computed", kind))


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    steps = Steps()

    class FakeGraph:
        def replay(self) -> None:
            steps.did.append(("replayed", self.kind))

        kind: Kind

    @contextmanager
    def recording(graph: FakeGraph, *, pool: Any, stream: Any) -> Iterator[None]:
        assert (pool, type(stream)) == ("pool", FakeStream)
        steps.recording = True
        try:
            yield
        except RuntimeError as error:
            raise RuntimeError("capture ended badly") from error
        finally:
            steps.recording = False
        graph.kind = steps.did[-1][1]

    fakes = {"Stream": FakeStream, "CUDAGraph": FakeGraph, "graph": recording, "graph_pool_handle": lambda: "pool"}
    fakes |= {"current_stream": FakeStream, "stream": lambda _: nullcontext()}
    monkeypatch.setattr(captured.torch, "cuda", SimpleNamespace(**fakes))
    return steps


def capture(steps: Any) -> Capture:
    return Capture(steps, steps.said.append)


def test_each_kind_is_computed_a_few_times_then_recorded_once_and_replayed(steps: Steps) -> None:
    launch = capture(steps)
    for _ in range(WARM_UP_STEPS + 2):
        launch(FULL)
    launch(LAST)
    launch(FULL)
    after = [("recorded", FULL), ("replayed", FULL), ("replayed", FULL), ("computed", LAST), ("replayed", FULL)]
    assert steps.did == [("computed", FULL)] * WARM_UP_STEPS + after


def test_the_rest_of_an_epoch_is_not_worth_a_recording(steps: Steps) -> None:
    launch = capture(steps)
    for _ in range(WARM_UP_STEPS + 2):
        launch(LAST)
    assert steps.did == [("computed", LAST)] * (WARM_UP_STEPS + 2)


def test_there_are_not_more_graphs_than_a_limit(steps: Steps) -> None:
    launch = capture(steps)
    for width in range(MOST_GRAPHS + 2):
        for _ in range(WARM_UP_STEPS + 1):
            launch(Kind(16, width, masked=False))
        assert len(steps.said) == (width >= MOST_GRAPHS), "once, when the first one is left out"
    assert "those of 16 x 32 tokens and of other new kinds take the ordinary step" in steps.said[0]
    assert len(launch.graphs) == MOST_GRAPHS
    assert steps.did[-1] == ("computed", Kind(16, MOST_GRAPHS + 1, masked=False))


def test_a_step_that_cannot_be_recorded_says_what_to_do(steps: Steps) -> None:
    launch = capture(steps)
    for _ in range(WARM_UP_STEPS):
        launch(FULL)
    steps.fails = True
    with pytest.raises(UserError, match=r"16 x 32 tokens \(operation not permitted .* capturing\); .*capture=never"):
        launch(FULL)


class Tape(TorchDispatchMode):
    """What a CUDA graph is, on the CPU: the operations of a step, made again on the same memory without its Python."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, found))
        return found

    @torch.no_grad()
    def replay(self) -> None:
        for func, args, kwargs, before in self.calls:
            now = func(*args, **kwargs)
            for old, new in zip(tree_leaves(before), tree_leaves(now), strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class Taped:
    def __init__(self, steps: ResidentSteps) -> None:
        self.steps = steps
        self.tapes: dict[Kind, Tape] = {}
        self.replays = 0

    def __call__(self, kind: Kind) -> None:
        if kind in self.tapes:
            self.tapes[kind].replay()
            self.replays += 1
        elif self.steps.step == 0:
            self.steps.compute(kind)  # the optimizer makes its moments, which a replay must not do again
        else:
            with Tape() as tape:
                self.steps.compute(kind)
            self.tapes[kind] = tape


@pytest.mark.parametrize("task", ["classification", "causal-lm"])
@pytest.mark.parametrize("changes", [{}, {"ema": 0.9, "lr_scale": "slice", "label_smoothing": 0.1}], ids=str)
def test_nothing_of_a_step_is_left_in_python(
    reviews: Prepared, tmp_path: Path, task: str, changes: dict[str, Any]
) -> None:
    """A learning rate, an index or a count that Python held would be the recorded one in every replay."""
    recipe = replace(SHORT, sequence_length=12, bucket=True, **changes)
    found, weights = [], []
    for is_taped in (False, True):
        training = set_up(reviews, tmp_path, model=STEADY, recipe=recipe, task=task, quiet=True, _resident=is_taped)
        if training.resident is not None:
            taped = Taped(training.resident)
            training.resident.launch = taped
        training.model.train()
        for epoch in range(3):
            for rows in epoch_batches(
                training.task.lengths(training.train_split), 15, seed=1, epoch=epoch, bucket=True
            ):
                training.step(rows)
        training._collect()
        found.append([float(loss) for loss in training.losses])
        averaged = training.model if training.ema is None else training.ema.module
        weights.append(dict(averaged.named_parameters()))
    assert taped.replays > len(found[0]) // 2
    np.testing.assert_allclose(found[1], found[0], rtol=2e-5)
    for name in weights[0]:
        if not name.endswith("query_key_value.bias"):  # has no gradient but rounding, of which Adam makes steps
            torch.testing.assert_close(weights[1][name], weights[0][name], rtol=1e-3, atol=1e-5, msg=name)
