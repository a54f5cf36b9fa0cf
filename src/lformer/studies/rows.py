"""The rows of a group: our runs of a model beside what the paper prints for it."""

import math
from dataclasses import dataclass
from typing import Any

from lformer.models import LFormerConfig
from lformer.studies.published import PUBLISHED, Published
from lformer.studies.results import Results, RunRecord

NOT_IN_PAPER = "not in the paper"
NO_SEED = "not run"


@dataclass(frozen=True)
class Score:
    """Mean and sample standard deviation (n - 1) of one score over runs."""

    mean: float
    std: float | None
    """None for a single run."""
    count: int

    @classmethod
    def of(cls, values: list[float]) -> "Score":
        """From fractions of one."""
        return cls.plain([100 * value for value in values])

    @classmethod
    def plain(cls, values: list[float]) -> "Score":
        """As they are."""
        mean = math.fsum(values) / len(values)
        if len(values) == 1:
            return cls(mean, None, 1)
        return cls(mean, math.sqrt(math.fsum((x - mean) ** 2 for x in values) / (len(values) - 1)), len(values))


@dataclass(frozen=True, kw_only=True)
class Row:
    """One model of a group."""

    group: str
    model: str
    runs: list[RunRecord]
    """Those that are reported, one for every seed; empty where none is finished."""
    published: Published
    """Of Nones where the paper has no such row."""
    reason: str = ""
    """Why there are no runs, or fewer than planned."""

    def score(self, name: str = "accuracy") -> Score | None:
        """A test score over the seeds; None where no run has it."""
        values = [run.test[name] for run in self.runs if name in run.test]
        return Score.of(values) if values else None

    @property
    def fields(self) -> dict[str, Any]:
        return self.runs[0].fields if self.runs else {}

    def field(self, name: str) -> Any:
        """A field of the configuration, the default where the run does not change it."""
        return self.fields.get(name, getattr(LFormerConfig, name))

    @property
    def family(self) -> str:
        """`dense`, `tensor`, or `other`: slices without a transform, Fourier mixing, weights of two factors."""
        if self.field("token_mixing") == "fourier" or self.field("linear_rank") is not None:
            return "other"
        if self.field("tube_length") == 1:
            return "dense"
        return "other" if self.field("transform") == "identity" else "tensor"


def group_rows(results: Results, group: str) -> list[Row]:
    """All models of a group, those without a finished run last."""
    published = PUBLISHED.get(group, {})
    absent = {run.model: run.reason for run in results.missing if run.group == group and run.is_reported}
    found = results.rows(group)
    return [
        Row(
            group=group,
            model=model,
            runs=found.get(model, []),
            published=published.get(model, Published()),
            reason=absent.get(model, ""),
        )
        for model in dict.fromkeys([*found, *absent])
    ]


def find_row(results: Results, group: str, model: str) -> Row | None:
    return next((row for row in group_rows(results, group) if row.model == model), None)


def best_tensor(results: Results, group: str) -> Row | None:
    """The tensor row with p=4 and the highest mean test accuracy."""
    rows = [row for row in group_rows(results, group) if row.runs and row.family == "tensor"]
    scored = [(score.mean, row) for row in rows if row.field("tube_length") == 4 and (score := row.score())]
    return max(scored, key=lambda pair: pair[0])[1] if scored else None


def best_published(group: str) -> tuple[str, Published] | None:
    """The paper's best row with p=4."""
    rows = {model: row for model, row in PUBLISHED.get(group, {}).items() if model.startswith("T4-")}
    return max(rows.items(), key=lambda item: item[1].accuracy or 0.0) if rows else None


def published_gap(group: str) -> float | None:
    """The paper's best row with p=4 minus Std, in points."""
    dense, best = PUBLISHED.get(group, {}).get("Std"), best_published(group)
    if dense is None or best is None or dense.accuracy is None or best[1].accuracy is None:
        return None
    return best[1].accuracy - dense.accuracy


def title_of(results: Results, group: str) -> str:
    return str(results.groups.get(group, {}).get("title", group))


def data_of(results: Results, *groups: str) -> str:
    """What the data of groups are, each said once."""
    said = dict.fromkeys(str(results.groups.get(group, {}).get("data", "")).strip() for group in groups)
    return " ".join(text if text.endswith(".") else f"{text}." for text in said if text)
