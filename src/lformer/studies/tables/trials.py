"""What stands behind the accuracies: learning rates, tests of significance, repeated runs, compression, gaps."""

from typing import Any

from lformer.studies.results import Results, RunRecord
from lformer.studies.rows import Score, data_of, title_of
from lformer.studies.tables.cells import Cell, Column, Missing, Number, Spread, StudyTable, Text, number

AGAIN = "-again"


def tuning_table(results: Results) -> StudyTable | None:
    """The learning rate of every row, and the validation score of each that was tried."""
    trials: dict[tuple[str, str], dict[float, list[RunRecord]]] = {}
    for run in results.runs:
        if not run.is_reported and run.label.startswith("lr-"):
            trials.setdefault((run.group, run.model), {}).setdefault(run.learning_rate, []).append(run)
    rates = sorted({rate for tried in trials.values() for rate in tried})
    rows: list[list[Cell]] = []
    for (group, model), tried in trials.items():
        chosen = sorted({run.learning_rate for run in results.rows(group).get(model, [])})
        rows.append(
            [
                Text(title_of(results, group)),
                Text(model),
                Text(", ".join(f"{rate:g}" for rate in chosen)) if chosen else Missing("no reported run is finished"),
                _place(chosen, sorted(tried)),
                *(_validation(results.score, tried.get(rate), is_chosen=rate in chosen) for rate in rates),
            ]
        )
    score, unit = ("bits per byte", "") if results.score == "bits" else ("accuracy", " (%)")
    headings = [
        "data",
        "model",
        "chosen rate",
        "its place",
        *(f"validation {score} at {rate:g}{unit}" for rate in rates),
    ]
    return _table(
        "learning-rates",
        "Learning rates",
        f"{data_of(results, *dict.fromkeys(group for group, _ in trials))} The rate that is best on the validation"
        " split (bold) is taken for all seeds of the row; the test split has no part in the choice. A rate at an end"
        " of those tried may not be the best there is.",
        headings,
        rows,
    )


def comparisons_table(results: Results) -> StudyTable | None:
    """Differences in accuracy with their intervals."""
    rows: list[list[Cell]] = [
        [
            Text(title_of(results, found.group)),
            Text(found.model),
            Text(found.other),
            Number(found.difference, 2, is_signed=True),
            Number(found.low, 2, is_signed=True),
            Number(found.high, 2, is_signed=True),
            Number(found.p_value, 4),
        ]
        for found in results.comparisons
    ]
    headings = ["data", "model", "against", "difference (points)", "95 % from", "to", "p-value"]
    return _table(
        "comparisons",
        "Are the differences real?",
        f"{data_of(results, *(found.group for found in results.comparisons))} Test accuracy of the first minus that of"
        " the second, by a paired bootstrap over test examples; two-sided p-values, not corrected for the number of"
        " comparisons; 0.0000 is less than 0.00005.",
        headings,
        rows,
        row_headings=3,
    )


def compressed_table(results: Results) -> StudyTable | None:
    """Dense models compressed after training."""
    rows: list[list[Cell]] = []
    for name, points in results.compressed.items():
        group, _, model = name.partition("/")
        whole = next((run.layer_parameters for run in results.rows(group).get(model, [])), None)
        for point in points:
            size = point.get("layer_parameters")
            share = 100 * size / whole if size is not None and whole else None
            rows.append(
                [
                    Text(title_of(results, group)),
                    Text(model),
                    Text(str(point.get("method", ""))),
                    Text(parts_of(point)),
                    _rank(point.get("rank")),
                    number(size, 0, "not counted"),
                    number(share, 1, "the trained model is not among the runs"),
                    *(_percent(point.get(key)) for key in ("validation_accuracy", "test_accuracy", "macro_f1")),
                ]
            )
    headings = ["data", "model", "method", "parts", "rank", "layer parameters", "of the trained model (%)"]
    headings += ["validation accuracy (%)", "test accuracy (%)", "macro-F1 (%)"]
    groups = dict.fromkeys(name.partition("/")[0] for name in results.compressed)
    note = f"{data_of(results, *groups)} Trained dense models, compressed without further training."
    return _table("compressed", "Compression after training", note, headings, rows)


def repeated_table(results: Results) -> StudyTable | None:
    """Runs that were done twice."""
    rows: list[list[Cell]] = []
    for again in results.runs:
        if not again.label.endswith(AGAIN):
            continue
        name = again.name.removesuffix(AGAIN)
        first = next((run for run in results.runs if run.name == name), None)
        scores = [None if run is None else 100 * run.test["accuracy"] for run in (first, again)]
        difference = None if scores[0] is None or scores[1] is None else scores[1] - scores[0]
        rows.append(
            [
                Text(title_of(results, again.group)),
                Text(again.model),
                Text(again.label.removesuffix(AGAIN)),
                *(number(score, 3, "the first run is not finished") for score in scores),
                number(difference, 3, "the first run is not finished", is_signed=True),
            ]
        )
    headings = ["data", "model", "run", "accuracy (%)", "again (%)", "difference (points)"]
    groups = dict.fromkeys(run.group for run in results.runs if run.label.endswith(AGAIN))
    note = f"{data_of(results, *groups)} The same settings and the same seed, run twice."
    return _table("repeated", "The same run twice", note, headings, rows, row_headings=3)


def missing_table(results: Results) -> StudyTable | None:
    """Runs that the study has and that are not finished."""
    rows: list[list[Cell]] = [
        [Text(title_of(results, run.group)), Text(run.model), Text(run.label), Text(run.reason)]
        for run in results.missing
    ]
    note = "These runs belong to the study and are not in its tables."
    return _table("missing", "Missing runs", note, ["data", "model", "run", "reason"], rows, row_headings=3)


def parts_of(point: dict[str, Any]) -> str:
    """What was compressed, as words."""
    parts = point.get("parts") or "all"
    return parts if isinstance(parts, str) else ", ".join(map(str, parts))


def _place(chosen: list[float], tried: list[float]) -> Cell:
    if len(chosen) != 1:
        return Missing("no one rate was chosen")
    if len(tried) < 2:
        return Text("the only one")
    return Text("lowest" if chosen[0] <= tried[0] else "highest" if chosen[0] >= tried[-1] else "inside")


def _validation(name: str, runs: list[RunRecord] | None, *, is_chosen: bool) -> Cell:
    if not runs:
        return Missing("not tried, or not finished")
    values = [run.validation[name] for run in runs if name in run.validation]
    if not values:
        return Missing("no validation split")
    score = Score.plain(values) if name == "bits" else Score.of(values)
    return Spread(score.mean, score.std, 4 if name == "bits" else 2, is_best=is_chosen)


def _rank(rank: Any) -> Cell:
    if rank is None:
        return Missing("the method has no rank")
    return Number(rank, None) if isinstance(rank, int | float) else Text(str(rank))


def _percent(value: float | None) -> Cell:
    return number(None if value is None else 100 * value, 2, "not measured")


def _table(
    key: str, title: str, note: str, headings: list[str], rows: list[list[Cell]], row_headings: int = 2
) -> StudyTable | None:
    if not rows:
        return None
    columns = [Column(heading) for heading in headings]
    return StudyTable(key=key, title=title, note=note, columns=columns, rows=rows, row_headings=row_headings)
