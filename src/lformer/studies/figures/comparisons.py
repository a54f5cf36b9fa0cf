"""Rows of a group against each other: by positions, by tube length, all of them in order; and the gap by width."""

import math

from lformer.studies.figures.style import (
    BLUE,
    INK,
    VERMILION,
    StudyFigure,
    group_figure,
    new_axes,
    numbered,
    power_axis,
)
from lformer.studies.figures.tradeoff import FAMILIES, error_bar, family_legend
from lformer.studies.results import Results
from lformer.studies.rows import Row, best_note, best_tensor, data_of, find_row, group_rows, published_gap, title_of
from lformer.studies.tables.accuracy import strategies

PARITY = 0.3  # points within which the paper calls two accuracies equal


def positions_figure(results: Results, group: str) -> StudyFigure | None:
    """The ways to weight the positions at p=4, with Std as a dashed line."""
    rows = [row for row in strategies(results, group) if row.score()]
    if len(rows) < 2:
        return None
    title = f"Positions at p=4: {title_of(results, group)}"
    figure, axes = new_axes(title, data_of(results, group))
    for i, row in enumerate(rows):
        score, paper = row.score(), row.published
        assert score is not None
        error_bar(axes, i - 0.1, score.mean, score.std, color=BLUE, marker="o")
        if paper.accuracy is not None:
            hollow = {"color": VERMILION, "marker": "s", "markerfacecolor": "none"}
            error_bar(axes, i + 0.1, paper.accuracy, paper.deviation, **hollow)
    axes.plot([], [], color=BLUE, marker="o", linestyle="none", label="ours")
    if any(row.published.accuracy is not None for row in rows):
        axes.plot([], [], color=VERMILION, marker="s", markerfacecolor="none", linestyle="none", label="paper")
    dense = find_row(results, group, "Std")
    if dense is not None and (score := dense.score()):
        axes.axhline(score.mean, color=BLUE, linestyle="--", linewidth=1, label="Std, ours")
    if dense is not None and dense.published.accuracy is not None:
        axes.axhline(dense.published.accuracy, color=VERMILION, linestyle=":", linewidth=1.2, label="Std, paper")
    axes.set_xticks(range(len(rows)), [row.model.removeprefix("T4-") for row in rows])
    axes.set_ylabel("test accuracy (%)")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    caption = "Mean ± sample standard deviation over seeds; the lines are the dense model of the same width."
    return group_figure("positions", group, title, caption, figure)


def tubes_figure(results: Results, group: str) -> StudyFigure | None:
    """Accuracy by p, a line for rows that differ in nothing else."""
    series: dict[str, list[Row]] = {}
    for row in group_rows(results, group):
        if row.runs and row.family == "tensor" and row.score():
            series.setdefault(_beside_tubes(row), []).append(row)
    lines = [rows for rows in series.values() if len({row.field("tube_length") for row in rows}) > 1]
    if not lines:
        return None
    title = f"Accuracy by tube length: {title_of(results, group)}"
    figure, axes = new_axes(title, data_of(results, group))
    seen = {1}
    for rows, (colour, marker) in zip(lines, numbered(len(lines)), strict=True):
        rows = sorted(rows, key=lambda row: int(row.field("tube_length")))
        lengths = [int(row.field("tube_length")) for row in rows]
        scores = [score for row in rows if (score := row.score())]
        label = ", ".join(row.model for row in rows)
        axes.plot(lengths, [score.mean for score in scores], color=colour, linewidth=1, label=label)
        for length, score in zip(lengths, scores, strict=True):
            error_bar(axes, length, score.mean, score.std, color=colour, marker=marker)
        seen |= set(lengths)
    dense = find_row(results, group, "Std")
    if dense is not None and (score := dense.score()):
        error_bar(axes, 1, score.mean, score.std, color=INK, marker="D")
        axes.axhline(score.mean, color=INK, linestyle="--", linewidth=1, label="Std (p=1)")
    power_axis(axes, seen)
    axes.set_xlabel("tube length p")
    axes.set_ylabel("test accuracy (%)")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=1)
    caption = "Mean ± sample standard deviation over seeds; the encoder has about 1/p of the dense one's parameters."
    return group_figure("tubes", group, title, caption, figure)


def rows_figure(results: Results, group: str) -> StudyFigure | None:
    """All rows by accuracy, coloured by family."""
    scored = [(score, row) for row in group_rows(results, group) if (score := row.score())]
    if len(scored) < 3:
        return None
    scored.sort(key=lambda pair: pair[0].mean)
    title = f"All rows by accuracy: {title_of(results, group)}"
    figure, axes = new_axes(title, data_of(results, group), (7.2, 1.2 + 0.26 * len(scored)))
    for place, (score, row) in enumerate(scored):
        colour, marker = FAMILIES[row.family]
        bar = None if score.std is None else [score.std]
        axes.errorbar([score.mean], [place], xerr=bar, color=colour, marker=marker, linestyle="none", capsize=3)
    family_legend(axes, [row for _, row in reversed(scored)])
    axes.set_yticks(range(len(scored)), [row.model for _, row in scored])
    axes.set_xlabel("test accuracy (%)")
    caption = "Mean ± sample standard deviation over seeds; a point without a bar is of one seed."
    return group_figure("rows", group, title, caption, figure)


def gap_figure(results: Results) -> StudyFigure | None:
    """The best T4 minus Std by width, with the band that the paper calls parity."""
    found: list[tuple[str, int, float, float | None]] = []
    for group in results.groups:
        dense, best = find_row(results, group, "Std"), best_tensor(results, group)
        if dense is None or best is None:
            continue
        ours, tensor = dense.score(), best.score()
        if ours is None or tensor is None:
            continue
        std = None if ours.std is None or tensor.std is None else math.hypot(ours.std, tensor.std)
        found.append((group, int(best.field("hidden_size")), tensor.mean - ours.mean, std))
    if len(found) < 2:
        return None
    title = "Accuracy gap by width: best T4 minus Std"
    figure, axes = new_axes(title, data_of(results, *(group for group, *_ in found)), (6.4, 4.0))
    axes.axhspan(-PARITY, PARITY, color=INK, alpha=0.12, linewidth=0, label=f"±{PARITY} points")
    axes.axhline(0, color=INK, linewidth=0.8)
    for (group, width, gap, std), (colour, marker) in zip(found, numbered(len(found)), strict=True):
        error_bar(axes, width / 1.02, gap, std, color=colour, marker=marker, label=title_of(results, group))
        if (paper := published_gap(group)) is not None:
            error_bar(axes, width * 1.02, paper, None, color=colour, marker=marker, markerfacecolor="none")
    power_axis(axes, {width for _, width, *_ in found})
    axes.margins(x=0.12)
    axes.set_xlabel("width d")
    axes.set_ylabel("accuracy gap (points)")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    caption = "Filled: ours; the bar is the root of the sum of both variances over seeds."
    if any(published_gap(group) is not None for group, *_ in found):
        caption += " Hollow: the paper's."
    caption += f" {best_note(results, *(group for group, *_ in found))}"
    return StudyFigure(key="gap-by-width", title=title, caption=caption, figure=figure, beside="summary")


def _beside_tubes(row: Row) -> str:
    """Everything of the configuration but the tube length, and the heads, which must be a multiple of it."""
    return repr(sorted((k, v) for k, v in row.fields.items() if k not in ("tube_length", "num_attention_heads")))
