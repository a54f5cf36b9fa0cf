"""How the tests read tables, and small results to make them of."""

from dataclasses import replace

from lformer.studies.results import Results
from lformer.studies.tables import StudyTable, Text, study_tables
from lformer.studies.tables.cells import Cell

from .synthetic import fields_of, paper_results, record


def tables_of(results: Results) -> dict[str, StudyTable]:
    return {table.key: table for table in study_tables(results)}


def cell(table: StudyTable, heading: str, *row: str) -> Cell:
    """The cell of a row that begins with these words."""
    column = [column.heading for column in table.columns].index(heading)
    found = [line for line in table.rows if [c.text for c in line[: len(row)] if isinstance(c, Text)] == list(row)]
    assert len(found) == 1, row
    return found[0][column]


def tiny(accuracies: dict[str, list[float]], **changes: object) -> Results:
    """A study of IMDB with these accuracies."""
    runs = [
        record("imdb-128", model, f"seed-{seed}", accuracy, fields_of(model, 128))
        for model, values in accuracies.items()
        for seed, accuracy in enumerate(values)
    ]
    groups = {"imdb-128": paper_results().groups["imdb-128"]}
    return replace(Results(study="paper", scale="full", groups=groups, runs=runs, environments=[{}]), **changes)
