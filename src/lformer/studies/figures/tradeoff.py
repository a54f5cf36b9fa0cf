"""Accuracy against size: of the rows of a group, and of a dense model that is compressed after training."""

from typing import Any

from matplotlib.axes import Axes

from lformer.studies.figures.style import (
    BLUE,
    GREEN,
    INK,
    VERMILION,
    StudyFigure,
    count_axis,
    group_figure,
    new_axes,
    numbered,
)
from lformer.studies.results import Results
from lformer.studies.rows import Row, best_tensor, data_of, find_row, group_rows, title_of
from lformer.studies.tables.cells import slug
from lformer.studies.tables.parameters import encoder_parameters
from lformer.studies.tables.trials import parts_of

FAMILIES = {"dense": (BLUE, "o"), "tensor": (VERMILION, "s"), "other": (GREEN, "^")}
FAMILY_NAMES = {"dense": "dense (p=1)", "tensor": "tensor (p>1)", "other": "slices without a transform"}

MOST_NAMES = 10  # rows up to which each has its own colour and name


def parameters_figure(results: Results, group: str) -> StudyFigure | None:
    """Encoder parameters against test accuracy, ours filled and the paper's hollow."""
    rows = [row for row in group_rows(results, group) if row.score()]
    if not rows:
        return None
    title = f"Encoder parameters against accuracy: {title_of(results, group)}"
    figure, axes = new_axes(title, data_of(results, group), (6.8, 4.2))
    by_family = len(rows) > MOST_NAMES
    looks = [FAMILIES[row.family] for row in rows] if by_family else numbered(len(rows))
    for row, (colour, marker) in zip(rows, looks, strict=True):
        score, size = row.score(), encoder_parameters(row)
        assert score is not None
        assert size is not None
        label = FAMILY_NAMES[row.family] if by_family else row.model
        known = label in axes.get_legend_handles_labels()[1]
        error_bar(axes, size, score.mean, score.std, color=colour, marker=marker, label=None if known else label)
        paper = row.published
        if paper.accuracy is not None and paper.encoder_parameters is not None:
            hollow = {"color": colour, "marker": marker, "markerfacecolor": "none", "alpha": 0.8}
            error_bar(axes, 1000 * paper.encoder_parameters, paper.accuracy, paper.deviation, **hollow)
    count_axis(axes)
    axes.set_xlabel("encoder parameters")
    axes.set_ylabel("test accuracy (%)")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    caption = "Filled: ours, mean ± sample standard deviation over seeds."
    if any(row.published.accuracy is not None for row in rows):
        caption += " Hollow: the paper's, with the parameters that it prints."
    return group_figure("parameters", group, title, caption, figure)


def frontier_figure(results: Results, name: str) -> StudyFigure | None:
    """Accuracy after compression by parameters, beside models that were trained small."""
    group, _, model = name.partition("/")
    series: dict[str, list[tuple[float, float]]] = {}
    for point in results.compressed[name]:
        size, accuracy = point.get("layer_parameters"), point.get("test_accuracy")
        if size is not None and accuracy is not None:
            series.setdefault(f"{point.get('method', '')}, {parts_of(point)}", []).append((size, 100 * accuracy))
    if not series:
        return None
    title = f"Compression after training: {model}, {title_of(results, group)}"
    figure, axes = new_axes(title, data_of(results, group), (6.8, 4.2))
    for (label, points), (colour, marker) in zip(series.items(), numbered(len(series)), strict=True):
        axes.plot(*zip(*sorted(points), strict=True), color=colour, marker=marker, markersize=4, label=label)
    for row in _trained(results, group, model):
        score = row.score()
        assert score is not None
        axes.plot(row.runs[0].layer_parameters, score.mean, marker="*", markersize=11, color=INK, linestyle="none")
        place: Any = {"xytext": (0, 8), "textcoords": "offset points", "ha": "center", "fontsize": 8}
        axes.annotate(row.model, (row.runs[0].layer_parameters, score.mean), **place)
    axes.margins(0.1, 0.12)
    count_axis(axes)
    axes.set_xlabel("layer parameters")
    axes.set_ylabel("test accuracy (%)")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return StudyFigure(
        key=slug(f"compressed-{group}-{model}"),
        title=title,
        caption="Lines: the trained model, compressed without further training. Stars: models trained at their size.",
        figure=figure,
        beside="compressed",
    )


def family_legend(axes: Axes, rows: list[Row]) -> None:
    """The colours of the families that occur, beside the axes."""
    for family in dict.fromkeys(row.family for row in rows):
        colour, marker = FAMILIES[family]
        axes.plot([], [], color=colour, marker=marker, linestyle="none", label=FAMILY_NAMES[family])
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def error_bar(axes: Axes, x: float, mean: float, std: float | None, **options: Any) -> None:
    """A point with mean ± standard deviation; without a bar where there is one seed."""
    axes.errorbar(
        [x], [mean], yerr=None if std is None else [std], linestyle="none", capsize=3, markersize=6, **options
    )


def _trained(results: Results, group: str, model: str) -> list[Row]:
    rows = {row.model: row for row in (find_row(results, group, model), best_tensor(results, group)) if row}
    return [row for row in rows.values() if row.score()]
