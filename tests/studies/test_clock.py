"""Where the time went: over all calls, and nothing of it is lost with a study that is killed."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from lformer.studies import clock as clock_module
from lformer.studies.clock import Clock

# Waits in a phase to be killed.
WAIT = """
import sys, time
from pathlib import Path
from lformer.studies import clock
clock.SECONDS_BETWEEN_WRITES = 0.05
with clock.Clock(Path(sys.argv[1])).phase("train"):
    time.sleep(300)
"""


def test_calls_add_up_and_what_starts_over_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = SimpleNamespace(now=0.0)
    monkeypatch.setattr(clock_module, "time", SimpleNamespace(perf_counter=lambda: watch.now))
    clock = Clock(tmp_path / "seconds.json")
    for _ in range(2):
        with clock.phase("prepare"):
            watch.now += 2
        watch.now += 100  # between phases: nobody's
        with clock.phase("train"):
            watch.now += 5
        with clock.phase("report", starts_over=True):
            watch.now += 3
    spent = Clock(tmp_path / "seconds.json").spent()
    assert list(spent) == ["prepare", "train", "report"]
    assert spent == {"prepare": 4, "train": 10, "report": 3}
    assert clock.from_tokens() == 13


def test_a_phase_that_fails_counts(tmp_path: Path) -> None:
    clock = Clock(tmp_path / "seconds.json")
    with pytest.raises(KeyError), clock.phase("train"):
        raise KeyError
    assert clock.spent()["train"] >= 0


def test_a_kill_loses_only_the_last_moments(tmp_path: Path) -> None:
    path = tmp_path / "seconds.json"
    process = subprocess.Popen([sys.executable, "-c", WAIT, str(path)])
    try:
        deadline = time.monotonic() + 120
        while not (path.is_file() and json.loads(path.read_text())["train"] > 0.3):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert Clock(path).spent()["train"] > 0.3
    assert [item.name for item in tmp_path.iterdir()] == ["seconds.json"] or (tmp_path / ".seconds.json.draft").exists()
