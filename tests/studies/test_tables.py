"""The tables of a study: the numbers are right, what is missing says why, and no name breaks a format."""

import csv
import io
import math
import re
from dataclasses import replace

import pytest

from lformer.studies.published import PUBLISHED
from lformer.studies.results import Results
from lformer.studies.rows import Score, best_tensor, find_row
from lformer.studies.tables import Column, Missing, Number, Spread, StudyTable, Text, study_tables
from lformer.studies.tables.accuracy import overlap
from lformer.studies.tables.cells import Cell, shown, slug
from lformer.studies.tables.parameters import count_parts
from lformer.studies.tables.rendering import comma_separated, html, latex, markdown

from .synthetic import NASTY, controls_results, fields_of, paper_results, record


@pytest.fixture(scope="module")
def paper() -> dict[str, StudyTable]:
    return {table.key: table for table in study_tables(paper_results())}


@pytest.fixture(scope="module")
def controls() -> dict[str, StudyTable]:
    return {table.key: table for table in study_tables(controls_results())}


def cell(table: StudyTable, heading: str, *row: str) -> Cell:
    """The cell of a row that begins with these words."""
    column = [column.heading for column in table.columns].index(heading)
    found = [line for line in table.rows if [c.text for c in line[: len(row)] if isinstance(c, Text)] == list(row)]
    assert len(found) == 1, row
    return found[0][column]


def tiny(accuracies: dict[str, list[float]], **changes: object) -> Results:
    """A study of IMDB with these accuracies."""
    runs = [
        record("imdb-128", model, f"seed-{seed}", accuracy, fields_of(model, 128))
        for model, values in accuracies.items()
        for seed, accuracy in enumerate(values)
    ]
    groups = {"imdb-128": paper_results().groups["imdb-128"]}
    return replace(Results(study="paper", scale="full", groups=groups, runs=runs), **changes)


def test_mean_and_sample_deviation() -> None:
    score = Score.of([0.80, 0.81, 0.83])
    assert score.mean == pytest.approx(244 / 3)
    assert score.std == pytest.approx(math.sqrt(((4 / 3) ** 2 + (1 / 3) ** 2 + (5 / 3) ** 2) / 2))
    assert Score.of([0.5]) == Score(50.0, None, 1)


@pytest.mark.parametrize(("ours", "std", "is_overlap"), [(80.5, 0.2, True), (81.6, 0.1, False), (81.6, 0.3, True)])
def test_intervals(ours: float, std: float, is_overlap: bool) -> None:
    assert overlap(Score(ours, std, 3), 81.0, 0.4) is is_overlap


def test_accuracy_beside_the_paper() -> None:
    results = tiny({"Std": [0.80, 0.81, 0.83], "T4-linear": [0.90]})
    table = next(table for table in study_tables(results) if table.key == "accuracy-imdb-128")
    ours = cell(table, "accuracy (%)", "Std")
    assert isinstance(ours, Spread)
    assert (ours.mean, ours.std, ours.is_best) == (
        pytest.approx(81.3333, abs=1e-4),
        pytest.approx(1.5275, abs=1e-4),
        False,
    )
    assert cell(table, "paper: accuracy (%)", "Std") == Spread(80.77, 0.24)
    assert cell(table, "difference (points)", "Std") == Number(pytest.approx(0.5633, abs=1e-4), 2, is_signed=True)
    assert cell(table, "intervals overlap", "Std") == Text("yes")
    assert cell(table, "intervals overlap", "T4-linear") == Missing("one seed: no deviation")
    assert cell(table, "accuracy (%)", "T4-linear") == Spread(90.0, None, is_best=True)
    assert cell(table, "encoder parameters", "T4-linear") == Number(203_264)
    assert cell(table, "with the paper's extra projections", "T4-linear") == Number(254_016)
    assert cell(table, "ratio to Std", "T4-linear") == Number(pytest.approx(0.2563, abs=1e-4), 3)
    assert "1 or 3 seeds" in table.note
    assert "n - 1" in table.note


@pytest.mark.parametrize("group", ["imdb-128", "ag-news-256"])
def test_the_papers_counts_come_out_of_its_extra_projections(paper: dict[str, StudyTable], group: str) -> None:
    for model, published in PUBLISHED[group].items():
        found = cell(paper[f"accuracy-{group}"], "with the paper's extra projections", model)
        if isinstance(found, Number):
            assert round(found.value / 1000) == published.encoder_parameters, model


def test_learned_positions_belong_to_the_encoder(paper: dict[str, StudyTable]) -> None:
    assert cell(paper["accuracy-imdb-128"], "encoder parameters", "T4-learnable") == Number(203_264 + 128 * 128)


