"""A folder is of one study and of one process at a time; a lock that a killed process left is no obstacle."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lformer.settings import UserError
from lformer.studies import claim as claiming
from lformer.studies.claim import only_one

SLEEP = [sys.executable, "-c", "import time; time.sleep(300)"]


def wait(_: str) -> None:
    pytest.fail("nothing is to be waited for")


def test_a_second_one_is_refused_at_once(tmp_path: Path) -> None:
    with only_one(tmp_path, wait):
        started = time.monotonic()
        with (
            pytest.raises(UserError, match=rf"at work in .* \(process {os.getpid()}\)"),
            only_one(tmp_path, wait),
        ):
            pass
        assert time.monotonic() - started < 2
    with only_one(tmp_path, wait):
        assert (tmp_path / "lock").read_text() == str(os.getpid())


def test_the_file_of_a_process_that_is_gone_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("1\n")  # of a process that lives, but does not hold it
    with only_one(tmp_path, wait):
        pass


@pytest.mark.parametrize("is_patient", [True, False])
def test_workers_that_outlive_the_study_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_patient: bool
) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with only_one(tmp_path, wait) as lock:
        worker = subprocess.Popen(SLEEP, pass_fds=(lock,))
        (tmp_path / "lock").write_text(str(gone.pid))
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if is_patient:
            worker.kill()
            worker.wait()

    try:
        if is_patient:
            with only_one(tmp_path, say):
                assert worker.poll() is not None
        else:
            monkeypatch.setattr(claiming, "PATIENCE", 0.5)
            with (
                pytest.raises(UserError, match="workers of a study that was killed are still at work"),
                only_one(tmp_path, say),
            ):
                pass
        assert len(said) == 1
    finally:
        worker.kill()
        worker.wait()
