"""Accuracy: every group beside the paper, the parameter-matched rows, the sweep of positions, and the summary."""

from lformer.studies.published import PUBLISHED
from lformer.studies.results import Results
from lformer.studies.rows import (
    NO_SEED,
    NOT_IN_PAPER,
    Row,
    Score,
    best_published,
    best_tensor,
    data_of,
    find_row,
    group_rows,
    published_gap,
    title_of,
)
from lformer.studies.tables.cells import Cell, Column, Missing, Number, Spread, StudyTable, Text, number, slug
from lformer.studies.tables.parameters import NO_COUNT, encoder_parameters, paper_encoder_parameters

ONE_SEED = "one seed: no deviation"
MATCHED = ("Std", "Std-1L", "T4-linear")
STRATEGIES = {
    "T4-standard": "αₖ = 1",
    "T4-linear": "αₖ = k/p",
    "T4-exponential": "αₖ = 2^((k-1)/(p-1))",
    "T4-harmonic": "αₖ = k",
    "T4-learnable": "learned",
}


def accuracy_table(results: Results, group: str) -> StudyTable | None:
    """All rows of a group: scores and encoder parameters, beside the paper's where it has the group."""
    rows = group_rows(results, group)
    if not rows:
        return None
    columns = [
        Column("model"),
        Column("seeds"),
        Column("accuracy (%)"),
        Column("paper: accuracy (%)", is_paper=True),
        Column("difference (points)", is_paper=True),
        Column("intervals overlap", is_paper=True),
        Column("macro-F1 (%)"),
        Column("encoder parameters"),
        Column("with the paper's extra projections", is_paper=True),
        Column("paper: encoder parameters (K)", is_paper=True),
        Column("ratio to Std"),
        Column("paper: ratio to Std", is_paper=True),
    ]
    dense = next((row for row in rows if row.model == "Std"), None)
    best = max((score.mean for row in rows if (score := row.score())), default=None)
    cells = [_accuracy_row(row, dense, best) for row in rows]
    note = f"{data_of(results, group)} {seeds_note(rows)}"
    if group in PUBLISHED:
        note += (
            " The paper prints no macro-F1 and does not say which deviation it takes. Intervals are mean ± standard"
            " deviation. The counts that it prints at d=128 and 256 imply three more projections in every layer than"
            " its text describes; those at d=768 do not."
        )
    else:
        note += " The paper has no such table."
        kept = [i for i, column in enumerate(columns) if not column.is_paper]
        columns, cells = [columns[i] for i in kept], [[row[i] for i in kept] for row in cells]
    return StudyTable(
        key=slug(f"accuracy-{group}"),
        title=f"Accuracy: {title_of(results, group)}",
        note=note,
        columns=columns,
        rows=cells,
    )


def matched_table(results: Results) -> StudyTable | None:
    """The dense model, one layer of it, and the tensor model of about that size."""
    groups = [group for group in results.groups if find_row(results, group, "Std-1L")]
    cells: list[list[Cell]] = []
    for group in groups:
        dense = find_row(results, group, "Std")
        for row in group_rows(results, group):
            if row.model in MATCHED:
                accuracy, published = _spread(row), _published(row)
                names: list[Cell] = [Text(title_of(results, group)), Text(row.model)]
                cells.append([*names, accuracy, published, *_sizes(row, dense)])
    columns = [
        Column("data"),
        Column("model"),
        Column("accuracy (%)"),
        Column("paper: accuracy (%)", is_paper=True),
        Column("encoder parameters"),
        Column("paper: encoder parameters (K)", is_paper=True),
        Column("ratio to Std"),
        Column("paper: ratio to Std", is_paper=True),
    ]
    title = "At equal size: one dense layer against four tensor layers"
    note = f"{data_of(results, *groups)} {STD_NOTE}"
    return _table("parameter-matched", title, note, columns, cells)


def positions_table(results: Results) -> StudyTable | None:
    """The ways to weight the positions at p=4 by group."""
    groups = [group for group in results.groups if len(strategies(results, group)) > 1]
    columns = [Column("positions")]
    for group in groups:
        columns += [Column(title_of(results, group)), Column(f"paper: {title_of(results, group)}", is_paper=True)]
    best = {group: best_tensor(results, group) for group in groups}
    cells: list[list[Cell]] = []
    for model in [*STRATEGIES, "Std"]:
        shown = f"{model} ({STRATEGIES[model]})" if model in STRATEGIES else model
        line: list[Cell] = [Text(shown)]
        for group in groups:
            row = find_row(results, group, model)
            best_row = best[group]
            line.append(_spread(row, is_best=best_row is not None and best_row.model == model))
            published = PUBLISHED.get(group, {}).get(model)
            if published is None or published.accuracy is None:
                line.append(Missing(NOT_IN_PAPER))
            else:
                found = best_published(group)
                line.append(_paper_spread(published.accuracy, published.deviation, found and found[0] == model))
        cells.append(line)
    note = f"{data_of(results, *groups)} Accuracy in percent. {STD_NOTE} Bold is the best tensor row of a column."
    return _table("positions", "Positions at p=4", note, columns, cells if groups else [], row_headings=1)


