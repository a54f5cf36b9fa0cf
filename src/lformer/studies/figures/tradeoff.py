"""Accuracy against size: of the rows of a group, and of a dense model that is compressed after training."""

from typing import Any

from matplotlib.axes import Axes

from lformer.studies.controls import MATCHED
from lformer.studies.figures.style import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    VERMILION,
    StudyFigure,
    count_axis,
    group_figure,
    new_axes,
    numbered,
)
from lformer.studies.results import Results
from lformer.studies.rows import Row, best_note, best_tensor, data_of, find_row, group_rows, title_of
from lformer.studies.tables.cells import slug
from lformer.studies.tables.compressed import UNCOMPRESSED, method_of, trials_note
from lformer.studies.tables.parameters import encoder_parameters

FAMILIES = {
    "dense": (BLUE, "o"),
    "tensor": (VERMILION, "s"),
    "slices": (GREEN, "^"),
    "low rank": (ORANGE, "D"),
    "fourier": (PURPLE, "v"),
}
FAMILY_NAMES = {
    "dense": "dense (p=1)",
    "tensor": "tensor (p>1)",
    "slices": "slices without a transform",
    "low rank": "dense, low rank",
    "fourier": "Fourier mixing (FNet)",
}

TRAINED = ["*", "P", "X"]  # markers
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
    points = [point for point in results.compressed[name] if point["test_accuracy"] is not None]
    series: dict[str, list[tuple[float, float]]] = {}
    for point in points:
        if point["method"] != UNCOMPRESSED:
            place = (point["layer_parameters"], 100 * point["test_accuracy"])
            series.setdefault(method_of(point), []).append(place)
    if not series:
        return None
    title = f"Compression after training: {model}, {title_of(results, group)}"
    figure, axes = new_axes(title, data_of(results, group), (7.2, 4.8))
    for (label, places), (colour, marker) in zip(series.items(), numbered(len(series)), strict=True):
        axes.plot(*zip(*sorted(places), strict=True), color=colour, marker=marker, markersize=4, label=label)
    for point in points:
        if point["method"] == UNCOMPRESSED:
            place = (point["layer_parameters"], 100 * point["test_accuracy"])
            hollow: dict[str, Any] = {"markerfacecolor": "none", "color": INK, "linestyle": "none"}
            axes.plot(*place, marker="*", markersize=12, label=f"{model}, the trial that was compressed", **hollow)
    for row, marker in zip(_trained(results, group, model), TRAINED, strict=False):
        score = row.score()
        assert score is not None
        label = f"{row.model}, trained at its size"
        error_bar(axes, row.runs[0].layer_parameters, score.mean, score.std, marker=marker, color=INK, label=label)
    count_axis(axes)
    axes.set_xlabel("layer parameters")
    axes.set_ylabel("test accuracy (%)")
    figure.legend(loc="outside lower center", ncols=2)
    caption = (
        "Lines: the best compressed model of each budget, without further training. Hollow: the model that was"
        f" compressed, {trials_note(results, name)}. Black: models trained at their size on all training texts,"
        f" mean ± sample standard deviation over seeds. {best_note(results, group)}"
    )
    key = slug(f"compressed-{group}-{model}")
    return StudyFigure(key=key, title=title, caption=caption, figure=figure, beside="compressed")


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
    """The row itself, the dense one that is as small as T4, and the best tensor row."""
    found = (find_row(results, group, model), find_row(results, group, MATCHED), best_tensor(results, group))
    rows = {row.model: row for row in found if row}
    return [row for row in rows.values() if row.score()]
