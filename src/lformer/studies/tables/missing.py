"""What a study has and its tables lack, each with the reason."""

from lformer.studies.results import Results
from lformer.studies.rows import title_of
from lformer.studies.tables.beside import table_beside
from lformer.studies.tables.cells import Cell, Column, Missing, StudyTable, Text

HEADINGS = ["data", "model", "what", "reason"]


def missing_table(results: Results) -> StudyTable | None:
    """Runs that are not finished, and what failed after them."""
    rows: list[list[Cell]] = [
        [Text(title_of(results, run.group)), Text(run.model), Text(run.label), Text(run.reason)]
        for run in results.missing
    ]
    for name, reason in results.failures.items():
        what, _, row = name.partition(" of ")
        group, _, model = row.partition("/")
        rows.append(
            [Text(title_of(results, group)), Text(model) if model else Missing("it has none"), Text(what), Text(reason)]
        )
    return table_beside(
        key="missing",
        title="What is missing",
        note="This belongs to the study and is not in its tables.",
        columns=[Column(heading) for heading in HEADINGS],
        rows=rows,
        row_headings=3,
    )
