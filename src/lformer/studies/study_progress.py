"""What a user sees of a study: one bar over all its steps, and which runs are on; lines where there is no terminal."""

import threading
import time
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from lformer.studies.pool import STOPPED
from lformer.train import RunFolder

SECONDS_BETWEEN_LOOKS = 1.0


class StudyProgress:
    """Counts the steps of runs that are finished and, from their metrics, of those that are on."""

    def __init__(
        self, steps: dict[str, int], runs: Path | None, console: Console | None = None, title: str = "training"
    ) -> None:
        self.steps, self.runs = steps, runs
        self.console = console or Console(stderr=True)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[active]}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.task = self.bar.add_task(title, total=max(sum(steps.values()), 1), count="", active="")
        self.active: dict[str, float] = {}
        self.done: list[str] = []
        self.lock = threading.Lock()
        self.closed = threading.Event()

    def __enter__(self) -> "StudyProgress":
        self.bar.start()
        self.watcher = threading.Thread(target=self._watch, daemon=True)
        self.watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closed.set()
        self.watcher.join()
        self._show()
        self.bar.stop()

    def start(self, name: str) -> None:
        with self.lock:
            self.active[name] = time.perf_counter()

    def end(self, name: str, error: str | None) -> None:
        with self.lock:
            seconds = time.perf_counter() - self.active.pop(name)
            self.done.append(name)
        count = f"{len(self.done)}/{len(self.steps)}"
        if error == STOPPED:
            self.console.print(f"{count} {name} {error}", highlight=False, markup=False, soft_wrap=True)
        elif error is not None:
            self.console.print(
                f"[red]{count} {escape(name)} failed:[/] {escape(error)}", highlight=False, soft_wrap=True
            )
        elif not self.console.is_terminal:
            self.console.print(f"{count} {name} {seconds:.1f} s", highlight=False, markup=False, soft_wrap=True)

    def _watch(self) -> None:
        while not self.closed.wait(SECONDS_BETWEEN_LOOKS):
            self._show()

    def _show(self) -> None:
        with self.lock:
            active, done = list(self.active), list(self.done)
        completed = sum(self.steps[name] for name in done) + sum(min(self._step(n), self.steps[n]) for n in active)
        self.bar.update(
            self.task,
            completed=completed,
            count=f"{len(done)}/{len(self.steps)} runs",
            active=", ".join(active),
        )

    def _step(self, name: str) -> int:
        if self.runs is None or not self.console.is_terminal:
            return 0
        return max((line["step"] for line in RunFolder(self.runs / name).metrics()), default=0)
