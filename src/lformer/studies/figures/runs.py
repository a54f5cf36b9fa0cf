"""Figures of single runs: loss and accuracy by time."""

from collections.abc import Callable
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lformer.studies.facts import RunFacts
from lformer.studies.figures.confusion import draw_confusion, side_of
from lformer.studies.figures.style import inline_svg, style


def loss_figure(runs: list[RunFacts]) -> str:
    """Training loss by optimizer step, one line a run."""
    return _curves(runs, lambda run: run.losses, "optimizer step", "training loss")


def accuracy_figure(runs: list[RunFacts]) -> str:
    """Validation accuracy by epoch, one line a run."""
    return _curves(runs, lambda run: run.accuracies, "epoch", "validation accuracy", marker="o", markersize=3)


def confusion_figure(run: RunFacts) -> str:
    """The confusion matrix of a classifier on the test split: colour is the share of the row's class."""
    assert run.confusion is not None
    side = side_of(len(run.label_names))
    with style():
        figure = Figure(figsize=(side, side), layout="constrained")
        draw_confusion(figure.add_subplot(), run.confusion, run.label_names)
        return inline_svg(figure, f"Confusion matrix of {run.name}")


def _curves(
    runs: list[RunFacts], points: Callable[[RunFacts], list[tuple[int, float]]], x: str, y: str, **options: Any
) -> str:
    with style():
        figure = Figure(figsize=(5.2, 3.2), layout="constrained")
        axes: Axes = figure.add_subplot()
        for run in runs:
            found = points(run)
            if found:
                axes.plot(*zip(*found, strict=True), label=run.name, linewidth=1.5, **options)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        if axes.lines:
            axes.legend([line for line in axes.lines], [str(line.get_label()) for line in axes.lines])
        return inline_svg(figure, f"{y} by {x}")
