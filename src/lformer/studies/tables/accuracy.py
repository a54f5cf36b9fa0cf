"""Accuracy: every group, and the sweep of positions, beside the paper."""

from lformer.studies.published import PUBLISHED, Published
from lformer.studies.results import Results
from lformer.studies.rows import (
    NO_SEED,
    NOT_IN_PAPER,
    Row,
    Score,
    best_note,
    best_published,
    best_tensor,
    data_of,
    find_row,
    group_rows,
    title_of,
)
from lformer.studies.tables.beside import Beside, table_beside
from lformer.studies.tables.cells import Cell, Column, Missing, Number, Spread, StudyTable, Text, number, slug
from lformer.studies.tables.parameters import (
    NO_COUNT,
    RATIO,
    counts_note,
    encoder,
    encoder_cells,
    paper_encoder_parameters,
)

ONE_SEED = "one seed: no deviation"
NO_MEMORY = "no GPU, no peak of its memory"
WITH_MEMORY = ("ag-news-768",)  # the accuracy table of the paper that prints memory too
STD_NOTE = "Mean ± sample standard deviation (n - 1) over seeds; a mean alone is of one seed."
STRATEGIES = {
    "T4-standard": "αₖ = 1",
    "T4-linear": "αₖ = k/p",
    "T4-exponential": "αₖ = 2^((k-1)/(p-1))",
    "T4-harmonic": "αₖ = k",
    "T4-learnable": "learned",
}
ACCURACY = Beside("accuracy", "%")
MEMORY = Beside("peak memory of the run", "GB", is_relative=True)


def accuracy_table(results: Results, group: str) -> StudyTable | None:
    """All rows of a group: scores and encoder parameters, beside the paper's where it has the group."""
    rows = group_rows(results, group)
    columns = [
        Column("model"),
        Column("p"),
        Column("seeds"),
        *ACCURACY.columns,
        Column("intervals overlap", is_paper=True),
        Column("macro-F1 (%)"),
        *encoder().columns,
        Column("with the paper's extra projections", is_paper=True),
        *RATIO.columns,
        *(MEMORY.columns if group in WITH_MEMORY else []),
    ]
    dense = next((row for row in rows if row.model == "Std"), None)
    best = max((score.mean for row in rows if (score := row.score())), default=None)
    note = f"{data_of(results, group)} {seeds_note(rows)}"
    if group in PUBLISHED:
        note += (
            " The paper prints no macro-F1 and does not say which deviation it takes. Intervals are mean ± standard"
            f" deviation. {counts_note(results)}"
        )
    else:
        note += " The paper has no such table."
    return table_beside(
        key=slug(f"accuracy-{group}"),
        title=f"Accuracy: {title_of(results, group)}",
        note=note,
        columns=columns,
        rows=[_accuracy_row(row, dense, best) for row in rows],
    )


def positions_table(results: Results) -> StudyTable | None:
    """The ways to weight the positions at p=4 by group."""
    groups = [group for group in results.groups if len(strategies(results, group)) > 1]
    columns = [Column("positions")]
    for group in groups:
        columns += Beside(title_of(results, group), "%").columns
    best = {group: best_tensor(results, group) for group in groups}
    cells: list[list[Cell]] = []
    for model in [*STRATEGIES, "Std"]:
        line: list[Cell] = [Text(f"{model} ({STRATEGIES[model]})" if model in STRATEGIES else model)]
        for group in groups:
            row, best_row = find_row(results, group, model), best[group]
            is_best = best_row is not None and best_row.model == model
            published = PUBLISHED.get(group, {}).get(model, Published())
            found = best_published(group)
            printed = paper_accuracy(published, is_best=found is not None and found[0] == model)
            line += ACCURACY.cells(spread(row, is_best=is_best), printed)
        cells.append(line)
    note = (
        f"{data_of(results, *groups)} Accuracy in percent. {STD_NOTE} Bold is the best tensor row of a column."
        f" {best_note(results, *groups)}"
    )
    title = "Positions at p=4"
    return table_beside(key="positions", title=title, note=note, columns=columns, rows=cells if groups else [])


def seeds_note(rows: list[Row]) -> str:
    """How many seeds there are, what the deviation is, and of which rows seeds are missing."""
    counts = sorted({len(row.runs) for row in rows if row.runs})
    if not counts:
        return "No run is finished."
    number_of = " or ".join(map(str, counts)) + (" seed" if counts == [1] else " seeds")
    text = f"Mean ± sample standard deviation (n - 1) over {number_of}; a mean alone is of one seed."
    incomplete = [f"{row.model} ({row.reason})" for row in rows if row.runs and row.reason]
    return text + (f" Seeds are missing of {', '.join(incomplete)}." if incomplete else "")


def strategies(results: Results, group: str) -> list[Row]:
    """The rows of a group that differ in the positions alone."""
    return [row for row in group_rows(results, group) if row.model in STRATEGIES]


def overlap(ours: Score, mean: float, std: float) -> bool:
    """Whether mean ± standard deviation of both have a point in common."""
    assert ours.std is not None
    return abs(ours.mean - mean) <= ours.std + std


def spread(row: Row | None, name: str = "accuracy", *, is_best: bool = False) -> Cell:
    """A score of a row over its seeds."""
    score = row.score(name) if row else None
    if score is None:
        return Missing(row.reason if row and row.reason else NO_SEED)
    return Spread(score.mean, score.std, is_best=is_best)


def paper_accuracy(published: Published, *, is_best: bool = False) -> Cell:
    """What the paper prints."""
    if published.accuracy is None:
        return Missing(NOT_IN_PAPER)
    return Spread(published.accuracy, published.deviation, is_best=is_best)


def _accuracy_row(row: Row, dense: Row | None, best: float | None) -> list[Cell]:
    accuracy = row.score()
    is_in_paper = row.group in PUBLISHED
    extra = number(paper_encoder_parameters(row), 0, row.reason if not row.runs else NO_COUNT)
    size, ratio = encoder_cells(row, dense)
    return [
        Text(row.model),
        Number(row.field("tube_length")) if row.runs else Missing(row.reason or NO_SEED),
        Number(len(row.runs)),
        *ACCURACY.cells(
            spread(row, is_best=accuracy is not None and accuracy.mean == best), paper_accuracy(row.published)
        ),
        _overlap(row),
        spread(row, "macro_f1"),
        *size,
        extra if is_in_paper else Missing(NOT_IN_PAPER),
        *ratio,
        *(
            MEMORY.cells(_memory(row), number(row.published.memory_gb, 2, NOT_IN_PAPER))
            if row.group in WITH_MEMORY
            else []
        ),
    ]


def _overlap(row: Row) -> Cell:
    ours, published = row.score(), row.published
    if published.accuracy is None or published.deviation is None:
        return Missing(NOT_IN_PAPER)
    if ours is None:
        return Missing(row.reason or NO_SEED)
    if ours.std is None:
        return Missing(ONE_SEED)
    return Text("yes" if overlap(ours, published.accuracy, published.deviation) else "no")


def _memory(row: Row) -> Cell:
    """The largest of all seeds: training and tests, as the paper measures."""
    peaks = [run.peak_memory_bytes for run in row.runs if run.peak_memory_bytes is not None]
    return Number(max(peaks) / 1e9, 2) if peaks else Missing(NO_MEMORY if row.runs else row.reason or NO_SEED)
