"""Differences in accuracy, and what they are when chance is taken into account."""

from lformer.studies.results import Results
from lformer.studies.rows import data_of, title_of
from lformer.studies.significance import SMALLEST_P_VALUE
from lformer.studies.tables.beside import table_beside
from lformer.studies.tables.cells import Cell, Column, Number, StudyTable, Text, number
from lformer.studies.tables.same_size import ONE_SEED, corrected

HEADINGS = ["data", "model", "against", "seeds", "difference (points)"]
HEADINGS += ["examples: 95 % from", "examples: to", "examples: p-value"]
HEADINGS += ["examples and seeds: 95 % from", "examples and seeds: to", "examples and seeds: p-value"]
HEADINGS += ["corrected p-value"]


def comparisons_table(results: Results) -> StudyTable | None:
    """Every difference that the study asks for, with its two intervals."""
    rows: list[list[Cell]] = [
        [
            Text(title_of(results, group)),
            Text(found.model),
            Text(found.other),
            Number(found.seeds),
            Number(found.difference, 2, is_signed=True),
            Number(found.low, 2, is_signed=True),
            Number(found.high, 2, is_signed=True),
            Number(found.p_value, 4),
            number(found.low_over_seeds, 2, ONE_SEED, is_signed=True),
            number(found.high_over_seeds, 2, ONE_SEED, is_signed=True),
            number(found.p_value_over_seeds, 4, ONE_SEED, least=1e-4),
            number(p_value, 4, ONE_SEED, least=1e-4),
        ]
        for group in results.groups
        for found, p_value in corrected(results, group)
    ]
    counts = [f"{len(corrected(results, group))} in {title_of(results, group)}" for group in _groups(results)]
    note = (
        f"{data_of(results, *_groups(results))} Test accuracy of the first minus that of the second, mean over seeds,"
        ' with 95 % intervals and two-sided p-values. "Examples" is a paired bootstrap over test examples: it says'
        " whether these trained models would differ on other texts, and nothing of other seeds; with"
        f' 10,000 samples its p-value cannot be below {SMALLEST_P_VALUE:.4f}. "Examples and seeds" is for models'
        " trained again with other seeds as well: two-way clustered variance, Student's t. The last column corrects it"
        f" for the number of comparisons in the group (Holm): {', '.join(counts)}."
    )
    return table_beside(
        key="comparisons",
        title="Differences in accuracy, tested",
        note=note,
        columns=[Column(heading) for heading in HEADINGS],
        rows=rows,
        row_headings=3,
    )


def _groups(results: Results) -> list[str]:
    return [group for group in results.groups if any(found.group == group for found in results.comparisons)]
