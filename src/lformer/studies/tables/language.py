"""Language models: bits per byte beside what they cost."""

from lformer.models import LFormerConfig
from lformer.models.summary import multiply_adds as count_multiply_adds
from lformer.studies.results import Results, RunRecord
from lformer.studies.rows import Row, Score, data_of, group_rows, title_of
from lformer.studies.tables.cells import Cell, Column, Missing, Number, Spread, StudyTable, Text, number, slug

BYTE_TYPES = 260  # what a byte-level vocabulary has, special tokens included
LENGTH = 256
NOT_MEASURED = "not measured"


def language_table(results: Results, group: str) -> StudyTable | None:
    """All rows of a group by their bits per byte, the best first."""
    rows = [row for row in group_rows(results, group) if row.runs]
    if not rows:
        return None
    reference = next((row for row in rows if row.model == results.groups[group].get("reference")), None)
    base = bits(reference) if reference else None
    scored = sorted(((bits(row), row) for row in rows), key=lambda pair: pair[0].mean)
    return StudyTable(
        key=slug(f"bits-{group}"),
        title=f"Bits per byte: {title_of(results, group)}",
        note=(
            f"{data_of(results, group)} Bits per byte of the validation part, mean ± sample standard deviation over"
            " seeds; fewer are better. The difference is to"
            f" {reference.model if reference else 'the reference, which is missing'}. Multiply-adds are those of a"
            " token's forward pass; speed and memory are of training steps, alone on the machine."
        ),
        columns=[
            Column("model"),
            Column("seeds"),
            Column("bits per byte"),
            Column("difference"),
            Column("learning rate"),
            Column("layer parameters"),
            Column("multiply-adds a token (M)"),
            Column("tokens/s"),
            Column("peak memory (GB)"),
        ],
        rows=[_row(results, row, score, base, is_best=row is scored[0][1]) for score, row in scored],
    )


def bits(row: Row) -> Score:
    """Of the validation part, over seeds."""
    return Score.plain([run.validation["bits"] for run in row.runs])


def multiply_adds(run: RunRecord) -> float:
    """Millions for one token of a sequence of LENGTH."""
    config = LFormerConfig(**{"vocab_size": BYTE_TYPES, "is_decoder": True, **run.fields})
    return sum(count_multiply_adds(config, LENGTH).values()) / LENGTH / 1e6


def _row(results: Results, row: Row, score: Score, base: Score | None, *, is_best: bool) -> list[Cell]:
    measured = results.measurement(row.group, row.model)
    memory = measured.peak_memory_bytes if measured else None
    rates = sorted({run.learning_rate for run in row.runs})
    return [
        Text(row.model),
        Number(score.count),
        Spread(score.mean, score.std, 4, is_best),
        Number(score.mean - base.mean, 4, is_signed=True) if base else Missing("the reference is missing"),
        Text(", ".join(f"{rate:g}" for rate in rates)),
        Number(row.runs[0].layer_parameters),
        Number(multiply_adds(row.runs[0]), 2),
        number(measured.tokens_per_second if measured else None, 0, NOT_MEASURED),
        number(memory / 1e9 if memory else None, 2, NOT_MEASURED),
    ]
