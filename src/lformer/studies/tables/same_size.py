"""The central question: is a tensor model better than one without slices that has as many parameters?"""

from dataclasses import dataclass, replace

from lformer.studies.results import Comparison, Results
from lformer.studies.rows import Row, best_note, best_tensor, data_of, find_row, group_rows, title_of
from lformer.studies.significance import holm
from lformer.studies.tables.accuracy import ACCURACY, STD_NOTE, paper_accuracy, spread
from lformer.studies.tables.beside import table_beside
from lformer.studies.tables.cells import Cell, Column, Number, StudyTable, Text, number
from lformer.studies.tables.parameters import RATIO, counts_note, encoder, encoder_cells

OF_THE_PAPER = ("Std", "Std-1L", "T4-linear")  # the rows of its table pm_summary
TENSORS = ("T4", "T4-linear")  # the paper's layer, by the names that the studies give it
TOLERANCE = 0.1  # models whose layers differ by less than this share are of the same size
LEVEL = 0.05
NOT_COMPARED = "the study does not test this difference"
ONE_SEED = "one seed: nothing is known of others"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A tensor row and one of another kind with as many parameters."""

    tensor: Row
    other: Row
    comparison: Comparison | None
    """Of the tensor row minus the other."""
    p_value: float | None
    """Over seeds, corrected for the number of comparisons in the group."""

    @property
    def finding(self) -> str:
        """In words, where the difference was tested."""
        if self.comparison is None or self.p_value is None:
            return "not tested"
        ahead = (self.tensor if self.comparison.difference > 0 else self.other).model
        if self.p_value < LEVEL:
            return f"{ahead} is better"
        is_alone = (self.comparison.p_value_over_seeds or 0.0) < LEVEL
        return f"{ahead} is ahead before the correction only" if is_alone else "no difference found"


def same_size_table(results: Results) -> StudyTable | None:
    """Every model of the size of T4 that has no slices, against T4 and against the best tensor row."""
    pairs = [pair for group in results.groups for pair in same_size_pairs(results, group)]
    columns = ["data", "tensor model", "against", "finding", "difference (points)", "95 % from", "to", "p-value"]
    columns += ["corrected p-value", "tensor (%)", "against it (%)"]
    columns += ["layer parameters, tensor", "layer parameters, against it"]
    columns += ["all parameters, tensor", "all parameters, against it"]
    groups = list(dict.fromkeys(pair.tensor.group for pair in pairs))
    note = (
        f"{data_of(results, *groups)} {STD_NOTE} The difference is the tensor model's accuracy minus that of the model"
        " against it; intervals and p-values are for other test examples and other seeds; the last p-value, by which"
        " the finding goes, is corrected for all comparisons of the group (Holm). Of the same size: layers that differ"
        f" by less than {TOLERANCE:.0%}; a narrower model also has a smaller embedding, as all its parameters show."
        f" {_count(pairs)}"
    )
    if any(pair.tensor.model not in TENSORS for pair in pairs):
        note += f" {best_note(results, *groups)}"
    return table_beside(
        key="same-size",
        title="At equal size: is the tensor model better?",
        note=note,
        columns=[Column(heading) for heading in columns],
        rows=[_cells(results, pair) for pair in pairs],
        row_headings=3,
    )


def same_size_pairs(results: Results, group: str) -> list[Pair]:
    """T4, and the best tensor row where it is another, against every finished row without slices of its size."""
    rows = [row for row in group_rows(results, group) if row.runs]
    tested = corrected(results, group)
    named = next((row for row in rows if row.model in TENSORS), None)
    best = best_tensor(results, group)
    found = []
    for tensor in {row.model: row for row in (named, best) if row is not None}.values():
        for other in rows:
            if other.family in ("tensor", "slices") or not _is_same_size(tensor, other):
                continue
            comparison, p_value = _between(tested, tensor.model, other.model)
            if comparison is not None or tensor.model in TENSORS:
                found.append(Pair(tensor=tensor, other=other, comparison=comparison, p_value=p_value))
    return found


def corrected(results: Results, group: str) -> list[tuple[Comparison, float | None]]:
    """The comparisons of a group, each with its p-value over seeds after Holm's correction."""
    found = [comparison for comparison in results.comparisons if comparison.group == group]
    tested = [comparison for comparison in found if comparison.p_value_over_seeds is not None]
    p_values = holm([comparison.p_value_over_seeds or 0.0 for comparison in tested])
    by_pair = {(tested.model, tested.other): p for tested, p in zip(tested, p_values, strict=True)}
    return [(comparison, by_pair.get((comparison.model, comparison.other))) for comparison in found]


