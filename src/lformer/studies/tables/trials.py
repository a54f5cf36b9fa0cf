"""What stands behind the accuracies: the learning rates that were tried, and runs that were done twice."""

from lformer.studies.results import Results, RunRecord
from lformer.studies.rows import Row, Score, data_of, group_rows, reason_of, title_of
from lformer.studies.tables.beside import table_beside
from lformer.studies.tables.cells import Cell, Column, Missing, Number, Spread, StudyTable, Text, number

AGAIN = "-again"
NOT_TRIED = "not tried"


def tuning_table(results: Results) -> StudyTable | None:
    """The learning rate of every row, and the validation score of each that was tried."""
    tried = [run for run in results.runs if run.role == "trial"]
    rates = sorted({run.learning_rate for run in tried})
    groups = [group for group in results.groups if any(run.group == group for run in tried)]
    rows = [_tuning_row(results, row, rates) for group in groups for row in _tried(results, group)]
    is_bits = results.score == "bits"
    headings = ["data", "model", "chosen rate", "its place"]
    headings += [f"validation {'bits per byte' if is_bits else 'accuracy'} at {rate:g}" for rate in rates]
    note = (
        f"{data_of(results, *groups)} The rate that is best on the validation split (bold) is taken for all seeds of"
        " the row"
    )
    if not is_bits:
        note += (
            "; the test split has no part in the choice. Trials are trained without the validation texts, which are"
            " held out of the training texts; the runs that are reported have them all"
        )
    note += ". A rate at an end of those tried may not be the best there is."
    return table_beside(
        key="learning-rates",
        title="Learning rates",
        note=note,
        columns=[Column(f"{heading} (%)" if heading.startswith("validation acc") else heading) for heading in headings],
        rows=rows,
        row_headings=2,
    )


def repeated_table(results: Results) -> StudyTable | None:
    """Runs that were done twice."""
    rows: list[list[Cell]] = []
    repeats = [run for run in results.runs if run.role == "repeat"]
    for again in repeats:
        name = again.name.removesuffix(AGAIN)
        first = next((run for run in results.runs if run.name == name), None)
        scores = [None if run is None else 100 * run.test["accuracy"] for run in (first, again)]
        difference = None if scores[0] is None or scores[1] is None else scores[1] - scores[0]
        reason = reason_of(results, again.group, again.model, label=again.label.removesuffix(AGAIN)) or "not run"
        holds = None if difference is None else abs(difference) <= again.repeat_tolerance
        rows.append(
            [
                Text(title_of(results, again.group)),
                Text(again.model),
                Text(again.label.removesuffix(AGAIN)),
                *(number(score, 3, reason) for score in scores),
                number(difference, 3, reason, is_signed=True),
                Number(again.repeat_tolerance, 1),
                Missing(reason) if holds is None else Text("yes" if holds else "no"),
            ]
        )
    headings = ["data", "model", "run", "accuracy (%)", "again (%)", "difference (points)"]
    headings += ["may differ by (points)", "holds"]
    note = (
        f"{data_of(results, *dict.fromkeys(run.group for run in repeats))} The same settings and the same seed. On"
        " a CPU the two are the same; a GPU need not add up in a fixed order, and the bound was set beforehand."
    )
    return table_beside(
        key="repeated",
        title="The same run twice",
        note=note,
        columns=[Column(heading) for heading in headings],
        rows=rows,
        row_headings=3,
    )


def _tried(results: Results, group: str) -> list[Row]:
    return [row for row in group_rows(results, group) if row.trials]


def _tuning_row(results: Results, row: Row, rates: list[float]) -> list[Cell]:
    by_rate: dict[float, list[RunRecord]] = {}
    for run in row.trials:
        by_rate.setdefault(run.learning_rate, []).append(run)
    chosen = sorted({run.learning_rate for run in row.runs})
    return [
        Text(title_of(results, row.group)),
        Text(row.model),
        Text(", ".join(f"{rate:g}" for rate in chosen)) if chosen else Missing(row.reason or "not run"),
        _place(chosen, sorted(by_rate)),
        *(_validation(results, row, rate, by_rate.get(rate, []), is_chosen=rate in chosen) for rate in rates),
    ]


def _place(chosen: list[float], tried: list[float]) -> Cell:
    if len(chosen) != 1:
        return Missing("no one rate was chosen")
    if len(tried) < 2:
        return Text("the only one")
    return Text("lowest" if chosen[0] <= tried[0] else "highest" if chosen[0] >= tried[-1] else "inside")


def _validation(results: Results, row: Row, rate: float, runs: list[RunRecord], *, is_chosen: bool) -> Cell:
    name = results.score
    if not runs:
        return Missing(reason_of(results, row.group, row.model, "trial", f"lr-{rate:g}") or NOT_TRIED)
    values = [run.validation[name] for run in runs if name in run.validation]
    if not values:
        return Missing("no validation split")
    score = Score.plain(values) if name == "bits" else Score.of(values)
    return Spread(score.mean, score.std, 4 if name == "bits" else 2, is_best=is_chosen)
