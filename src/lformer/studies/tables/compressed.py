"""Dense models that are compressed after training, without further training."""

from typing import Any

from lformer.studies.results import Results, RunRecord
from lformer.studies.rows import Row, data_of, find_row, title_of
from lformer.studies.tables.beside import table_beside
from lformer.studies.tables.cells import DASH, Cell, Column, Missing, Number, StudyTable, Text, number

UNCOMPRESSED = "none"  # the method of the first point of a sweep: the model as trained
PARTS_OF_A_LAYER = 6  # query, key, value, output and the two of the feed-forward
HEADINGS = ["data", "model", "method", "way", "budget (%)", "matrices", "ranks", "layer parameters"]
HEADINGS += ["of the trained model (%)", "validation accuracy (%)", "test accuracy (%)", "macro-F1 (%)"]


def compressed_table(results: Results) -> StudyTable | None:
    """The best model of each method and budget, by its validation accuracy."""
    rows: list[list[Cell]] = []
    for name, points in results.compressed.items():
        group, _, model = name.partition("/")
        row = find_row(results, group, model)
        methods = list(dict.fromkeys(point["method"] for point in points))
        for point in sorted(points, key=lambda point: (methods.index(point["method"]), -point["layer_parameters"])):
            rows.append([Text(title_of(results, group)), Text(model), *_cells(point, row)])
    names = [name for name in results.compressed if results.compressed[name]]
    groups = dict.fromkeys(name.partition("/")[0] for name in names)
    note = (
        f"{data_of(results, *groups)} Each method's best model within a budget, a share of the layers' parameters,"
        ' by validation accuracy; the test split was looked at afterwards. "Matrices" are those that were cut, of all'
        " in the layers; which, and each one's rank, is in results.json. What is compressed is a"
        f' trial, named "as trained": {trials_note(results, *names)}.'
    )
    failed = [f"{name.removeprefix('compression of ')}: {why}" for name, why in _failures(results).items()]
    if failed:
        note += f" Not there: {'; '.join(failed)}."
    columns = [Column(heading) for heading in HEADINGS]
    title = "Compression after training"
    return table_beside(key="compressed", title=title, note=note, columns=columns, rows=rows, row_headings=4)


def trials_note(results: Results, *names: str) -> str:
    """What is compressed is not what the tables report: why, and which run it is."""
    rates = []
    for name in names:
        group, _, model = name.partition("/")
        if (run := compressed_run(results, group, model)) is not None:
            rates.append(f"{title_of(results, group)}: {run.label}, seed {run.seed}")
    which = f" ({'; '.join(rates)})" if rates else ""
    return f"one seed, trained without the validation texts, on which ranks are chosen{which}"


def compressed_run(results: Results, group: str, model: str) -> RunRecord | None:
    """The trial that was compressed: the best on validation texts, the smaller rate of two that are as good."""
    row = find_row(results, group, model)
    tried = [run for run in row.trials if "accuracy" in run.validation] if row else []
    return max(tried, key=lambda run: (run.validation["accuracy"], -run.learning_rate), default=None)


def method_of(point: dict[str, Any]) -> str:
    """The method in words, with its way."""
    way = point.get("way")
    return f"{point['method']}, {way}" if way else str(point["method"])


def _cells(point: dict[str, Any], row: Row | None) -> list[Cell]:
    ranks = [rank for part in point["rank"] for rank in (part if isinstance(part, list) else [part])]
    budgets = ", ".join(f"{100 * budget:g}" for budget in point["budgets"])
    is_whole = point["method"] == UNCOMPRESSED
    nothing = Missing("nothing was cut")
    return [
        Text("as trained" if is_whole else point["method"]),
        Text(point["way"])
        if point["way"]
        else Missing("the method has one way only" if not is_whole else nothing.reason),
        Text(budgets) if budgets else nothing,
        Text(f"{len(ranks)} of {_matrices(row)}") if row and row.runs else Number(len(ranks)),
        Text(_span(ranks)) if ranks else nothing,
        Number(point["layer_parameters"]),
        Number(100 * point["share"], 1),
        *(_percent(point[name]) for name in ("validation_accuracy", "test_accuracy", "macro_f1")),
    ]


def _matrices(row: Row) -> int:
    parts = PARTS_OF_A_LAYER + 3 * bool(row.field("paper_counts"))
    return int(row.field("num_hidden_layers")) * parts


def _span(ranks: list[int]) -> str:
    least, most = min(ranks), max(ranks)
    return str(least) if least == most else f"{least}{DASH}{most}"


def _percent(value: float | None) -> Cell:
    return number(None if value is None else 100 * value, 2, "not measured")


def _failures(results: Results) -> dict[str, str]:
    return {name: why for name, why in results.failures.items() if name.startswith("compression of ")}
