"""The tables of our own studies: models of one size, tests of differences, compression, learning rates, bits."""

from dataclasses import replace

import pytest

from lformer.studies.results import Results
from lformer.studies.tables import Missing, Number, Spread, StudyTable, Text
from lformer.studies.tables.same_size import same_size_pairs

from .reading import cell, tables_of, tiny
from .synthetic import comparison, controls_results, language_results, paper_results, point

AG_256 = "AG News, d=256, 71k subset, tuned"
IMDB = "IMDB, d=128, tuned"


@pytest.fixture(scope="module")
def controls() -> dict[str, StudyTable]:
    return tables_of(controls_results())


@pytest.fixture(scope="module")
def language() -> dict[str, StudyTable]:
    return tables_of(language_results())


def two_rows(difference: float, p_value: float, *, turned: bool = False) -> Results:
    """T4-linear against Std-1L, of nearly its size."""
    pair = ("Std-1L", "T4-linear") if turned else ("T4-linear", "Std-1L")
    found = comparison("imdb-128", *pair, -difference if turned else difference, 0.2, p_value)
    return tiny({"Std": [0.8], "Std-1L": [0.79], "T4-linear": [0.81]}, comparisons=[found])


def test_models_of_one_size_are_those_of_the_controls() -> None:
    pairs = same_size_pairs(controls_results(), "imdb-128-tuned")
    others = [pair.other.model for pair in pairs if pair.tensor.model == "T4"]
    assert others == ["Dense, half as wide", "Dense, one layer", "Dense, shared layers", "Dense, low rank", "FNet"]
    (best,) = [pair for pair in pairs if pair.tensor.model != "T4"]
    assert best.other.model == "Dense, half as wide", "the only one that other tensor rows are compared with"


