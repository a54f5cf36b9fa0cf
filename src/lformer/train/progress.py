"""What a user sees of a run: a moving display in a terminal, a line an epoch elsewhere."""

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class Display:
    """Shows steps, loss, score and speed; quiet=True shows nothing."""

    def __init__(self, total_steps: int, *, quiet: bool = False, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.quiet = quiet
        self.moving = self.console.is_terminal and not quiet
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.moving,
        )
        self.task = self.bar.add_task("training", total=total_steps, figures="")

    def __enter__(self) -> "Display":
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def step(self, step: int, **figures: Any) -> None:
        """A step is done; the figures are shown if there are any."""
        fields: dict[str, Any] = {"figures": _join(figures)} if figures else {}
        self.bar.update(self.task, completed=step, **fields)

    def say(self, text: str) -> None:
        """A line that stays."""
        if not self.quiet:
            self.console.print(text, highlight=False, soft_wrap=True)

    def steps(self, step: int, total: int, **figures: Any) -> None:
        self.say(f"step {step}/{total}: {_join(figures)}")

    def epoch(self, epoch: int, epochs: int, **figures: Any) -> None:
        self.say(f"epoch {epoch}/{epochs}: {_join(figures)}")


def _join(figures: dict[str, Any]) -> str:
    return "  ".join(f"{name.replace('_', ' ')} {_format(value)}" for name, value in figures.items())


def _format(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)
