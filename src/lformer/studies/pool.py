"""Jobs side by side in worker processes, each as soon as what it waits for is done."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STOPPED = "it was stopped: the study goes on with it when it is run again"
NOT_STARTED = "the time was up: the study starts it when it is run again"
PATIENCE = 30.0  # seconds that a worker has to write a checkpoint, or to end, when it must


@dataclass
class Job:
    """One piece of work. `make` gives what the worker is sent, when it is known: after the jobs in `after`."""

    name: str
    make: Callable[[], dict[str, Any]]
    cost: float = 1.0
    """Larger ones start first, so that none is left over at the end."""
    after: tuple[str, ...] = ()


@dataclass
class Pool:
    """Workers that share a list of jobs. A job that fails is noted; the others go on in another process, without the
    memory that it still holds, and not on a device that it broke.
    """

    workers: int
    logs: Path
    """A folder for what the workers print."""
    threads: int | None = None
    """Of torch in every worker; None leaves it to torch."""
    keep_open: tuple[int, ...] = ()
    """Descriptors of files that every worker holds open as long as it lives."""
    deadline: float | None = None
    """Of `time.monotonic`, when the jobs that are on are stopped and no more are started; None is never."""
    command: tuple[str, ...] = (sys.executable, "-m", "lformer.studies.worker")
    on_start: Callable[[str], None] = lambda name: None
    on_end: Callable[[str, str | None], None] = lambda name, error: None
    errors: dict[str, str] = field(default_factory=dict)
    unfinished: set[str] = field(default_factory=set)
    """The names of jobs that did not fail, but were stopped or not started."""
    interrupted: bool = False
    broken: BaseException | None = None
    """What ended a thread that serves a worker: a mistake of ours, that must not be waited for in vain."""

    def run(self, jobs: list[Job]) -> dict[str, str]:
        """All jobs; returns what went wrong, by name."""
        self.waiting = sorted(jobs, key=lambda job: -job.cost)
        self.open = {job.name for job in jobs}
        self.changed = threading.Condition()
        self.processes: list[subprocess.Popen[str]] = []
        self.logs.mkdir(parents=True, exist_ok=True)
        count = min(self.workers, len(jobs))
        threads = [threading.Thread(target=self._serve, args=(index,), daemon=True) for index in range(count)]
        with self._stop_workers(threads):
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive() and self.broken is None:
                    if self._is_late():
                        self._end_in_time()
                    thread.join(0.2)  # a join without an end could not be interrupted
            if self.broken is not None:
                raise self.broken
        self.errors |= dict.fromkeys(self.open, NOT_STARTED)
        self.unfinished = {name for name, error in self.errors.items() if error in (STOPPED, NOT_STARTED)}
        return self.errors

    def _is_late(self, by: float = 0.0) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline + by

    def _end_in_time(self) -> None:
        if not self.interrupted:
            self._interrupt()
        elif self._is_late(by=PATIENCE):
            for process in self.processes:
                process.kill()

    @contextmanager
    def _stop_workers(self, threads: list[threading.Thread]) -> Iterator[None]:
        """However this ends, no worker stays behind. A worker that is told to stop writes a checkpoint first."""

        def stop(*_: Any) -> None:
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGTERM, stop) if threading.current_thread() is threading.main_thread() else None
        try:
            yield
        except BaseException:
            self._interrupt()
            for thread in threads:
                if thread.is_alive():
                    thread.join()
            raise
        finally:
            if before is not None:
                signal.signal(signal.SIGTERM, before)

    def _interrupt(self) -> None:
        """No job and no worker is started from here on, and those that are there end."""
        with self.changed:
            self.interrupted = True
            self.changed.notify_all()
            for process in self.processes:
                process.terminate()

    def _serve(self, index: int) -> None:
        """One worker and its jobs; a worker that died is replaced for the next one."""
        process = None
        try:
            while (job := self._next()) is not None:
                if process is not None and process.poll() is not None:
                    process.communicate()
                    process = None
                self.on_start(job.name)
                try:
                    process = process or self._start(index)
                except OSError as failure:
                    error: str | None = f"no worker could be started: {failure}"
                else:
                    if process is None:
                        return
                    error = self._ask(process, job, index)
                self._close(job, error)
                if error is not None and process is not None:
                    _end(process)
                    process = None
        except BaseException as failure:
            self.broken = self.broken or failure
        finally:
            if process is not None:
                _end(process)

    def _close(self, job: Job, error: str | None) -> None:
        with self.changed:
            self.open.discard(job.name)
            if error is not None:
                self.errors[job.name] = error
            self.changed.notify_all()
        self.on_end(job.name, error)

    def _next(self) -> Job | None:
        with self.changed:
            while not self.interrupted and not self._is_late() and self.waiting:
                for job in self.waiting:
                    if not self.open.intersection(job.after):
                        self.waiting.remove(job)
                        return job
                self.changed.wait()
            return None

    def _ask(self, process: subprocess.Popen[str], job: Job, index: int) -> str | None:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            request = job.make()
        except Exception as error:
            return str(error)
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = ""
        if not line.endswith("\n"):
            code = process.wait()
            if self.interrupted and code in (-signal.SIGTERM, -signal.SIGKILL):
                return STOPPED  # as it started, or in work that does not listen
            return f"the worker ended with exit code {code}; see {self._log(index)}"
        found: str | None = json.loads(line)["error"]
        return found

    def _start(self, index: int) -> subprocess.Popen[str] | None:
        """A new worker; none once the study is to stop."""
        environment = dict(os.environ)
        if self.threads is not None:
            environment["OMP_NUM_THREADS"] = str(self.threads)
        with self.changed, self._log(index).open("a", encoding="utf-8") as log:
            if self.interrupted:
                return None
            process = subprocess.Popen(
                [*self.command, *sys.argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the study, which tells its workers once
                pass_fds=self.keep_open,
            )
            self.processes.append(process)
        return process

    def _log(self, index: int) -> Path:
        return self.logs / f"worker-{index}.log"


def _end(process: subprocess.Popen[str]) -> None:
    """The end of its jobs: it ends too, unless its device keeps it."""
    try:
        process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