@pytest.mark.parametrize(
    ("difference", "p_value", "finding"),
    [
        (0.8, 0.001, "T4-linear is better"),
        (-0.8, 0.001, "Std-1L is better"),
        (0.8, 0.1, "no difference found"),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_the_finding_goes_by_the_p_value_and_the_sign(
    difference: float, p_value: float, finding: str, turned: bool
) -> None:
    table = tables_of(two_rows(difference, p_value, turned=turned))["same-size"]
    row = ("IMDB, d=128", "T4-linear", "Std-1L")
    assert cell(table, "finding", *row) == Text(finding)
    assert cell(table, "difference (points)", *row) == Number(pytest.approx(difference), 2, is_signed=True)
    assert cell(table, "95 % from", *row) == Number(pytest.approx(difference - 0.4), 2, is_signed=True)
    assert cell(table, "to", *row) == Number(pytest.approx(difference + 0.4), 2, is_signed=True)
    assert cell(table, "p-value", *row) == Number(pytest.approx(3 * p_value), 4, least=1e-4)


def test_many_comparisons_need_smaller_p_values() -> None:
    results = two_rows(0.8, 0.01)
    others = [comparison("imdb-128", f"row {i}", "Std", 0.1, 0.2, 0.3) for i in range(3)]
    found = tables_of(replace(results, comparisons=[*results.comparisons, *others]))
    row = ("IMDB, d=128", "T4-linear", "Std-1L")
    assert cell(found["same-size"], "finding", *row) == Text("T4-linear is ahead before the correction only")
    assert cell(found["same-size"], "corrected p-value", *row) == Number(pytest.approx(0.12), 4, least=1e-4)
    assert cell(found["comparisons"], "corrected p-value", *row) == Number(pytest.approx(0.12), 4, least=1e-4)
    assert "4 in IMDB, d=128" in found["comparisons"].note


def test_what_was_not_compared_says_so() -> None:
    results = two_rows(0.8, 0.01)
    row = ("IMDB, d=128", "T4-linear", "Std-1L")
    table = tables_of(replace(results, comparisons=[]))["same-size"]
    assert cell(table, "finding", *row) == Text("not tested")
    assert cell(table, "to", *row) == Missing("the study does not test this difference")
    assert cell(table, "difference (points)", *row) == Number(pytest.approx(2.0), 2, is_signed=True)
    table = tables_of(paper_results())["same-size"]
    row = ("AG News, d=256, 71k subset", "T4-linear", "Std-1L")
    assert cell(table, "finding", *row) == Text("not tested")
    assert cell(table, "p-value", *row) == Missing("one seed: nothing is known of others")


def test_sizes_with_and_without_the_embedding(controls: dict[str, StudyTable]) -> None:
    row = (IMDB, "T4", "Dense, half as wide")
    headings = [f"{what} parameters, {which}" for what in ("layer", "all") for which in ("tensor", "against it")]
    sizes = [cell(controls["same-size"], heading, *row) for heading in headings]
    assert sizes == [Number(203_264), Number(199_936), Number(4_043_522), Number(2_120_066)]
    assert "smaller embedding" in controls["same-size"].note


def test_the_count_of_findings(controls: dict[str, StudyTable]) -> None:
    column = [column.heading for column in controls["same-size"].columns].index("finding")
    findings = [found.text for row in controls["same-size"].rows if isinstance(found := row[column], Text)]
    note = controls["same-size"].note
    assert f"Differences tested: {len(findings)};" in note
    against = sum(text.startswith(("Dense", "FNet")) and text.endswith("is better") for text in findings)
    assert f"against it: {against};" in note


def test_differences_say_what_their_intervals_cover(controls: dict[str, StudyTable]) -> None:
    table = tables_of(paper_results())["comparisons"]
    row = ("IMDB, d=128", "T4-linear", "Std")
    values = [cell(table, heading, *row) for heading in ("examples: 95 % from", "examples and seeds: 95 % from")]
    assert values == [Number(pytest.approx(x), 2, is_signed=True) for x in (0.3, -0.2)]
    assert cell(table, "examples: p-value", *row) == Number(0.002, 4)
    assert "cannot be below 0.0002" in table.note
    assert "nothing of other seeds" in table.note


def test_learning_rates(controls: dict[str, StudyTable]) -> None:
    table = controls["learning-rates"]
    row = (AG_256, "T8")
    assert cell(table, "chosen rate", *row) == Text("0.001")
    assert cell(table, "its place", *row) == Text("highest")
    assert cell(table, "its place", row[0], "Std") == Text("inside")
    best = cell(table, "validation accuracy at 0.001 (%)", *row)
    assert isinstance(best, Spread)
    assert best.is_best
    lost = Missing("the loss was not finite at step 40")
    assert cell(table, "validation accuracy at 0.003 (%)", *row) == lost
    assert cell(table, "validation accuracy at 0.003 (%)", IMDB, "T8") == Missing("not tried")
    assert "Trials are trained without the validation texts" in table.note


def test_compression_is_shown_by_method_and_budget(controls: dict[str, StudyTable]) -> None:
    table = controls["compressed"]
    row = (AG_256, "Std", "rank reduction")
    (first, *_) = [line for line in table.rows if line[:3] == [Text(word) for word in row]]
    shown = dict(zip([column.heading for column in table.columns], first, strict=True))
    assert shown["way"] == Missing("the method has one way only")
    assert shown["budget (%)"] == Text("100, 90")
    assert shown["matrices"] == Text("24 of 24")
    assert shown["ranks"] == Text("8–27")
    assert shown["of the trained model (%)"] == Number(82.0, 1)
    longest = max(len(found.text) for line in table.rows for found in line if isinstance(found, Text))
    assert longest < 50, "no list of matrices"
    trained = [line for line in table.rows if line[2] == Text("as trained")]
    assert [line[5] for line in trained] == [Text("0 of 24"), Text("0 of 24")]
    assert f"{AG_256}: lr-0.001, seed 42" in table.note


def test_a_stack_counts_its_matrices() -> None:
    results = controls_results()
    parts, ranks = ["layers.0.attention", "layers.*.inner"], [[3, 1, 2, 2], [5, 5, 5, 5]]
    points = [point("stacked L-SVD", "attention of a layer", parts, ranks, 0.5, 0.8, [0.5], 793_088)]
    table = tables_of(replace(results, compressed={"imdb-128-tuned/Std": points}))["compressed"]
    assert table.rows[0][5:7] == [Text("8 of 24"), Text("1–5")]


def test_bits_by_row(language: dict[str, StudyTable]) -> None:
    (table,) = [table for key, table in language.items() if key.startswith("bits")]
    values = [found.mean for row in table.rows if isinstance(found := row[2], Spread)]
    assert values == sorted(values)
    assert cell(table, "tokens/s", "T2 learned, interleaved") == Missing("it was stopped")
    assert cell(table, "bits per byte", "T2 L-products, learned, interleaved") == Missing("was not asked for")
    assert cell(table, "peak memory (GB)", "T4") == Missing("no GPU, no peak of its memory")


def test_multiply_adds_are_those_of_the_length_in_training() -> None:
    """A dense layer of width d takes 12 d^2 + 2 T d a token, four layers and the head of 260 types d 260 more."""
    results = language_results()
    longer = [replace(run, recipe={**run.recipe, "sequence_length": 256}) for run in results.runs]
    for length, study in ((128, results), (256, replace(results, runs=longer))):
        (table,) = [table for key, table in tables_of(study).items() if key.startswith("bits")]
        expected = (4 * (12 * 128**2 + 2 * length * 128) + 128 * 260) / 1e6
        assert cell(table, "multiply-adds a token (M)", "dense, d=128") == Number(pytest.approx(expected), 2)