def matched_table(results: Results) -> StudyTable | None:
    """The paper's table pm_summary: the dense model, one layer of it, and the tensor model of about that size."""
    groups = [group for group in results.groups if find_row(results, group, "Std-1L")]
    cells: list[list[Cell]] = []
    for group in groups:
        dense = find_row(results, group, "Std")
        for row in group_rows(results, group):
            if row.model in OF_THE_PAPER:
                size, ratio = encoder_cells(row, dense)
                names: list[Cell] = [Text(title_of(results, group)), Text(row.model)]
                cells.append([*names, *ACCURACY.cells(spread(row), paper_accuracy(row.published)), *size, *ratio])
    columns = [Column("data"), Column("model"), *ACCURACY.columns, *encoder().columns, *RATIO.columns]
    return table_beside(
        key="parameter-matched",
        title="The paper's comparison at equal size: one dense layer against four tensor layers",
        note=f"{data_of(results, *groups)} {STD_NOTE} {counts_note(results)}",
        columns=columns,
        rows=cells,
        row_headings=2,
    )


def _is_same_size(tensor: Row, other: Row) -> bool:
    ours, theirs = tensor.runs[0].layer_parameters, other.runs[0].layer_parameters
    return abs(theirs / ours - 1) < TOLERANCE


def _between(
    tested: list[tuple[Comparison, float | None]], model: str, other: str
) -> tuple[Comparison | None, float | None]:
    """The comparison of two rows, whichever of them it was made from."""
    for found, p_value in tested:
        if (found.model, found.other) == (model, other):
            return found, p_value
        if (found.model, found.other) == (other, model):
            return _turned(found), p_value
    return None, None


def _turned(found: Comparison) -> Comparison:
    """The same with the other model first."""
    low, high = found.low_over_seeds, found.high_over_seeds
    return replace(
        found,
        model=found.other,
        other=found.model,
        difference=-found.difference,
        low=-found.high,
        high=-found.low,
        low_over_seeds=None if high is None else -high,
        high_over_seeds=None if low is None else -low,
    )


def _cells(results: Results, pair: Pair) -> list[Cell]:
    tensor, other, found = pair.tensor, pair.other, pair.comparison
    reason = NOT_COMPARED if found is None else ONE_SEED
    low, high = (None, None) if found is None else (found.low_over_seeds, found.high_over_seeds)
    scores = [row.score() for row in (tensor, other)]
    difference = None if scores[0] is None or scores[1] is None else scores[0].mean - scores[1].mean
    return [
        Text(title_of(results, tensor.group)),
        Text(tensor.model),
        Text(other.model),
        Text(pair.finding),
        number(found.difference if found else difference, 2, "a test accuracy is missing", is_signed=True),
        number(low, 2, reason, is_signed=True),
        number(high, 2, reason, is_signed=True),
        number(found.p_value_over_seeds if found else None, 4, reason, least=1e-4),
        number(pair.p_value, 4, reason, least=1e-4),
        spread(tensor),
        spread(other),
        Number(tensor.runs[0].layer_parameters),
        Number(other.runs[0].layer_parameters),
        Number(tensor.runs[0].parameters),
        Number(other.runs[0].parameters),
    ]


def _count(pairs: list[Pair]) -> str:
    """The answer in one sentence."""
    tested = [pair for pair in pairs if pair.p_value is not None]
    better = sum(pair.finding == f"{pair.tensor.model} is better" for pair in tested)
    worse = sum(pair.finding == f"{pair.other.model} is better" for pair in tested)
    return (
        f"Differences tested: {len(tested)}; in favour of the tensor model: {better}; against it: {worse}; undecided:"
        f" {len(tested) - better - worse}."
    )
