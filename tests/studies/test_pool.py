"""Workers and their jobs: nothing that goes wrong makes the study wait for ever, and no worker stays behind."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lformer.studies import pool as pool_module
from lformer.studies.pool import NOT_STARTED, STOPPED, Job, Pool

# Does what it is told, without the seconds that it takes to import torch.
WORKER = """
import json, os, signal, sys, time
for line in sys.stdin:
    job = json.loads(line)
    with open(job["log"], "a") as log:
        log.write(job["name"] + "\\n")
    if job["does"] == "die":
        os._exit(7)
    if job["does"] == "babble":
        os.write(1, b"half an ans")
        os._exit(0)
    if job["does"] == "not listen":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(job.get("seconds", 0))
    print(json.dumps({"error": "it failed" if job["does"] == "fail" else None}), flush=True)
"""


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    return Pool(2, tmp_path / "logs", command=(sys.executable, "-c", WORKER))


def job(tmp_path: Path, name: str, does: str = "work", after: tuple[str, ...] = (), **more: Any) -> Job:
    request = {"name": name, "does": does, "log": str(tmp_path / "done"), **more}
    return Job(name, lambda: request, after=after)


def done(tmp_path: Path) -> list[str]:
    return (tmp_path / "done").read_text().split()


def in_time(work: Callable[[], Any], seconds: float = 30) -> Any:
    """What it returns; a failure if it takes too long."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert found, "it hangs"
    return found[0]


def all_ended(pool: Pool) -> bool:
    return all(process.poll() is not None for process in pool.processes)


def test_jobs_are_done_once_and_after_what_they_wait_for(pool: Pool, tmp_path: Path) -> None:
    jobs = [job(tmp_path, f"late-{i}", after=("early",)) for i in range(3)] + [job(tmp_path, "early", seconds=0.3)]
    assert in_time(lambda: pool.run(jobs)) == {}
    assert done(tmp_path)[0] == "early"
    assert sorted(done(tmp_path)) == ["early", "late-0", "late-1", "late-2"]
    assert all_ended(pool)


@pytest.mark.parametrize(("does", "reason"), [("fail", "it failed"), ("die", "exit code 7"), ("babble", "exit code 0")])
def test_what_goes_wrong_in_a_worker_is_noted(pool: Pool, tmp_path: Path, does: str, reason: str) -> None:
    pool.workers = 1
    errors = in_time(lambda: pool.run([job(tmp_path, "bad", does), job(tmp_path, "next", after=("bad",))]))
    assert list(errors) == ["bad"]
    assert reason in errors["bad"]
    assert done(tmp_path) == ["bad", "next"]


@pytest.mark.parametrize(("does", "processes"), [("work", 1), ("fail", 2)])
def test_after_a_failure_the_next_job_has_another_process(
    pool: Pool, tmp_path: Path, does: str, processes: int
) -> None:
    """A recording of a CUDA graph that failed, or a memory access that did, leaves a process in which no step works."""
    pool.workers = 1
    in_time(lambda: pool.run([job(tmp_path, "a", does), job(tmp_path, "b", after=("a",))]))
    assert done(tmp_path) == ["a", "b"]
    assert len(pool.processes) == processes
    assert all_ended(pool)


@pytest.mark.parametrize("does", ["work", "not listen"])
def test_when_the_time_is_up_jobs_are_stopped_and_none_is_started(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str
) -> None:
    monkeypatch.setattr(pool_module, "PATIENCE", 1.0)
    pool.workers = 1
    last = [job(tmp_path, "long", does, after=("bad",), seconds=300), job(tmp_path, "late", after=("long",))]
    monkeypatch.setattr(Pool, "_is_late", lambda pool, by=0.0: is_up(tmp_path, by))
    errors = in_time(lambda: pool.run([job(tmp_path, "bad", "fail"), *last]))
    assert errors == {"bad": "it failed", "long": STOPPED, "late": NOT_STARTED}
    assert pool.unfinished == {"long", "late"}
    assert done(tmp_path) == ["bad", "long"]
    assert all_ended(pool)


def is_up(tmp_path: Path, by: float) -> bool:
    """Whether the long job was begun, which is the deadline here, and that long ago."""
    path = tmp_path / "done"
    return path.exists() and "long" in done(tmp_path) and time.time() - path.stat().st_mtime > 0.3 + by


def test_no_worker_is_started_after_the_deadline(pool: Pool, tmp_path: Path) -> None:
    pool.deadline = time.monotonic()
    errors = in_time(lambda: pool.run([job(tmp_path, "a"), job(tmp_path, "b", after=("a",))]))
    assert errors == {"a": NOT_STARTED, "b": NOT_STARTED}
    assert pool.processes == []


def test_a_job_that_cannot_be_made_is_noted(pool: Pool, tmp_path: Path) -> None:
    def make() -> dict[str, Any]:
        raise ValueError("no trial is finished")

    errors = in_time(lambda: pool.run([Job("bad", make), job(tmp_path, "next", after=("bad",))]))
    assert errors == {"bad": "no trial is finished"}
    assert done(tmp_path) == ["next"]


def test_workers_that_cannot_be_started(pool: Pool, tmp_path: Path) -> None:
    pool.command = (str(tmp_path / "nothing"),)
    errors = in_time(lambda: pool.run([job(tmp_path, "a"), job(tmp_path, "b", after=("a",))]))
    assert set(errors) == {"a", "b"}
    assert "no worker could be started" in errors["a"]


@pytest.mark.parametrize("hook", ["on_start", "on_end"])
def test_a_mistake_of_ours_ends_everything(pool: Pool, tmp_path: Path, hook: str) -> None:
    def fail(name: str, *_: Any) -> None:
        if name == "a":
            raise KeyError(name)

    setattr(pool, hook, fail)
    jobs = [job(tmp_path, "a"), job(tmp_path, "long", seconds=300), job(tmp_path, "b", after=("a",))]
    assert isinstance(in_time(lambda: pool.run(jobs)), KeyError)
    assert all_ended(pool)


def test_a_worker_is_not_started_once_the_study_is_to_stop(pool: Pool, tmp_path: Path) -> None:
    def stop(_: str) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        while not pool.interrupted:
            time.sleep(0.01)

    pool.on_start = stop
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        pool.run([job(tmp_path, "a", seconds=300)])
    assert pool.processes == []
    assert threading.active_count() == before


def test_workers_hold_what_is_kept_open(pool: Pool, tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    with (tmp_path / "lock").open() as file:
        pool.keep_open = (file.fileno(),)
        held: list[bool] = []
        pool.on_end = lambda *_: held.extend(
            Path(f"/proc/{process.pid}/fd/{file.fileno()}").exists() for process in pool.processes
        )
        in_time(lambda: pool.run([job(tmp_path, "a")]))
    assert held == [True]
