"""Two processes on the CPU (gloo) train what one process trains, through the command that a user types."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lformer.data import Prepared
from lformer.train import RunFolder
from lformer.train.loop import STEPS_BETWEEN_ASKING
from tests.train.test_loop import assert_same

SETTINGS = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "intermediate_size": 32,
    "hidden_dropout_prob": 0,
    "attention_probs_dropout_prob": 0,
    "epochs": 2,
    "batch_size": 15,  # an odd number: the two shares differ
    "learning_rate": 3e-3,
}


ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}


def command(launcher: list[str], prepared: Path, out: Path, *options: str) -> list[str]:
    settings = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    verb = ["-m", "lformer.cli", "train", "--prepared", str(prepared), "--out", str(out)]
    return [*launcher, *verb, *settings, *options]


def train(launcher: list[str], prepared: Path, out: Path, *options: str) -> None:
    run = subprocess.run(
        command(launcher, prepared, out, *options),
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.fixture(scope="module")
def single(reviews: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("single") / "run"
    train([sys.executable], reviews.path, out)
    return out


TWO = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def test_two_processes_give_the_weights_of_one(reviews: Prepared, single: Path, tmp_path: Path) -> None:
    train(TWO, reviews.path, tmp_path / "run")
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert (environment["processes"], environment["distributed"]) == (2, "MULTI_CPU")
    assert_same(single, tmp_path / "run", leave_out="query_key_value.bias", rtol=1e-3, atol=1e-5)
    one, two = RunFolder(single).result(), RunFolder(tmp_path / "run").result()
    assert one["test"]["accuracy"] == two["test"]["accuracy"]
    assert one["parameters"] == two["parameters"]


def test_two_processes_stop_together_and_go_on(reviews: Prepared, tmp_path: Path) -> None:
    out, many = tmp_path / "run", ("--set", "epochs=60")
    run = subprocess.Popen(command(TWO, reviews.path, out, *many), env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    waited = time.monotonic() + 120
    while not list((out / "checkpoints").glob("step-*")):  # in the middle of the run, then
        assert run.poll() is None
        assert time.monotonic() < waited
        time.sleep(0.05)
    run.send_signal(signal.SIGTERM)
    assert run.wait(60) != 0
    assert not RunFolder(out).is_finished
    newest = max(int(path.name.removeprefix("step-")) for path in (out / "checkpoints").glob("step-*"))
    assert newest % STEPS_BETWEEN_ASKING == 0
    train(TWO, reviews.path, out, *many, "--resume")
    evaluations = [line["epoch"] for line in RunFolder(out).metrics() if line.get("split") == "validation"]
    assert evaluations == [*range(1, 61), 60]