def test_summary_is_the_best_against_std() -> None:
    results = tiny({"Std": [0.80], "T4-linear": [0.81], "T4-harmonic": [0.82], "T2-linear": [0.99]})
    table = study_tables(results)[0]
    assert table.key == "summary"
    assert cell(table, "which", "IMDB, d=128") == Text("T4-harmonic")
    assert cell(table, "Δ (points)", "IMDB, d=128") == Number(pytest.approx(2.0), 2, is_signed=True)
    assert cell(table, "paper: Δ (points)", "IMDB, d=128") == Number(pytest.approx(1.25), 2, is_signed=True)


def test_rows_without_runs_say_why(paper: dict[str, StudyTable]) -> None:
    assert cell(paper["accuracy-ag-news-256"], "accuracy (%)", "T4-harmonic") == Missing(
        "the loss was not finite at step 12"
    )
    assert cell(paper["positions"], "AG News, d=256", "T4-standard (αₖ = 1)") == Missing("not run")
    assert cell(paper["accuracy-imdb-128"], "paper: accuracy (%)", NASTY) == Missing("not in the paper")
    assert "T4-exponential" in paper["accuracy-imdb-128"].note
    assert len(paper["missing"].rows) == 5


def test_every_missing_cell_of_every_table_has_a_reason(
    paper: dict[str, StudyTable], controls: dict[str, StudyTable]
) -> None:
    for table in (*paper.values(), *controls.values()):
        for row in table.rows:
            assert all(found.reason for found in row if isinstance(found, Missing)), table.key


def test_tables_on_a_subset_say_so(paper: dict[str, StudyTable], controls: dict[str, StudyTable]) -> None:
    for table in (*paper.values(), *controls.values()):
        if table.key not in ("seconds", "missing") and any(Text("AG News, d=256") in row for row in table.rows):
            assert "71k subset" in table.note, table.key
    assert "71k subset" in paper["accuracy-ag-news-768"].note
    assert "71k subset" not in paper["accuracy-imdb-128"].note


def test_breakdown_adds_up(paper: dict[str, StudyTable]) -> None:
    parts = [cell(paper["breakdown"], "Std", part) for part in ("embedding", "encoder", "classifier", "total")]
    values = [part.value for part in parts if isinstance(part, Number)]
    assert values == [23_040_000, 28_351_488, 3_076, 51_394_564]
    assert "0.587" in paper["breakdown"].note


def test_speed_relative_to_std(paper: dict[str, StudyTable]) -> None:
    row = ("AG News, d=768", "T4-linear")
    assert cell(paper["speed-relative"], "epoch / Std", *row) == Number(0.75, 2)
    assert cell(paper["speed-relative"], "paper: epoch / Std", *row) == Number(241 / 257, 2)
    assert cell(paper["speed"], "tokens/s (K)", *row) == Number(1066.667, 1)
    assert cell(paper["speed"], "peak memory (GB)", *row) == Number(0.9, 2)
    assert cell(paper["speed"], "peak memory (GB)", "IMDB, d=128", "Std") == Missing("no GPU, no peak of its memory")
    assert "Different hardware" in paper["speed"].note


def test_what_there_is_nothing_of_is_left_out(paper: dict[str, StudyTable], controls: dict[str, StudyTable]) -> None:
    assert {"learning-rates", "compressed"} & set(paper) == set()
    assert {"speed", "speed-relative", "comparisons", "repeated", "breakdown", "positions"} & set(controls) == set()
    assert study_tables(Results(study="x", scale="y", groups={}, runs=[])) == []


def test_learning_rates(controls: dict[str, StudyTable]) -> None:
    table = controls["learning-rates"]
    row = ("AG News, d=256, tuned", "T8-linear")
    assert cell(table, "chosen rate", *row) == Text("0.001")
    assert cell(table, "its place", *row) == Text("highest")
    assert cell(table, "its place", row[0], "Std") == Text("inside")
    assert cell(table, "validation accuracy at 0.001 (%)", *row) == Spread(pytest.approx(90.5), None, is_best=True)
    assert cell(table, "validation accuracy at 0.003 (%)", *row) == Missing("not tried, or not finished")


def test_repeated_runs_and_comparisons(paper: dict[str, StudyTable]) -> None:
    difference = cell(paper["repeated"], "difference (points)", "IMDB, d=128", "Std", "seed-42")
    assert difference == Number(pytest.approx(0.04), 3, is_signed=True)
    assert cell(paper["comparisons"], "95 % from", "IMDB, d=128", "T4-linear", "Std") == Number(0.3, 2, is_signed=True)


def test_compressed_points_without_some_values(controls: dict[str, StudyTable]) -> None:
    row = ("AG News, d=256, tuned", "Std", "prune")
    assert cell(controls["compressed"], "rank", *row) == Missing("the method has no rank")
    assert cell(controls["compressed"], "macro-F1 (%)", *row) == Missing("not measured")
    assert cell(controls["compressed"], "test accuracy (%)", *row) == Number(85.0, 2)


