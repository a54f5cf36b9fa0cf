"""The paper's table of findings: Std against the best T4, group by group."""

from lformer.studies.published import Published
from lformer.studies.results import Results
from lformer.studies.rows import (
    NO_SEED,
    NOT_IN_PAPER,
    best_note,
    best_published,
    best_tensor,
    data_of,
    find_row,
    published_gap,
    title_of,
)
from lformer.studies.tables.accuracy import STD_NOTE, paper_accuracy, spread
from lformer.studies.tables.beside import Beside, table_beside
from lformer.studies.tables.cells import Cell, Column, Missing, StudyTable, Text, number
from lformer.studies.tables.parameters import counts_note, encoder, encoder_cells

STD = Beside("Std", "%")
BEST = Beside("best T4", "%")
GAP = Beside("best T4 minus Std", "points")


def summary_table(results: Results) -> StudyTable | None:
    """Both accuracies, their difference, and the sizes of both encoders."""
    cells: list[list[Cell]] = []
    groups = []
    for group in results.groups:
        dense, best = find_row(results, group, "Std"), best_tensor(results, group)
        if dense is None or best is None or not dense.runs:
            continue
        groups.append(group)
        ours, tensor = dense.score(), best.score()
        name, printed = best_published(group) or ("", Published())
        gap = None if ours is None or tensor is None else tensor.mean - ours.mean
        # Both are compared with the paper's best, whichever row that is.
        sizes = [encoder_cells(row, dense, published) for row, published in ((dense, dense.published), (best, printed))]
        cells.append(
            [
                Text(title_of(results, group)),
                *STD.cells(spread(dense), paper_accuracy(dense.published)),
                *BEST.cells(spread(best), paper_accuracy(printed)),
                Text(best.model),
                Text(name) if name else Missing(NOT_IN_PAPER),
                *GAP.cells(
                    number(gap, 2, NO_SEED, is_signed=True),
                    number(published_gap(group), 2, NOT_IN_PAPER, is_signed=True),
                ),
                *sizes[0][0],
                *sizes[1][0],
                *sizes[1][1],
            ]
        )
    columns = [
        Column("data"),
        *STD.columns,
        *BEST.columns,
        Column("which"),
        Column("paper: which", is_paper=True),
        *GAP.columns,
        *encoder("encoder of Std").columns,
        *encoder("encoder of the best T4").columns,
        *Beside("ratio of the encoders").columns,
    ]
    note = f"{data_of(results, *groups)} {STD_NOTE} {best_note(results, *groups)} {counts_note(results)}"
    title = "Summary: Std against the best T4"
    return table_beside(key="summary", title=title, note=note, columns=columns, rows=cells)
