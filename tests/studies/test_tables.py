"""The tables beside the paper's: the numbers are right, and what is missing says why."""

import math
from dataclasses import replace

import pytest

from lformer.studies.language import RECOMMENDED
from lformer.studies.published import BREAKDOWN_768, PUBLISHED, SETTINGS
from lformer.studies.results import Results
from lformer.studies.rows import Score, best_note, best_tensor, find_row
from lformer.studies.tables import Missing, Number, Spread, StudyTable, Text
from lformer.studies.tables.accuracy import overlap
from lformer.studies.tables.beside import Beside
from lformer.studies.tables.parameters import count_parts

from .reading import cell, tables_of, tiny
from .synthetic import NASTY, controls_results, fields_of, language_results, paper_results, record, sizes_results

AG_256, AG_768 = "AG News, d=256, 71k subset", "AG News, d=768, 71k subset"


@pytest.fixture(scope="module")
def paper() -> dict[str, StudyTable]:
    return tables_of(paper_results())


@pytest.fixture(scope="module")
def controls() -> dict[str, StudyTable]:
    return tables_of(controls_results())


def about(value: float, decimals: int = 2) -> Number:
    """A signed number close to this."""
    return Number(pytest.approx(value, abs=1e-4), decimals, is_signed=True)


def test_mean_and_sample_deviation() -> None:
    score = Score.of([0.80, 0.81, 0.83])
    assert score.mean == pytest.approx(244 / 3)
    assert score.std == pytest.approx(math.sqrt(((4 / 3) ** 2 + (1 / 3) ** 2 + (5 / 3) ** 2) / 2))
    assert Score.of([0.5]) == Score(50.0, None, 1)


@pytest.mark.parametrize(("ours", "std", "is_overlap"), [(80.5, 0.2, True), (81.6, 0.1, False), (81.6, 0.3, True)])
def test_intervals(ours: float, std: float, is_overlap: bool) -> None:
    assert overlap(Score(ours, std, 3), 81.0, 0.4) is is_overlap


def test_a_difference_is_in_the_unit_or_in_percent_of_the_paper() -> None:
    points, percent = Beside("x", "%"), Beside("y", paper_unit="K", scale=1000, is_relative=True)
    assert [column.heading for column in points.columns] == ["x (%)", "paper: x (%)", "Δ x (points)"]
    assert [column.heading for column in percent.columns] == ["y", "paper: y (K)", "Δ y (%)"]
    assert points.cells(Spread(80.0, 0.1), Spread(81.5, 0.2))[2] == about(-1.5)
    assert percent.cells(Number(900), Number(1.2))[2] == about(-25.0, 1)
    no_paper, no_run = Missing("not in the paper"), Missing("not run")
    assert points.cells(Number(1), no_paper)[2] == points.cells(no_run, no_paper)[2] == no_paper
    assert points.cells(no_run, Number(1))[2] == no_run


def test_every_value_of_the_paper_has_a_difference(paper: dict[str, StudyTable]) -> None:
    """A column of the paper's numbers is followed by one of differences, each missing only where one of both is."""
    for table in paper.values():
        for i, column in enumerate(table.columns):
            cells = [row[i] for row in table.rows]
            if column.heading.startswith("paper: ") and any(isinstance(cell, Number | Spread) for cell in cells):
                assert table.columns[i + 1].heading.startswith("Δ "), (table.key, column.heading)
                for row in table.rows:
                    is_there = isinstance(row[i + 1], Number)
                    assert is_there == (not isinstance(row[i], Missing) and not isinstance(row[i - 1], Missing))


