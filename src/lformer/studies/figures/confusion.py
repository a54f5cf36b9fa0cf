"""Which classes are taken for which."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from lformer.studies.figures.style import StudyFigure, group_figure, put_title
from lformer.studies.results import Results
from lformer.studies.rows import Row, best_note, best_tensor, data_of, find_row, title_of

CONFUSION = "Rows are true classes, columns predicted ones; the colour is the share of the row, the number a count."
MOST_NUMBERS = 20  # classes up to which the cells show their count


def confusion_of_group(results: Results, group: str) -> StudyFigure | None:
    """Std and the best T4 side by side, summed over the seeds."""
    names = [str(name) for name in results.groups[group].get("labels", [])]
    found = [(row, counts) for row in _rows(results, group) if (counts := _sum(row, len(names))) is not None]
    if not found:
        return None
    side = side_of(len(names))
    figure = Figure(figsize=(side * len(found), side + 0.5), layout="constrained")
    title = f"Confusion on the test split: {title_of(results, group)}"
    put_title(figure, title, data_of(results, group))
    for i, (row, counts) in enumerate(found):
        axes = figure.add_subplot(1, len(found), i + 1)
        draw_confusion(axes, counts, names)
        axes.set_title(f"{row.model}, seeds: {len(row.runs)}")
    caption = f"{CONFUSION} Counts are summed over the seeds. {best_note(results, group)}"
    return group_figure("confusion", group, title, caption, figure)


def draw_confusion(axes: Axes, counts: NDArray[np.int64], names: list[str]) -> None:
    """Counts by class (row) and predicted class (column): colour is the share of the row's class."""
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
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


def side_of(classes: int) -> float:
    """Inches that a matrix takes."""
    return float(np.clip(0.32 * classes + 1.2, 3.0, 9.0))


def _rows(results: Results, group: str) -> list[Row]:
    rows = [find_row(results, group, "Std"), best_tensor(results, group)]
    return [row for row in rows if row is not None and row.runs]


def _sum(row: Row, classes: int) -> NDArray[np.int64] | None:
    """None where a run has no matrix of this size: then the sum would be of fewer seeds than it says."""
    matrices = [np.asarray(run.confusion, dtype=np.int64) for run in row.runs]
    if not classes or any(matrix.shape != (classes, classes) for matrix in matrices):
        return None
    return np.sum(matrices, axis=0, dtype=np.int64)
