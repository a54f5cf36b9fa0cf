"""What a study has and its tables lack, each with the reason."""

from lformer.studies.results import Results
from lformer.studies.rows import title_of
from lformer.studies.tables.beside import table_beside
from lformer.studies.tables.cells import Cell, Column, StudyTable, Text

HEADINGS = ["data", "model", "what", "reason"]


def missing_table(results: Results) -> StudyTable | None:
    """Runs that are not finished, and what failed after them; what a row lacks for the same reason stands together."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for run in results.missing:
        found.setdefault((run.group, run.model, run.reason), []).append(run.label)
    for name, reason in results.failures.items():
        what, _, row = name.partition(" of ")
        group, _, model = row.partition("/")
        found.setdefault((group, model, reason), []).append(what)
    rows: list[list[Cell]] = [
        [Text(title_of(results, group)), Text(model), Text(", ".join(what)), Text(reason)]
        for (group, model, reason), what in found.items()
    ]
    return table_beside(
        key="missing",
        title="What is missing",
        note="This belongs to the study and is not in its tables.",
        columns=[Column(heading) for heading in HEADINGS],
        rows=rows,
        row_headings=3,
    )
