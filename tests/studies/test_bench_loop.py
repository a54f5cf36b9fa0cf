"""`lformer bench loop` measures what it says."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from lformer.studies.bench import loop
from lformer.train import Recipe
from lformer.train.loop import Training
from lformer.train.runner import set_up


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Two threads on a busy machine wait for each other, in one part of the loop more than in another."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_a_share_is_the_time_of_bare_steps_over_that_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only the steps move: 3 s a step of the loop and 2 a bare one, and more while they warm up."""
    clock, steps = SimpleNamespace(now=0.0), {"loop": 0, "bare": 0}
    real_step, real_bare_step = Training.step, loop._bare_step

    def counted(name: str, seconds: float) -> None:
        steps[name] += 1
        clock.now += seconds if steps[name] > loop.WARMUP_STEPS else 1000

    def step(training: Training, rows: Any) -> None:
        real_step(training, rows)
        counted("loop", 3)

    def bare_step(training: Training, rows: Any) -> Any:
        bare = real_bare_step(training, rows)
        return lambda: (bare(), counted("bare", 2))

    monkeypatch.setattr(Training, "step", step)
    monkeypatch.setattr(loop, "_bare_step", bare_step)
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    found = loop.bench_loop(hidden_size=16, steps=6, batch_size=4)
    assert steps == {"loop": loop.WARMUP_STEPS + 6, "bare": loop.WARMUP_STEPS + 6}
    assert (found["loop_seconds_per_step"], found["bare_seconds_per_step"]) == (3, 2)
    assert found["share"] == pytest.approx(2 / 3)


def test_a_bare_step_trains(tmp_path: Path) -> None:
    """Or it would be compared with less than a step."""
    training = set_up(
        loop._random_reviews(tmp_path / "data", 8),
        tmp_path / "run",
        model={"hidden_size": 16, "tube_length": 4},
        recipe=Recipe(epochs=1, batch_size=4, capture="never"),
        quiet=True,
    )
    before = {name: value.detach().clone() for name, value in training.model.named_parameters()}
    for group in training.optimizer.param_groups:
        group["lr"] = 1e-3  # the first of a warm-up is 0
    loop._bare_step(training, np.arange(4))()
    assert not any(torch.equal(value, before[name]) for name, value in training.model.named_parameters())