def test_every_value_that_the_paper_prints_is_somewhere(paper: dict[str, StudyTable]) -> None:
    """Of a complete study; the decimals are those of the paper."""
    results = paper_results()
    fields = fields_of("T4-harmonic", 256)
    runs = [*results.runs, record("ag-news-256", "T4-harmonic", "seed-42", 0.9, fields)]
    tables = tables_of(replace(results, runs=runs, missing=[]))
    kinds = {"accuracy": "accuracy", "encoder_parameters": "encoder parameters", "ratio": "ratio to Std"}
    kinds |= {"epoch_seconds": "epoch", "memory_gb": "peak memory", "inference_seconds": "inference"}
    kinds |= {"tokens_per_second": "tokens/s", "epoch_seconds_again": "epoch"}
    for group, rows in PUBLISHED.items():
        for model, published in rows.items():
            for name, heading in kinds.items():
                value = getattr(published, name)
                if value is not None:
                    assert any(_prints(table, heading, group, model, value) for table in tables.values()), (model, name)


def _prints(table: StudyTable, heading: str, group: str, model: str, value: float) -> bool:
    title = paper_results().groups[group]["title"]
    for row in table.rows:
        words = [found.text for found in row if isinstance(found, Text)]
        if model in words and (title in words or title in table.title):
            for column, found in zip(table.columns, row, strict=True):
                is_it = column.heading.startswith(f"paper: {heading}") and isinstance(found, Number | Spread)
                if is_it and found.value == value:
                    return True
    return False


def test_accuracy_beside_the_paper() -> None:
    table = tables_of(tiny({"Std": [0.80, 0.81, 0.83], "T4-linear": [0.90]}))["accuracy-imdb-128"]
    ours = cell(table, "accuracy (%)", "Std")
    assert isinstance(ours, Spread)
    assert (ours.mean, ours.std, ours.is_best) == (
        pytest.approx(81.3333, abs=1e-4),
        pytest.approx(1.5275, abs=1e-4),
        False,
    )
    assert cell(table, "paper: accuracy (%)", "Std") == Spread(80.77, 0.24)
    assert cell(table, "Δ accuracy (points)", "Std") == about(0.5633)
    assert cell(table, "intervals overlap", "Std") == Text("yes")
    assert cell(table, "intervals overlap", "T4-linear") == Missing("one seed: no deviation")
    assert cell(table, "accuracy (%)", "T4-linear") == Spread(90.0, None, is_best=True)
    assert cell(table, "p", "T4-linear") == Number(4)
    assert cell(table, "encoder parameters", "T4-linear") == Number(203_264)
    assert cell(table, "Δ encoder parameters (%)", "T4-linear") == about(100 * (203_264 / 254_000 - 1), 1)
    assert cell(table, "with the paper's extra projections", "T4-linear") == Number(254_016)
    assert cell(table, "ratio to Std", "T4-linear") == Number(pytest.approx(0.2563, abs=1e-4), 3)
    assert "1 or 3 seeds" in table.note
    assert "n - 1" in table.note


def test_memory_stands_beside_the_accuracy_at_the_largest_width(paper: dict[str, StudyTable]) -> None:
    assert cell(paper["accuracy-ag-news-768"], "peak memory of the run (GB)", "Std") == Number(0.5, 2)
    assert cell(paper["accuracy-ag-news-768"], "paper: peak memory of the run (GB)", "Std") == Number(1.95, 2)
    assert not any("memory" in column.heading for column in paper["accuracy-ag-news-256"].columns)


@pytest.mark.parametrize("group", ["imdb-128", "ag-news-256"])
def test_the_papers_counts_come_out_of_its_extra_projections(paper: dict[str, StudyTable], group: str) -> None:
    for model, published in PUBLISHED[group].items():
        found = cell(paper[f"accuracy-{group}"], "with the paper's extra projections", model)
        if isinstance(found, Number):
            assert round(found.value / 1000) == published.encoder_parameters, model


def test_learned_positions_belong_to_the_encoder(paper: dict[str, StudyTable]) -> None:
    assert cell(paper["accuracy-imdb-128"], "encoder parameters", "T4-learnable") == Number(203_264 + 128 * 128)


