"""Where a model's parameters are, counted from its configuration, and the paper's breakdown at d=768."""

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from lformer.models import LFormerConfig, LFormerForSequenceClassification
from lformer.studies.published import BREAKDOWN_768
from lformer.studies.results import Results
from lformer.studies.rows import NOT_IN_PAPER, Row, data_of, find_row, title_of
from lformer.studies.tables.cells import Cell, Column, StudyTable, Text, number

NO_COUNT = "no count: the fields of the run are not those of a model of lformer"
BREAKDOWN_GROUP = "ag-news-768"


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


def breakdown_table(results: Results) -> StudyTable | None:
    """Embedding, encoder and classifier of Std and T4-linear at the largest width."""
    rows = [row for model in BREAKDOWN_768 if (row := find_row(results, BREAKDOWN_GROUP, model)) and row.runs]
    if not rows:
        return None
    labels = len(results.groups[BREAKDOWN_GROUP].get("labels", [])) or 2
    columns = [Column("part")]
    for row in rows:
        columns += [Column(row.model), Column(f"{row.model}: share (%)")]
        columns += [
            Column(f"paper: {row.model} (M)", is_paper=True),
            Column(f"paper: {row.model}: share (%)", is_paper=True),
        ]
    cells: list[list[Cell]] = [[Text(part)] for part in ("embedding", "encoder", "classifier", "total")]
    for row in rows:
        parts, total = count_parts({**row.fields, "num_labels": labels}), row.runs[0].parameters
        encoder, classifier = encoder_parameters(row), parts.classifier if parts else None
        counts = {"encoder": encoder, "classifier": classifier, "total": total}
        if encoder is not None and classifier is not None:
            counts["embedding"] = total - encoder - classifier
        printed = BREAKDOWN_768[row.model]
        for line in cells:
            assert isinstance(line[0], Text)
            ours, paper = counts.get(line[0].text), printed.get(line[0].text)
            line += [
                number(ours, 0, NO_COUNT),
                number(None if ours is None else 100 * ours / total, 1, NO_COUNT),
                number(paper, 1, NOT_IN_PAPER),
                number(None if paper is None else 100 * paper / printed["total"], 0, NOT_IN_PAPER),
            ]
    note = f"{data_of(results, BREAKDOWN_GROUP)} Shares are of the whole model."
    if len(rows) == 2:
        ratios = [rows[1].runs[0].parameters / rows[0].runs[0].parameters]
        ratios.append(BREAKDOWN_768[rows[1].model]["total"] / BREAKDOWN_768[rows[0].model]["total"])
        note += f" The whole of {rows[1].model} is {ratios[0]:.3f} of Std; in the paper {ratios[1]:.2f}."
    return StudyTable(
        key="breakdown",
        title=f"Parameters by part: {title_of(results, BREAKDOWN_GROUP)}",
        note=note,
        columns=columns,
        rows=cells,
    )
