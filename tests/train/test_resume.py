"""A run that is killed, stopped or damaged goes on, and ends where it would have ended."""

import multiprocessing
import os
import random
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from lformer.data import Prepared
from lformer.settings import UserError
from lformer.train import Interrupted, RunFolder, checkpoints, train
from tests.train.conftest import MODEL, RECIPE
from tests.train.test_loop import assert_same

LONG = replace(RECIPE, epochs=25, checkpoint_steps=3)
KILLS = 10


def train_in_child(prepared: Path, run: Path, resume: bool) -> None:
    import torch

    torch.set_num_threads(1)
    train(Prepared.open(prepared), run, model=MODEL, recipe=LONG, resume=resume, quiet=True)


def test_killed_at_ten_moments_a_run_ends_with_the_same_bits(reviews: Prepared, tmp_path: Path) -> None:
    train(reviews, tmp_path / "whole", model=MODEL, recipe=LONG, quiet=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["lformer.train"])  # a child is then there at once, and not after seconds of imports
    generator = random.Random(5)
    run, kills = RunFolder(tmp_path / "killed"), 0
    while not run.is_finished:
        child = context.Process(target=train_in_child, args=(reviews.path, run.path, run.is_started))
        child.start()
        if kills < KILLS:
            child.join(generator.uniform(0.05, 0.6))
            if child.is_alive():
                os.kill(child.pid or 0, signal.SIGKILL)
                kills += 1
        child.join(120)
        assert child.exitcode in (0, -signal.SIGKILL)
    assert kills >= 5, "the run was too quick to be killed often enough to mean something"
    assert_same(tmp_path / "whole", run.path)
    keep = ("kind", "split", "step", "epoch", "accuracy")
    lines = [
        [{key: line.get(key) for key in keep} for line in RunFolder(tmp_path / name).metrics() if "split" in line]
        for name in ("whole", "killed")
    ]
    assert lines[0] == lines[1]
    assert not list(run.path.rglob("*.draft"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_the_run_goes_on(
    reviews: Prepared, tmp_path: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(reviews, tmp_path / "whole", model=MODEL, recipe=RECIPE, quiet=True)
    from lformer.train.loop import Training

    plain = Training.step

    def step(self: Training, rows: object) -> None:
        plain(self, rows)  # type: ignore[arg-type]
        if self.progress.step == 5:
            os.kill(os.getpid(), number)
            time.sleep(0.01)

    monkeypatch.setattr(Training, "step", step)
    with pytest.raises(Interrupted, match=f"stopped by {number.name} after step 5"):
        train(reviews, tmp_path / "stopped", model=MODEL, recipe=RECIPE, quiet=True)
    assert [path.name for path in (tmp_path / "stopped" / "checkpoints").iterdir()] == ["step-00000005"]
    monkeypatch.undo()
    train(reviews, tmp_path / "stopped", resume=True, quiet=True)
    assert_same(tmp_path / "whole", tmp_path / "stopped")


def stop_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from lformer.train.loop import Training

    plain = Training.step

    def limited(self: Training, rows: object) -> None:
        if self.progress.step == step:
            raise KeyboardInterrupt
        plain(self, rows)  # type: ignore[arg-type]

    monkeypatch.setattr(Training, "step", limited)


@pytest.mark.parametrize("damage", ["optimizer.safetensors", "model.safetensors", "state.json"])
def test_a_damaged_newest_checkpoint_is_reported_and_the_one_before_is_used(
    reviews: Prepared,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    damage: str,
) -> None:
    recipe = replace(RECIPE, checkpoint_steps=2)
    train(reviews, tmp_path / "whole", model=MODEL, recipe=recipe, quiet=True)
    stop_at(7, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        train(reviews, tmp_path / "run", model=MODEL, recipe=recipe, quiet=True)
    monkeypatch.undo()
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["step-00000004", "step-00000006"]
    broken = tmp_path / "run" / "checkpoints" / "step-00000006" / damage
    broken.write_bytes(broken.read_bytes()[:-20])
    train(reviews, tmp_path / "run", resume=True)
    said = capsys.readouterr().err
    assert "step-00000006 is damaged" in said.replace("\n", "")
    assert "step-00000004" in said
    assert_same(tmp_path / "whole", tmp_path / "run")


def test_a_full_disk_loses_no_earlier_checkpoint(
    reviews: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(RECIPE, checkpoint_steps=2)
    plain, calls = checkpoints.save_file, []

    def full(tensors: object, path: Path) -> None:
        calls.append(path)
        if len(calls) > 7:  # three files a checkpoint: in the middle of the third
            path.write_bytes(b"half")
            raise OSError(28, "No space left on device")
        plain(tensors, path)  # type: ignore[arg-type]

    monkeypatch.setattr(checkpoints, "save_file", full)
    with pytest.raises(OSError, match="No space left"):
        train(reviews, tmp_path / "run", model=MODEL, recipe=recipe, quiet=True)
    found = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert found == ["step-00000002", "step-00000004"]
    for name in found:
        checkpoints.check(tmp_path / "run" / "checkpoints" / name)


def test_resuming_what_is_finished_or_not_there(reviews: Prepared, tmp_path: Path) -> None:
    result = train(reviews, tmp_path / "run", model=MODEL, recipe=replace(RECIPE, epochs=1), quiet=True)
    before = (tmp_path / "run" / "model" / "model.safetensors").stat().st_mtime_ns
    assert train(reviews, tmp_path / "run", resume=True, quiet=True) == result
    assert (tmp_path / "run" / "model" / "model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(UserError, match="no run to resume"):
        train(reviews, tmp_path / "nothing", resume=True, quiet=True)