def test_summary_is_the_best_against_std() -> None:
    accuracies = {"Std": [0.80], "T4-linear": [0.81], "T4-harmonic": [0.82], "T2-linear": [0.99]}
    table = tables_of(tiny(accuracies))["summary"]
    row = "IMDB, d=128"
    assert cell(table, "which", row) == Text("T4-harmonic")
    assert cell(table, "paper: which", row) == Text("T4-standard")
    assert cell(table, "best T4 minus Std (points)", row) == about(2.0)
    assert cell(table, "paper: best T4 minus Std (points)", row) == about(1.25)
    assert cell(table, "Δ best T4 minus Std (points)", row) == about(0.75)
    assert cell(table, "paper: Std (%)", row) == Spread(80.77, 0.24)
    assert cell(table, "paper: best T4 (%)", row) == Spread(82.02, 0.03)
    assert cell(table, "paper: encoder of the best T4 (K)", row) == Number(254)
    assert "on the test split, as in the paper" in table.note


def test_the_best_tensor_row_is_chosen_on_validation_texts_if_there_are_any() -> None:
    results = tiny({"Std": [0.80], "T4-linear": [0.81], "T4-harmonic": [0.82]})
    trials = [
        record("imdb-128", model, "lr-1", 0.5, fields_of(model, 128), role="trial", validation={"accuracy": accuracy})
        for model, accuracy in (("T4-linear", 0.9), ("T4-harmonic", 0.8), ("Std", 0.99))
    ]
    tuned = replace(results, runs=[*results.runs, *trials])
    found = [best_tensor(study, "imdb-128") for study in (results, tuned)]
    assert [row and row.model for row in found] == ["T4-harmonic", "T4-linear"]
    assert "the test split has no part in the choice" in best_note(tuned, "imdb-128")
    assert "flatters" in best_note(results, "imdb-128")


def test_rows_without_runs_say_why(paper: dict[str, StudyTable]) -> None:
    lost = Missing("the loss was not finite at step 12")
    assert cell(paper["accuracy-ag-news-256"], "accuracy (%)", "T4-harmonic") == lost
    assert cell(paper["efficiency"], "epoch (s)", AG_256, "T4-harmonic") == lost
    assert cell(paper["positions"], f"{AG_256} (%)", "T4-standard (αₖ = 1)") == Missing("not run")
    assert cell(paper["accuracy-imdb-128"], "paper: accuracy (%)", NASTY) == Missing("not in the paper")
    assert "T4-exponential (stopped by the user)" in paper["accuracy-imdb-128"].note
    lost_seeds = cell(paper["missing"], "what", AG_256, "T4-harmonic")
    assert lost_seeds == Text("seed-42, seed-123, seed-7")
    assert len(paper["missing"].rows) == 3


def test_what_failed_stands_where_it_is_missing(paper: dict[str, StudyTable], controls: dict[str, StudyTable]) -> None:
    failed = Missing("CUDA out of memory")
    assert cell(paper["runtime"], "epoch (s)", "IMDB, d=128", "T4-harmonic") == failed
    assert cell(paper["speed-relative"], "epoch / Std", "IMDB, d=128", "T4-harmonic") == failed
    assert cell(paper["missing"], "reason", "IMDB, d=128", "T4-harmonic", "speed") == Text("CUDA out of memory")
    assert "there is no trial of it" in controls["compressed"].note


def test_every_missing_cell_of_every_table_has_a_reason(
    paper: dict[str, StudyTable], controls: dict[str, StudyTable]
) -> None:
    for table in (*paper.values(), *controls.values(), *tables_of(sizes_results()).values()):
        for row in table.rows:
            assert all(found.reason for found in row if isinstance(found, Missing)), table.key


def test_the_trend_over_size_has_each_difference_to_the_dense_model_of_that_size() -> None:
    table, results = tables_of(sizes_results())["sizes"], sizes_results()
    assert [(row[0], row[1]) for row in table.rows] == sorted(
        ((row[0], row[1]) for row in table.rows), key=lambda names: names[0] == Text("a larger one")
    )
    larger = {run.model: run.validation["bits"] for run in results.runs if run.group == "enwik8-large"}
    found = cell(table, "difference to dense", "a larger one", RECOMMENDED)
    assert isinstance(found, Number)
    assert found.value == pytest.approx(larger[RECOMMENDED] - larger["dense"])
    assert "sizes" not in tables_of(language_results())


