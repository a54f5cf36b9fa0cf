"""The tables of a study, each made by one function of its results."""

from lformer.studies.results import Results
from lformer.studies.tables.accuracy import accuracy_table, positions_table
from lformer.studies.tables.cells import Cell, Column, Missing, Number, Spread, StudyTable, Text
from lformer.studies.tables.comparisons import comparisons_table
from lformer.studies.tables.compressed import compressed_table
from lformer.studies.tables.language import language_table
from lformer.studies.tables.missing import missing_table
from lformer.studies.tables.parameters import breakdown_table
from lformer.studies.tables.same_size import matched_table, same_size_table
from lformer.studies.tables.settings import settings_table
from lformer.studies.tables.sizes import sizes_table
from lformer.studies.tables.speed import efficiency_table, relative_speed_table, runtime_table, seconds_table
from lformer.studies.tables.summary import summary_table
from lformer.studies.tables.trials import repeated_table, tuning_table

__all__ = ["Cell", "Column", "Missing", "Number", "Spread", "StudyTable", "Text", "study_tables"]

BEHIND = [
    matched_table,
    positions_table,
    breakdown_table,
    comparisons_table,
    efficiency_table,
    runtime_table,
    relative_speed_table,
    compressed_table,
    settings_table,
    tuning_table,
    repeated_table,
    seconds_table,
    missing_table,
]
BEHIND_LANGUAGE = [settings_table, tuning_table, seconds_table, missing_table]


def study_tables(results: Results) -> list[StudyTable]:
    """All tables that have something to show, in the order in which they are read."""
    if results.score == "bits":
        found = [sizes_table(results), *(language_table(results, group) for group in results.groups)]
        behind = BEHIND_LANGUAGE
    else:
        found = [same_size_table(results), summary_table(results)]
        found += [accuracy_table(results, group) for group in results.groups]
        behind = BEHIND
    return [table for table in [*found, *(make(results) for make in behind)] if table is not None]
