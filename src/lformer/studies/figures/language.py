"""Language models: all rows by bits per byte, and bits against the speed of training."""

from lformer.studies.figures.style import StudyFigure, group_figure, new_axes, short_counts
from lformer.studies.figures.tradeoff import FAMILIES, error_bar, family_legend
from lformer.studies.results import Results
from lformer.studies.rows import data_of, group_rows, title_of
from lformer.studies.tables.language import bits


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


def speed_figure(results: Results, group: str) -> StudyFigure | None:
    """Bits per byte against training tokens a second."""
    rows = [row for row in group_rows(results, group) if row.runs and results.measurement(group, row.model)]
    if not rows:
        return None
    title = f"Bits per byte against speed: {title_of(results, group)}"
    figure, axes = new_axes(title, data_of(results, group), (6.8, 4.2))
    for row in rows:
        measured, score = results.measurement(group, row.model), bits(row)
        assert measured is not None
        colour, marker = FAMILIES[row.family]
        error_bar(axes, measured.tokens_per_second, score.mean, score.std, color=colour, marker=marker)
    family_legend(axes, rows)
    short_counts(axes)
    axes.set_xlabel("training tokens a second")
    axes.set_ylabel("bits per byte (validation)")
    caption = "Below and to the right is better. Steps alone on the machine."
    return group_figure("bits-speed", group, title, caption, figure, table="bits")