def test_a_language_table_has_the_time_of_a_whole_training() -> None:
    results = language_results()
    table, measured = tables_of(results)["bits-enwik8-800k"], results.measurements[0]
    found = cell(table, "training time (s)", measured.model)
    assert isinstance(found, Number)
    assert found.value == pytest.approx(800 * 32 * 128 / measured.tokens_per_second)


def test_tables_on_a_subset_say_so(paper: dict[str, StudyTable], controls: dict[str, StudyTable]) -> None:
    for table in (*paper.values(), *controls.values()):
        if table.key not in ("seconds", "missing") and any(Text(AG_256) in row for row in table.rows):
            assert "71k subset:" in table.note, table.key
    assert "71k subset:" in paper["accuracy-ag-news-768"].note
    assert "71k subset:" not in paper["accuracy-imdb-128"].note


def test_breakdown_adds_up(paper: dict[str, StudyTable]) -> None:
    parts = [cell(paper["breakdown"], "Std", part) for part in ("embedding", "encoder", "classifier", "total")]
    values = [part.value for part in parts if isinstance(part, Number)]
    assert values == [23_040_000, 28_351_488, 3_076, 51_394_564]
    assert "0.587" in paper["breakdown"].note
    assert cell(paper["breakdown"], "Δ Std (%)", "embedding") == about(
        100 * (23_040_000 / 1e6 / BREAKDOWN_768["Std"]["embedding"] - 1), 1
    )
    assert cell(paper["breakdown"], "Δ Std: share (points)", "encoder") == about(
        100 * (28_351_488 / 51_394_564 - 28.4 / 51.4), 1
    )


def test_speed_beside_the_paper(paper: dict[str, StudyTable]) -> None:
    row = (AG_768, "T4-linear")
    assert cell(paper["speed-relative"], "epoch / Std", *row) == Number(pytest.approx(0.75), 2)
    assert cell(paper["speed-relative"], "paper: epoch / Std", *row) == Number(241 / 257, 2)
    assert cell(paper["speed-relative"], "Δ epoch / Std", *row) == about(0.75 - 241 / 257)
    assert cell(paper["efficiency"], "tokens/s (K)", *row) == Number(10_666.67, 1)
    assert cell(paper["efficiency"], "epoch (s)", *row) == Number(0.3, 3)
    assert cell(paper["efficiency"], "Δ epoch (%)", *row) == about(100 * (0.3 / 241 - 1), 1)
    assert cell(paper["efficiency"], "batch", *row) == cell(paper["efficiency"], "paper: batch", *row)
    assert cell(paper["efficiency"], "batch", *row) == Text("64 / 128")
    assert cell(paper["efficiency"], "ratio to Std", *row) == Number(pytest.approx(0.251, abs=1e-3), 3)
    assert cell(paper["runtime"], "encoder parameters", *row) == Number(7_117_824)
    assert cell(paper["runtime"], "peak memory (GB)", *row) == Number(0.9, 2)
    assert cell(paper["runtime"], "peak memory (GB)", "IMDB, d=128", "Std") == Missing("no GPU, no peak of its memory")


def test_two_tables_of_the_paper_do_not_agree_on_an_epoch(paper: dict[str, StudyTable]) -> None:
    assert cell(paper["efficiency"], "paper: epoch (s)", AG_768, "Std") == Number(257, 0)
    assert cell(paper["runtime"], "paper: epoch (s)", AG_768, "Std") == Number(260, 0)
    assert "257 s there, 260 s here" in paper["runtime"].note


def test_notes_of_speeds(paper: dict[str, StudyTable]) -> None:
    for key in ("efficiency", "runtime"):
        assert "Different hardware" in paper[key].note
        assert f"71,292 texts here and 120,000 in the paper ({AG_256}; {AG_768})" in paper[key].note
    assert "in evaluation batches of texts of similar length" in paper["runtime"].note


