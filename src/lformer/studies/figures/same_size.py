"""The central question as a picture: tensor models minus models without slices of the same size."""

from lformer.studies.figures.style import INK, StudyFigure, new_axes, numbered
from lformer.studies.results import Results
from lformer.studies.rows import best_note, data_of, title_of
from lformer.studies.tables.same_size import LEVEL, same_size_pairs


def same_size_figure(results: Results) -> StudyFigure | None:
    """The differences with their intervals over examples and seeds, around zero."""
    pairs = [pair for group in results.groups for pair in same_size_pairs(results, group) if pair.p_value is not None]
    if not pairs:
        return None
    groups = list(dict.fromkeys(pair.tensor.group for pair in pairs))
    looks = dict(zip(groups, numbered(len(groups)), strict=True))
    title = "At equal size: tensor model minus the model against it"
    figure, axes = new_axes(title, data_of(results, *groups), (7.6, 1.8 + 0.28 * len(pairs)))
    axes.axvline(0, color=INK, linewidth=0.8)
    for place, pair in enumerate(reversed(pairs)):
        found, (colour, marker) = pair.comparison, looks[pair.tensor.group]
        assert found is not None
        assert found.low_over_seeds is not None
        assert found.high_over_seeds is not None
        bar = [[found.difference - found.low_over_seeds], [found.high_over_seeds - found.difference]]
        fill = colour if pair.p_value is not None and pair.p_value < LEVEL else "none"
        axes.errorbar(
            [found.difference], [place], xerr=bar, color=colour, marker=marker, markerfacecolor=fill, capsize=3
        )
    for group, (colour, marker) in looks.items():
        axes.plot([], [], color=colour, marker=marker, linestyle="none", label=title_of(results, group))
    names = [f"{pair.tensor.model} − {pair.other.model}" for pair in reversed(pairs)]
    axes.set_yticks(range(len(pairs)), names)
    axes.set_xlabel("difference in test accuracy (points)")
    axes.margins(y=0.5 / len(pairs))
    figure.legend(loc="outside lower center", ncols=2)
    caption = (
        "To the right of zero the tensor model is better. Bars are 95 % intervals over examples and seeds; filled: the"
        f" difference stands after the correction for all comparisons of the group. {best_note(results, *groups)}"
    )
    return StudyFigure(key="same-size", title=title, caption=caption, figure=figure, beside="same-size")
