"""Language models: bits per byte beside what they cost."""

from lformer.models import LFormerConfig
from lformer.models.summary import multiply_adds as count_multiply_adds
from lformer.studies.results import Results, RunRecord
from lformer.studies.rows import Row, Score, data_of, group_rows, title_of, why_not_measured
from lformer.studies.tables.beside import table_beside
from lformer.studies.tables.cells import Cell, Column, Missing, Number, Spread, StudyTable, Text, number, slug
from lformer.train import Recipe

BYTE_TYPES = 260  # what a byte-level vocabulary has, special tokens included
NO_MEMORY = "no GPU, no peak of its memory"


def language_table(results: Results, group: str) -> StudyTable | None:
    """All rows of a group by their bits per byte, the best first, those without a finished run last."""
    rows = group_rows(results, group)
    reference = next((row for row in rows if row.model == results.groups[group].get("reference") and row.runs), None)
    base = bits(reference) if reference else None
    scored = sorted(((bits(row), row) for row in rows if row.runs), key=lambda pair: pair[0].mean)
    cells = [_row(results, row, score, base, is_best=row is scored[0][1]) for score, row in scored]
    headings = ["model", "seeds", "bits per byte", "difference", "learning rate", "layer parameters"]
    headings += [
        "training tokens (M)",
        "multiply-adds a token (M)",
        "tokens/s",
        "training time (s)",
        "peak memory (GB)",
    ]
    for row in rows:
        if not row.runs:
            cells.append([Text(row.model), Number(0), *[Missing(row.reason)] * (len(headings) - 2)])
    note = (
        f"{data_of(results, group)} Bits per byte of the validation part, mean ± sample standard deviation over seeds;"
        " fewer are better. The difference is to"
        f" {reference.model if reference else 'the reference, which is missing'}. Multiply-adds are those of a token's"
        " forward pass in a sequence as long as in training; speed and memory are of training steps, alone on the"
        " machine, and the training time is all tokens at that speed."
    )
    incomplete = [f"{row.model} ({row.reason})" for row in rows if row.runs and row.reason]
    if incomplete:
        note += f" Seeds are missing of {', '.join(incomplete)}."
    return table_beside(
        key=slug(f"bits-{group}"),
        title=f"Bits per byte: {title_of(results, group)}",
        note=note,
        columns=[Column(heading) for heading in headings],
        rows=cells,
    )


def bits(row: Row) -> Score:
    """Of the validation part, over seeds."""
    return Score.plain([run.validation["bits"] for run in row.runs])


def training_tokens(run: RunRecord) -> int:
    """All that it was trained on, those of a second pass too."""
    recipe = Recipe(**run.recipe)
    assert recipe.max_steps is not None, "language models are trained for so many steps"
    return recipe.max_steps * recipe.batch_size * recipe.sequence_length


def training_seconds(results: Results, row: Row) -> float | None:
    """Of one run alone on the machine; None where the speed of the row was not measured."""
    measured = results.measurement(row.group, row.model)
    return training_tokens(row.runs[0]) / measured.tokens_per_second if measured else None


def multiply_adds(run: RunRecord) -> float:
    """Millions for one token of a sequence as long as those of its training."""
    config = LFormerConfig(**{"vocab_size": BYTE_TYPES, "is_decoder": True, **run.fields})
    length = Recipe(**run.recipe).sequence_length
    return sum(count_multiply_adds(config, length).values()) / length / 1e6


def _row(results: Results, row: Row, score: Score, base: Score | None, *, is_best: bool) -> list[Cell]:
    measured = results.measurement(row.group, row.model)
    reason = why_not_measured(results, row)
    memory: Cell = Missing(reason)
    if measured is not None:
        memory = number(measured.peak_memory_bytes and measured.peak_memory_bytes / 1e9, 2, NO_MEMORY)
    rates = sorted({run.learning_rate for run in row.runs})
    return [
        Text(row.model),
        Number(score.count),
        Spread(score.mean, score.std, 4, is_best),
        Number(score.mean - base.mean, 4, is_signed=True) if base else Missing("the reference is missing"),
        Text(", ".join(f"{rate:g}" for rate in rates)),
        Number(row.runs[0].layer_parameters),
        Number(training_tokens(row.runs[0]) / 1e6, 1),
        Number(multiply_adds(row.runs[0]), 2),
        number(measured.tokens_per_second if measured else None, 0, reason),
        number(training_seconds(results, row), 1, reason),
        memory,
    ]
