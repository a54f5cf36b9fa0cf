"""Jobs side by side in worker processes, each as soon as what it waits for is done."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


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
    """Workers that share a list of jobs. A job that fails is noted, and the others go on."""

    workers: int
    logs: Path
    """A folder for what the workers print."""
    threads: int | None = None
    """Of torch in every worker; None leaves it to torch."""
    keep_open: tuple[int, ...] = ()
    """Descriptors of files that every worker holds open as long as it lives."""
    command: tuple[str, ...] = (sys.executable, "-m", "lformer.studies.worker")
    on_start: Callable[[str], None] = lambda name: None
    on_end: Callable[[str, str | None], None] = lambda name, error: None
    errors: dict[str, str] = field(default_factory=dict)
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
                    thread.join(0.2)  # a join without an end could not be interrupted
            if self.broken is not None:
                raise self.broken
        return self.errors

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
        except BaseException as failure:
            self.broken = self.broken or failure
        finally:
            if process is not None:
                process.communicate()  # the end of its jobs: it ends too

    def _close(self, job: Job, error: str | None) -> None:
        with self.changed:
            self.open.discard(job.name)
            if error is not None:
                self.errors[job.name] = error
            self.changed.notify_all()
        self.on_end(job.name, error)

    def _next(self) -> Job | None:
        with self.changed:
            while not self.interrupted and self.waiting:
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
