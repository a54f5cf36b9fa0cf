"""The figures of a study, each made by one function of its results."""

from lformer.studies.figures.comparisons import gap_figure, positions_figure, rows_figure, tubes_figure
from lformer.studies.figures.confusion import confusion_of_group
from lformer.studies.figures.curves import curves_figure
from lformer.studies.figures.language import bits_figure, sizes_figure, time_figure
from lformer.studies.figures.same_size import same_size_figure
from lformer.studies.figures.style import StudyFigure, style
from lformer.studies.figures.tradeoff import frontier_figure, parameters_figure
from lformer.studies.results import Results

__all__ = ["StudyFigure", "study_figures"]

OF_GROUP = [parameters_figure, positions_figure, tubes_figure, rows_figure, curves_figure, confusion_of_group]


def study_figures(results: Results) -> list[StudyFigure]:
    """All figures that have something to show, in the order in which they are read."""
    with style():
        if results.score == "bits":
            found = [make(results, group) for group in results.groups for make in (bits_figure, time_figure)]
            return [figure for figure in [sizes_figure(results), *found] if figure is not None]
        found = [same_size_figure(results), gap_figure(results)]
        found += [make(results, group) for group in results.groups for make in OF_GROUP]
        found += [frontier_figure(results, name) for name in results.compressed]
    return [figure for figure in found if figure is not None]
