"""Language models: all rows by bits per byte, bits against the time of training, and bits against size."""

from lformer.studies.figures.style import StudyFigure, count_axis, group_figure, new_axes, numbered
from lformer.studies.figures.tradeoff import FAMILIES, error_bar, family_legend
from lformer.studies.results import Results
from lformer.studies.rows import data_of, group_rows, title_of
from lformer.studies.tables.language import bits, training_seconds
from lformer.studies.tables.sizes import rows_of_sizes


def bits_figure(results: Results, group: str) -> StudyFigure | None:
    """All rows by bits per byte, coloured by family; the line is the reference."""
    rows = [row for row in group_rows(results, group) if row.runs]
    if not rows:
        return None
    scored = sorted(((bits(row), row) for row in rows), key=lambda pair: -pair[0].mean)
    title = f"All rows by bits per byte: {title_of(results, group)}"
    figure, axes = new_axes(title, data_of(results, group), (7.2, 1.2 + 0.26 * len(scored)))
    for place, (score, row) in enumerate(scored):
        colour, marker = FAMILIES[row.family]
        bar = None if score.std is None else [score.std]
        axes.errorbar([score.mean], [place], xerr=bar, color=colour, marker=marker, linestyle="none", capsize=3)
        if row.model == results.groups[group].get("reference"):
            axes.axvline(score.mean, color=colour, linestyle="--", linewidth=1)
    family_legend(axes, [row for _, row in reversed(scored)])
    axes.set_yticks(range(len(scored)), [row.model for _, row in scored])
    axes.set_xlabel("bits per byte (validation)")
    caption = "Mean ± sample standard deviation over seeds; the best at the top; the line is the reference."
    return group_figure("bits", group, title, caption, figure, table="bits")


def time_figure(results: Results, group: str) -> StudyFigure | None:
    """Bits per byte against the wall clock of the training."""
    rows = [row for row in group_rows(results, group) if row.runs and results.measurement(group, row.model)]
    if not rows:
        return None
    title = f"Bits per byte against training time: {title_of(results, group)}"
    figure, axes = new_axes(title, data_of(results, group), (6.8, 4.2))
    for row in rows:
        seconds, score = training_seconds(results, row), bits(row)
        assert seconds is not None
        colour, marker = FAMILIES[row.family]
        error_bar(axes, seconds, score.mean, score.std, color=colour, marker=marker)
    family_legend(axes, rows)
    axes.set_xlabel("training time (s)")
    axes.set_ylabel("bits per byte (validation)")
    caption = "Below and to the left is better. All steps of a run, at the speed of steps alone on the machine."
    return group_figure("bits-time", group, title, caption, figure, table="bits")


def sizes_figure(results: Results) -> StudyFigure | None:
    """Bits per byte against layer parameters, a line for each model that was trained at several sizes."""
    found = rows_of_sizes(results)
    if not found:
        return None
    title = "Bits per byte against size"
    figure, axes = new_axes(title, size=(6.8, 4.2))
    for (model, rows), (colour, marker) in zip(found.items(), numbered(len(found)), strict=True):
        places = sorted((row.runs[0].layer_parameters, bits(row).mean) for row in rows.values())
        axes.plot(*zip(*places, strict=True), color=colour, marker=marker, label=model)
    count_axis(axes)
    axes.set_xlabel("layer parameters")
    axes.set_ylabel("bits per byte (validation)")
    figure.legend(loc="outside lower center")
    caption = "The same bytes of training at every size. Means over seeds, of which the table has the numbers."
    return StudyFigure(key="sizes", title=title, caption=caption, figure=figure, beside="sizes")