def test_settings_beside_the_paper(paper: dict[str, StudyTable]) -> None:
    table = paper["settings"]
    assert cell(table, "IMDB, d=128", "epochs") == Text("20")
    assert cell(table, f"{AG_768}", "attention heads H") == Text("8")
    assert cell(table, f"{AG_768}", "feed-forward width d_ff") == Text("3072")
    assert cell(table, "IMDB, d=128", "encoder layers") == Text("4 (Std-1L: 1)")
    assert cell(table, "IMDB, d=128", "seeds") == Text("42, 123, 7 (T4-exponential: 42)")
    assert cell(table, f"same: {AG_256}", "training texts") == Text("no")
    assert cell(table, f"paper: {AG_256}", "dropout") == Missing("the paper does not say")
    no = {row[0] for row in table.rows if row[3] == Text("no")}
    assert no == {Text(name) for name in ("precision", "deterministic", "hardware")}, "what differs on IMDB"
    settings = {found.text for row in table.rows if isinstance(found := row[0], Text)}
    assert all(set(printed) <= settings for printed in SETTINGS.values()), "nothing that the paper says is left out"


def test_settings_are_those_of_the_runs() -> None:
    results = tiny({"Std": [0.8], "T4-linear": [0.8]})
    recipe = {"batch_size": 32, "mixed_precision": "no", "schedule": "constant", "max_steps": 7}
    changed = [replace(run, recipe=recipe) if run.model == "Std" else run for run in results.runs]
    table = tables_of(replace(results, runs=changed))["settings"]
    assert cell(table, "IMDB, d=128", "batch") == Text("32 (T4-linear: 128)")
    assert cell(table, "same: IMDB, d=128", "batch") == Text("no")
    assert cell(table, "IMDB, d=128", "precision") == Text("float32 (T4-linear: mixed, bf16)")
    assert cell(table, "IMDB, d=128", "epochs") == Text("7 steps (T4-linear: 5)")


def test_what_there_is_nothing_of_is_left_out(paper: dict[str, StudyTable], controls: dict[str, StudyTable]) -> None:
    assert {"learning-rates", "compressed"} & set(paper) == set()
    assert {"efficiency", "runtime", "speed-relative", "repeated", "breakdown", "positions"} & set(controls) == set()
    assert tables_of(Results(study="x", scale="y", groups={}, runs=[])) == {}


@pytest.mark.parametrize(
    ("memory", "change", "bound", "holds"),
    [(10**9, 0.004, 0.5, "yes"), (10**9, -0.006, 0.5, "no"), (None, 0.0, 0.0, "yes"), (None, 0.0001, 0.0, "no")],
)
def test_a_run_done_twice_keeps_to_its_bound(memory: int | None, change: float, bound: float, holds: str) -> None:
    results = tiny({"Std": [0.8]})
    (first,) = [replace(run, peak_memory_bytes=memory) for run in results.runs]
    again = replace(first, label="seed-0-again", role="repeat", test={"accuracy": 0.8 + change})
    table = tables_of(replace(results, runs=[first, again]))["repeated"]
    row = ("IMDB, d=128", "Std", "seed-0")
    assert cell(table, "difference (points)", *row) == Number(pytest.approx(100 * change), 3, is_signed=True)
    assert cell(table, "may differ by (points)", *row) == Number(bound, 1)
    assert cell(table, "holds", *row) == Text(holds)


def test_a_group_that_the_paper_lacks_has_no_columns_of_it(controls: dict[str, StudyTable]) -> None:
    for table in controls.values():
        assert not any(column.is_paper for column in table.columns), table.key
    assert "The paper has no such table" in controls["accuracy-imdb-128-tuned"].note


def test_the_family_is_of_the_fields() -> None:
    models = ("Dense, shared layers", "T8", "T4 identity (block-diagonal)", "Dense, low rank", "FNet")
    rows = [find_row(controls_results(), "ag-news-256-tuned", model) for model in models]
    assert [row and row.family for row in rows] == ["dense", "tensor", "slices", "low rank", "fourier"]


def test_fields_that_make_no_model_have_no_count() -> None:
    assert count_parts({"hidden_size": 128, "num_attention_heads": 3, "tube_length": 4}) is None