def summary_table(results: Results) -> StudyTable | None:
    """Std against the best tensor row with p=4, group by group."""
    cells: list[list[Cell]] = []
    groups = []
    for group in results.groups:
        dense, best = find_row(results, group, "Std"), best_tensor(results, group)
        if dense is None or best is None or not dense.runs:
            continue
        groups.append(group)
        ours, tensor = dense.score(), best.score()
        published = best_published(group)
        gap = None if ours is None or tensor is None else tensor.mean - ours.mean
        cells.append(
            [
                Text(title_of(results, group)),
                _spread(dense),
                _spread(best),
                Text(best.model),
                number(gap, 2, NO_SEED, is_signed=True),
                number(published_gap(group), 2, NOT_IN_PAPER, is_signed=True),
                Text(published[0]) if published else Missing(NOT_IN_PAPER),
                *(number(encoder_parameters(row), 0, NO_COUNT) for row in (dense, best)),
                _ratio(best, dense),
            ]
        )
    columns = [
        Column("data"),
        Column("Std (%)"),
        Column("best T4 (%)"),
        Column("which"),
        Column("Δ (points)"),
        Column("paper: Δ (points)", is_paper=True),
        Column("paper: which", is_paper=True),
        Column("encoder parameters, Std"),
        Column("encoder parameters, T4"),
        Column("ratio"),
    ]
    note = (
        f"{data_of(results, *groups)} {STD_NOTE} The best T4 is the row with p=4 and the highest mean accuracy on the"
        " test split, as in the paper: the choice among several rows flatters it."
    )
    return _table("summary", "Summary: Std against the best T4", note, columns, cells, row_headings=1)


STD_NOTE = "Mean ± sample standard deviation (n - 1) over seeds; a mean alone is of one seed."


def seeds_note(rows: list[Row]) -> str:
    """How many seeds there are, and what the deviation is."""
    counts = sorted({len(row.runs) for row in rows if row.runs})
    if not counts:
        return "No run is finished."
    number_of = " or ".join(map(str, counts)) + (" seed" if counts == [1] else " seeds")
    text = f"Mean ± sample standard deviation (n - 1) over {number_of}; a mean alone is of one seed."
    incomplete = [row.model for row in rows if row.runs and row.reason]
    return text + (f" Seeds are missing of {', '.join(incomplete)}." if incomplete else "")


def strategies(results: Results, group: str) -> list[Row]:
    """The rows of a group that differ in the positions alone."""
    return [row for row in group_rows(results, group) if row.model in STRATEGIES]


def overlap(ours: Score, mean: float, std: float) -> bool:
    """Whether mean ± standard deviation of both have a point in common."""
    assert ours.std is not None
    return abs(ours.mean - mean) <= ours.std + std


def _accuracy_row(row: Row, dense: Row | None, best: float | None) -> list[Cell]:
    accuracy, published = row.score(), row.published
    difference: Cell = Missing(NOT_IN_PAPER if published.accuracy is None else row.reason or NO_SEED)
    is_overlap: Cell = difference
    if accuracy is not None and published.accuracy is not None:
        difference = Number(accuracy.mean - published.accuracy, 2, is_signed=True)
        if accuracy.std is None:
            is_overlap = Missing(ONE_SEED)
        elif published.deviation is not None:
            is_overlap = Text("yes" if overlap(accuracy, published.accuracy, published.deviation) else "no")
    ours, paper, ratio, paper_ratio = _sizes(row, dense)
    return [
        Text(row.model),
        Number(len(row.runs)),
        _spread(row, is_best=accuracy is not None and accuracy.mean == best),
        _published(row),
        difference,
        is_overlap,
        _spread(row, "macro_f1"),
        ours,
        number(paper_encoder_parameters(row), 0, row.reason if not row.runs else NO_COUNT),
        paper,
        ratio,
        paper_ratio,
    ]


def _sizes(row: Row, dense: Row | None) -> list[Cell]:
    """Encoder parameters and their ratio to Std, ours and the paper's."""
    published = row.published
    return [
        number(encoder_parameters(row), 0, row.reason or NO_SEED),
        number(published.encoder_parameters, 0, NOT_IN_PAPER),
        _ratio(row, dense),
        number(published.ratio, 3, NOT_IN_PAPER),
    ]


def _ratio(row: Row, dense: Row | None) -> Cell:
    ours, whole = encoder_parameters(row), encoder_parameters(dense) if dense else None
    if not row.runs:
        return Missing(row.reason or NO_SEED)
    return Missing("Std was not run") if ours is None or not whole else Number(ours / whole, 3)


def _spread(row: Row | None, name: str = "accuracy", *, is_best: bool = False) -> Cell:
    score = row.score(name) if row else None
    if score is None:
        return Missing(row.reason if row and row.reason else NO_SEED)
    return Spread(score.mean, score.std, is_best=is_best)


def _published(row: Row) -> Cell:
    if row.published.accuracy is None:
        return Missing(NOT_IN_PAPER)
    return _paper_spread(row.published.accuracy, row.published.deviation, False)


def _paper_spread(mean: float, std: float | None, is_best: bool | None) -> Cell:
    return Spread(mean, std, is_best=bool(is_best))


def _table(
    key: str, title: str, note: str, columns: list[Column], cells: list[list[Cell]], row_headings: int = 2
) -> StudyTable | None:
    if not cells:
        return None
    return StudyTable(key=key, title=title, note=note, columns=columns, rows=cells, row_headings=row_headings)
