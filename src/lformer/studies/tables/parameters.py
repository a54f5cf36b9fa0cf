"""Where a model's parameters are, counted from its configuration, and the paper's breakdown at d=768."""

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from lformer.models import LFormerConfig, LFormerForSequenceClassification
from lformer.studies.published import BREAKDOWN_768, PUBLISHED, WHOLE_768, Published
from lformer.studies.results import Results
from lformer.studies.rows import NO_SEED, NOT_IN_PAPER, Row, data_of, find_row, title_of
from lformer.studies.tables.beside import Beside, table_beside
from lformer.studies.tables.cells import Cell, Column, Missing, Number, StudyTable, Text, number, shown

NO_COUNT = "no count: the fields of the run are not those of a model of lformer"
BREAKDOWN_GROUP = "ag-news-768"
RATIO = Beside("ratio to Std")


def encoder(heading: str = "encoder parameters") -> Beside:
    """Ours counted to the last one, the paper's in thousands."""
    return Beside(heading, paper_unit="K", scale=1000, is_relative=True)


@dataclass(frozen=True)
class Parts:
    """Parameters of a classifier."""

    embedding: int
    layers: int
    beside: int
    """Of the encoder and of no layer: learned positions, and the norm that `paper_counts` adds."""
    classifier: int


def encoder_parameters(row: Row) -> int | None:
    """Everything between token embedding and classifier: the layers as the run counted them, and learned positions."""
    if not row.runs:
        return None
    parts = count_parts(row.fields)
    return row.runs[0].layer_parameters + (parts.beside if parts else 0)


def paper_encoder_parameters(row: Row) -> int | None:
    """The same with the projections and the norm that the counts in the paper imply."""
    parts = count_parts({**row.fields, "paper_counts": True}) if row.runs else None
    return parts.layers + parts.beside if parts else None


def count_parts(fields: dict[str, Any]) -> Parts | None:
    """The parameters of the model that has these fields; None where there is no such model."""
    return _count_parts(json.dumps(fields, sort_keys=True, default=str))


@lru_cache(maxsize=256)
def _count_parts(fields: str) -> Parts | None:
    try:
        with torch.device("meta"):  # shapes only
            model = LFormerForSequenceClassification(LFormerConfig(**json.loads(fields)))
    except (ValueError, TypeError):
        return None
    counts = {"embed_tokens": 0, "layers.": 0, "classifier": 0, "": 0}
    for name, parameter in model.named_parameters():
        counts[next(part for part in counts if part in name)] += parameter.numel()
    return Parts(counts["embed_tokens"], counts["layers."], counts[""], counts["classifier"])


def counts_note(results: Results) -> str:
    """What to know when our encoder parameters stand beside the paper's; nothing where they do not."""
    if not any(group in PUBLISHED for group in results.groups):
        return ""
    return (
        "The counts of encoder parameters that the paper prints at d=128 and 256 imply three more projections in every"
        " layer than its text describes; those at d=768 do not."
    )


def encoder_cells(row: Row, dense: Row | None, published: Published | None = None) -> tuple[list[Cell], list[Cell]]:
    """Encoder parameters, and their ratio to Std, beside those of the paper: of its row of that name if not given."""
    published = published or row.published
    ours, whole = encoder_parameters(row), encoder_parameters(dense) if dense else None
    count = number(ours, 0, row.reason or NO_SEED)
    ratio: Cell = Missing("Std was not run")
    if ours is None:
        ratio = count
    elif whole:
        ratio = Number(ours / whole, 3)
    printed = number(published.encoder_parameters, 0, NOT_IN_PAPER)
    return encoder().cells(count, printed), RATIO.cells(ratio, number(published.ratio, 3, NOT_IN_PAPER))


def breakdown_table(results: Results) -> StudyTable | None:
    """Embedding, encoder and classifier of Std and T4-linear at the largest width."""
    rows = [row for model in BREAKDOWN_768 if (row := find_row(results, BREAKDOWN_GROUP, model)) and row.runs]
    labels = len(results.groups.get(BREAKDOWN_GROUP, {}).get("labels", [])) or 2
    columns = [Column("part")]
    cells: list[list[Cell]] = [[Text(part)] for part in ("embedding", "encoder", "classifier", "total")]
    for row in rows:
        size = Beside(row.model, paper_unit="M", scale=1e6, is_relative=True)
        share = Beside(f"{row.model}: share", "%")
        columns += [*size.columns, *share.columns]
        counts, printed = _by_part(row, labels), BREAKDOWN_768[row.model]
        for line in cells:
            assert isinstance(line[0], Text)
            ours, paper = counts.get(line[0].text), printed.get(line[0].text)
            line += size.cells(number(ours, 0, NO_COUNT), number(paper, 1, NOT_IN_PAPER))
            line += share.cells(
                number(None if ours is None else 100 * ours / counts["total"], 1, NO_COUNT),
                number(None if paper is None else 100 * paper / printed["total"], 0, NOT_IN_PAPER),
            )
    note = f"{data_of(results, BREAKDOWN_GROUP)} Shares are of the whole model."
    if len(rows) == 2:
        whole = rows[1].runs[0].parameters / rows[0].runs[0].parameters
        note += (
            f" The whole of {rows[1].model} is {whole:.3f} of Std; in the paper {WHOLE_768:.2f}, a difference of"
            f" {shown(Number(whole - WHOLE_768, 3, is_signed=True))}."
        )
    title = f"Parameters by part: {title_of(results, BREAKDOWN_GROUP)}"
    return table_beside(key="breakdown", title=title, note=note, columns=columns, rows=cells if rows else [])


def _by_part(row: Row, labels: int) -> dict[str, int]:
    """The parameters of a row by part, as far as they can be counted."""
    parts, total = count_parts({**row.fields, "num_labels": labels}), row.runs[0].parameters
    inner = encoder_parameters(row)
    if parts is None or inner is None:
        return {"total": total}
    embedding = total - inner - parts.classifier
    return {"embedding": embedding, "encoder": inner, "classifier": parts.classifier, "total": total}