def test_a_group_that_the_paper_lacks_has_no_columns_of_it() -> None:
    results = tiny({"Std": [0.8]})
    runs = [replace(run, group="mine") for run in results.runs]
    results = replace(results, groups={"mine": {"title": "Mine", "data": "My data."}}, runs=runs)
    (table,) = study_tables(results)
    assert not any(column.is_paper for column in table.columns)
    assert "The paper has no such table" in table.note


def test_the_family_is_of_the_fields() -> None:
    results = controls_results()
    families = {model: find_row(results, "ag-news-256", model) for model in ("Std", "T4-linear", "T4-identity")}
    assert [row.family for row in families.values() if row] == ["dense", "tensor", "other"]
    best = best_tensor(results, "ag-news-256")
    assert best is not None
    assert best.model == "T4-learned-Z"


def test_fields_that_make_no_model_have_no_count() -> None:
    assert count_parts({"hidden_size": 128, "num_attention_heads": 3, "tube_length": 4}) is None


ODD = StudyTable(
    key="odd",
    title="a_b & <i>",
    note="50 % of $5",
    columns=[Column("name | x"), Column("value"), Column("ours"), Column("paper", is_paper=True)],
    rows=[
        [Text(NASTY), Number(-1234.5, 1), Spread(80.0, 0.25, is_best=True), Missing("why_not")],
        [Text("b"), Number(0.0003, None), Spread(79.0, None), Missing("why_not")],
        [Text("c"), Missing("other"), Missing("why_not"), Number(2, is_signed=True)],
    ],
)


def test_shown() -> None:
    cells = [Number(-1234.5, 1), Number(2, is_signed=True), Number(3e-4, None), Spread(80.0, 0.25), Spread(80.0, None)]
    assert [shown(found) for found in cells] == ["−1,234.5", "+2", "0.0003", "80.00 ± 0.25", "80.00"]


def test_markdown() -> None:
    lines = markdown(ODD).splitlines()
    assert lines[0] == "## a\\_b &amp; &lt;i&gt;"
    assert lines[2] == "| name \\| x | value | ours | paper |"
    assert lines[3] == "| --- | ---: | ---: | ---: |"
    assert lines[4].startswith(
        '| T4 &lt;b&gt;&amp;"wide"\\_50%&#36;x&#36;\\|\\\\{#~^} | −1,234.5 | **80.00 ± 0.25** | –¹ |'
    )
    assert lines[6] == "| c | –² | –¹ | +2 |"
    assert "¹ why\\_not; ² other" in lines
    for line in lines[2:7]:
        assert len(re.findall(r"(?<!\\)\|", line)) == 5, line


def test_latex() -> None:
    text = latex(ODD)
    assert r"\caption{a\_b \& \textless{}i\textgreater{}}" in text
    assert r"T4 \textless{}b\textgreater{}\&" in text
    assert r"\_50\%\$x\$\textbar{}\textbackslash{}\{\#\textasciitilde{}\textasciicircum{}\}" in text
    assert r"$-1{,}234.5$ & $\mathbf{80.00 \pm 0.25}$ & --\textsuperscript{1} \\" in text
    assert r"\begin{tabular}{lrrr}" in text
    assert "\\resizebox" not in text
    assert text.count("{") - text.count("\\{") == text.count("}") - text.count("\\}")


def test_a_wide_latex_table_is_fitted(paper: dict[str, StudyTable]) -> None:
    text = latex(paper["accuracy-imdb-128"])
    assert r"\resizebox{\textwidth}{!}{\begin{tabular}" in text
    assert r"\end{tabular}}" in text
    assert latex(paper["parameter-matched"]).count("\\midrule") == 2, "below the headings and between the groups"


def test_csv_keeps_the_precision_and_the_reasons(paper: dict[str, StudyTable]) -> None:
    rows = list(csv.reader(io.StringIO(comma_separated(ODD))))
    assert rows[0] == ["name | x", "value", "ours", "ours, std", "paper", "missing"]
    assert rows[1] == [NASTY, "-1234.5", "80.0", "0.25", "", "paper: why_not"]
    assert rows[2][1:4] == ["0.0003", "79.0", ""]
    assert rows[3] == ["c", "", "", "", "2", "value: other; ours: why_not"]
    assert all(len(row) == len(rows[0]) for row in rows)
    assert "missing" not in comma_separated(paper["seconds"]).splitlines()[0]


def test_html_has_values_to_sort_by() -> None:
    page = html(ODD)
    assert '<td data-value="-1234.5">−1,234.5</td>' in page
    assert '<td data-value="80.0"><strong>80.00 ± 0.25</strong></td>' in page
    assert '<td class="paper" data-value=""><span title="why_not">–<sup>1</sup></span></td>' in page
    assert "<b>" not in page
    assert page.count('scope="col"') == 4
    assert page.count('scope="row"') == 3


def test_keys_are_names_of_files() -> None:
    assert slug("../a b/<c>") == "a-b-c"
    with pytest.raises(AssertionError):
        replace(ODD, key="../odd")
