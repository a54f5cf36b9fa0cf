"""Figures of runs as SVG, to stand inside a page: text and lines take the page's colour, the background is its own."""

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lformer.studies.facts import RunFacts

INK = "#010203"  # a colour that nothing else has: in the SVG it becomes the page's
STYLE: Any = {
    **dict.fromkeys(["text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"], INK),
    "text.parse_math": False,  # a dollar sign in the name of a run is a dollar sign
    "svg.fonttype": "none",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
}
MOST_NUMBERS = 20  # classes up to which the cells of a confusion matrix show their count


def loss_figure(runs: list[RunFacts]) -> str:
    """Training loss by optimizer step, one line a run."""
    return _curves(runs, lambda run: run.losses, "optimizer step", "training loss")


def accuracy_figure(runs: list[RunFacts]) -> str:
    """Validation accuracy by epoch, one line a run."""
    return _curves(runs, lambda run: run.accuracies, "epoch", "validation accuracy", marker="o", markersize=3)


def confusion_figure(run: RunFacts) -> str:
    """The confusion matrix of a classifier on the test split: colour is the share of the row's class."""
    assert run.confusion is not None
    counts, names = run.confusion, run.label_names
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    side = float(np.clip(0.32 * len(names) + 1.2, 3.0, 9.0))
    with _style():
        figure = Figure(figsize=(side, side), layout="constrained")
        axes = figure.add_subplot()
        axes.grid(False)
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
        axes.set_xlabel("predicted")
        axes.set_ylabel("true")
        if len(names) <= 3 * MOST_NUMBERS:
            axes.set_xticks(range(len(names)), names, rotation=90)
            axes.set_yticks(range(len(names)), names)
        if len(names) <= MOST_NUMBERS:
            for row, column in np.argwhere(counts > 0):
                colour = "white" if shares[row, column] > 0.5 else "black"
                axes.text(column, row, str(counts[row, column]), ha="center", va="center", color=colour, fontsize=7)
        return _svg(figure, f"Confusion matrix of {run.name}")


def _curves(
    runs: list[RunFacts], points: Callable[[RunFacts], list[tuple[int, float]]], x: str, y: str, **options: Any
) -> str:
    with _style():
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
        return _svg(figure, f"{y} by {x}")


@contextmanager
def _style() -> Iterator[None]:
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*")  # the reader's browser has more letters
        yield


def _svg(figure: Figure, title: str) -> str:
    buffer = io.StringIO()
    metadata = dict.fromkeys(["Date", "Creator", "Format", "Type"])
    with mpl.rc_context({"svg.hashsalt": title}):  # the same figure is the same text, and two do not share names
        figure.savefig(buffer, format="svg", transparent=True, metadata=metadata)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' id="[A-Za-z][\w.]*_\d+"', "", svg)  # names of parts, which would occur twice in a page
    return svg.replace(INK, "currentColor").replace("<svg ", '<svg role="img" ', 1)
