"""Language models: the trend over size."""

from lformer.studies.results import Results
from lformer.studies.rows import Row, group_rows, title_of
from lformer.studies.tables.beside import table_beside
from lformer.studies.tables.cells import Cell, Column, Missing, Number, Spread, StudyTable, Text
from lformer.studies.tables.language import bits

REFERENCE = "dense"


def rows_of_sizes(results: Results) -> dict[str, dict[str, Row]]:
    """The models that were trained at several sizes, each by group; the reference of every group is one model."""
    found: dict[str, dict[str, Row]] = {}
    for group, about in results.groups.items():
        for row in group_rows(results, group):
            name = REFERENCE if row.model == about.get("reference") else row.model
            if row.runs:
                found.setdefault(name, {})[group] = row
    return {name: rows for name, rows in found.items() if len(rows) > 1}


def sizes_table(results: Results) -> StudyTable | None:
    """Bits per byte at every size, and the difference to the dense model there; the smallest size first."""
    rows = [(name, group, row) for name, groups in rows_of_sizes(results).items() for group, row in groups.items()]
    if not rows:
        return None
    dense = {group: bits(row).mean for name, group, row in rows if name == REFERENCE}
    smallest = {group: min(row.runs[0].layer_parameters for _, g, row in rows if g == group) for _, group, _ in rows}
    rows.sort(key=lambda found: (smallest[found[1]], bits(found[2]).mean))
    cells: list[list[Cell]] = []
    for name, group, row in rows:
        score = bits(row)
        difference: Cell = Missing("the dense model is missing")
        if group in dense:
            difference = Number(score.mean - dense[group], 4, is_signed=True)
        rates = sorted({run.learning_rate for run in row.runs})
        cells.append(
            [
                Text(title_of(results, group)),
                Text(name),
                Number(row.runs[0].layer_parameters),
                Number(score.count),
                Spread(score.mean, score.std, 4),
                difference,
                Text(", ".join(f"{rate:g}" for rate in rates)),
            ]
        )
    headings = ["size", "model", "layer parameters", "seeds", "bits per byte", "difference to dense", "learning rate"]
    return table_beside(
        key="sizes",
        title="Bits per byte over size",
        note="Validation part, the same bytes of training at every size. Where a size has no trials of its own, its"
        " learning rate is that of the size that has, times the ratio of the widths.",
        columns=[Column(heading) for heading in headings],
        rows=cells,
        row_headings=2,
    )
