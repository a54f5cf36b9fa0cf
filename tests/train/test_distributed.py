"""Two processes on the CPU (gloo) train what one process trains, through the command that a user types."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lformer.data import Prepared
from lformer.train import RunFolder
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


def train(launcher: list[str], prepared: Path, out: Path) -> None:
    settings = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    run = subprocess.run(
        [*launcher, "-m", "lformer.cli", "train", "--prepared", str(prepared), "--out", str(out), *settings],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"},
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
