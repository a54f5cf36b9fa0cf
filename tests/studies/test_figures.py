"""What the figures show: the right points, names that are true, and a legend that fits."""

from dataclasses import replace

import pytest

from lformer.studies.figures import StudyFigure, study_figures
from lformer.studies.language import RECOMMENDED
from lformer.studies.tables.same_size import same_size_pairs

from .synthetic import controls_results, language_results, paper_results, sizes_results


@pytest.fixture(scope="module")
def controls() -> dict[str, StudyFigure]:
    return {figure.key: figure for figure in study_figures(controls_results())}


def legend_of(figure: StudyFigure) -> list[str]:
    found = [*figure.figure.legends, *(axes.get_legend() for axes in figure.figure.axes)]
    return [text.get_text() for legend in found if legend for text in legend.get_texts()]


def test_compression_has_a_line_for_every_method_and_way(controls: dict[str, StudyFigure]) -> None:
    figure = controls["compressed-imdb-128-tuned-Std"]
    results = controls_results()
    (axes,) = figure.figure.axes
    lines = {str(line.get_label()): line for line in axes.lines}
    methods = ["rank reduction", "stacked L-SVD, attention of a layer", "stacked L-SVD, parts over layers"]
    assert [len(lines[method].get_xdata()) for method in methods] == [4, 2, 2]
    trial = lines["Std, the trial that was compressed"]
    (first, *_) = results.compressed["imdb-128-tuned/Std"]
    assert (*trial.get_xdata(), *trial.get_ydata()) == (793_088, 100 * first["test_accuracy"])
    assert trial.get_markerfacecolor() == "none"
    assert len(legend_of(figure)) == len(methods) + 1 + 3, "the trial, Std, the dense one as small as T4, the best T4"
    assert "one seed, trained without the validation texts" in figure.caption
    assert "lr-0.001" in figure.caption


def test_captions_say_how_the_best_was_chosen(controls: dict[str, StudyFigure]) -> None:
    paper = {figure.key: figure for figure in study_figures(paper_results())}
    for key in ("gap-by-width", "confusion-imdb-128"):
        assert "on the test split, as in the paper" in paper[key].caption, key
    kinds = ("gap-by-width", "confusion-imdb-128-tuned", "compressed-imdb-128-tuned-Std", "same-size")
    for key in kinds:
        assert "the test split has no part in the choice" in controls[key].caption, key
    assert "Hollow: the paper's" in paper["gap-by-width"].caption
    assert "Hollow" not in controls["gap-by-width"].caption, "the paper has nothing there"


def test_families_have_their_own_names(controls: dict[str, StudyFigure]) -> None:
    for kind in ("rows", "parameters"):
        assert set(legend_of(controls[f"{kind}-imdb-128-tuned"])) == {
            "dense (p=1)",
            "tensor (p>1)",
            "slices without a transform",
            "dense, low rank",
            "Fourier mixing (FNet)",
        }


def test_the_loss_of_the_split_stands_beside_that_of_training() -> None:
    figures = {figure.key: figure for figure in study_figures(paper_results())}
    labels = [axes.get_ylabel() for axes in figures["curves-imdb-128"].figure.axes]
    assert labels == ["training loss", "loss, test split", "accuracy (%), test split", "macro-F1 (%), test split"]


def test_differences_at_equal_size_have_their_intervals(controls: dict[str, StudyFigure]) -> None:
    (axes,) = controls["same-size"].figure.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    pairs = [
        pair for group in ("imdb-128-tuned", "ag-news-256-tuned") for pair in same_size_pairs(controls_results(), group)
    ]
    assert names == [f"{pair.tensor.model} − {pair.other.model}" for pair in reversed(pairs)]
    bars = [container.lines for container in axes.containers]
    for (point, _, (bar,)), pair in zip(bars, reversed(pairs), strict=True):
        assert pair.comparison is not None
        assert pair.p_value is not None
        assert point.get_xdata()[0] == pair.comparison.difference
        (segment,) = bar.get_segments()
        assert list(segment[:, 0]) == pytest.approx([pair.comparison.low_over_seeds, pair.comparison.high_over_seeds])
        assert (point.get_markerfacecolor() == "none") == (pair.p_value >= 0.05)


def test_rows_that_were_not_tested_are_not_drawn() -> None:
    results = replace(controls_results(), comparisons=[])
    assert not any(figure.key == "same-size" for figure in study_figures(results))


def test_figures_of_language_models() -> None:
    figures = {figure.key: figure for figure in study_figures(language_results())}
    (time,) = [figure for key, figure in figures.items() if key.startswith("bits-time")]
    assert {figure.beside for figure in figures.values()} == {"bits-enwik8-800k"}
    assert len(time.figure.axes[0].containers) == len(language_results().measurements)


def test_the_time_of_a_training_is_that_of_all_its_tokens() -> None:
    results = language_results()
    (time,) = [figure for figure in study_figures(results) if figure.key.startswith("bits-time")]
    places = {round(bar.lines[0].get_xdata()[0], 6) for bar in time.figure.axes[0].containers}
    assert places == {round(800 * 32 * 128 / found.tokens_per_second, 6) for found in results.measurements}


def test_the_trend_over_size() -> None:
    results = sizes_results()
    (figure,) = [figure for figure in study_figures(results) if figure.key == "sizes"]
    lines = {line.get_label(): line for line in figure.figure.axes[0].lines}
    assert set(lines) == {"dense", RECOMMENDED}
    dense = [run for run in results.runs if run.is_reported and run.model in ("dense", "dense, d=128")]
    assert sorted(set(lines["dense"].get_xdata())) == sorted({run.layer_parameters for run in dense})
    assert len(lines["dense"].get_xdata()) == 2
