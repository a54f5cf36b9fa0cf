"""What a user sees while it measures, on stderr: a moving display in a terminal, a line for every shape elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class BenchProgress:
    """One bar for the shape at hand: a step for every candidate that is ready and for every round."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[stage]}"),
            console=self.console,
            disable=not self.console.is_terminal,
            transient=True,
        )
        self.task = self.bar.add_task("bench", total=None, stage="")

    def __enter__(self) -> "BenchProgress":
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def case(self, name: str, steps: int) -> None:
        self.bar.reset(self.task, description=name, total=steps, stage="")
        if not self.console.is_terminal:
            self.console.print(f"{name}: {steps} steps", soft_wrap=True)

    def stage(self, text: str) -> None:
        self.bar.update(self.task, stage=text)

    def advance(self) -> None:
        self.bar.advance(self.task)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """While something is printed on stdout."""
        self.bar.stop()
        yield
        self.bar.start()
