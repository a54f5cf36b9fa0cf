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
    trials: list[RunRecord]
    """Those that chose its learning rate."""
    published: Published
    """Of Nones where the paper has no such row."""
    reason: str = ""
    """Why there are no runs, or fewer than planned."""

    def score(self, name: str = "accuracy") -> Score | None:
        """A test score over the seeds; None where no run has it."""
        values = [run.test[name] for run in self.runs if name in run.test]
        return Score.of(values) if values else None

    @property
    def validation(self) -> float | None:
        """The validation accuracy of the best trial; None of a row whose learning rate was not chosen by trials."""
        return max((run.validation["accuracy"] for run in self.trials if "accuracy" in run.validation), default=None)

    @property
    def fields(self) -> dict[str, Any]:
        return self.runs[0].fields if self.runs else {}

    def field(self, name: str) -> Any:
        """A field of the configuration, the default where the run does not change it."""
        return self.fields.get(name, getattr(LFormerConfig, name))

    @property
    def family(self) -> str:
        """`fourier` (mixing), `low rank` (weights of two factors), `dense`, `slices` (no transform) or `tensor`."""
        if self.field("token_mixing") == "fourier":
            return "fourier"
        if self.field("linear_rank") is not None:
            return "low rank"
        if self.field("tube_length") == 1:
            return "dense"
        return "slices" if self.field("transform") == "identity" else "tensor"


def group_rows(results: Results, group: str) -> list[Row]:
    """All models of a group, those without a finished run last."""
    published = PUBLISHED.get(group, {})
    absent = [run for run in results.missing if run.group == group and run.is_reported]
    reasons = {run.model: reason_of(results, group, run.model) for run in absent}
    found = results.rows(group)
    return [
        Row(
            group=group,
            model=model,
            runs=found.get(model, []),
            trials=[run for run in results.runs if (run.group, run.model, run.role) == (group, model, "trial")],
            published=published.get(model, Published()),
            reason=reasons.get(model, ""),
        )
        for model in dict.fromkeys([*found, *reasons])
    ]


def reason_of(results: Results, group: str, model: str, role: str = "result", label: str | None = None) -> str:
    """Why runs of a row are missing, each reason once; empty where none is."""
    return "; ".join(
        dict.fromkeys(
            run.reason
            for run in results.missing
            if (run.group, run.model, run.role) == (group, model, role) and label in (None, run.label)
        )
    )


def find_row(results: Results, group: str, model: str) -> Row | None:
    return next((row for row in group_rows(results, group) if row.model == model), None)


def why_not_measured(results: Results, row: Row) -> str:
    """The reason why there is no speed of a row."""
    failure = results.failures.get(f"speed of {row.group}/{row.model}", "not measured")
    return failure if row.runs else row.reason or NO_SEED


def best_tensor(results: Results, group: str) -> Row | None:
    """The tensor row with p=4 that is best on validation texts; without trials on the test split, as in the paper."""
    rows = _short_tensors(results, group)
    tried = [(row.validation, row) for row in rows if row.validation is not None]
    scored = tried or [(score.mean, row) for row in rows if (score := row.score())]
    return max(scored, key=lambda pair: pair[0])[1] if scored else None


def best_note(results: Results, *groups: str) -> str:
    """How the best tensor row was chosen, for the words beside whatever shows it."""
    found = {any(row.validation is not None for row in _short_tensors(results, group)) for group in groups}
    notes = {
        True: "The best T4 is the row with p=4 whose best trial has the highest accuracy on validation texts: the test"
        " split has no part in the choice.",
        False: "The best T4 is the row with p=4 and the highest mean accuracy on the test split, as in the paper: the"
        " choice among several rows flatters it.",
    }
    return " ".join(notes[is_tried] for is_tried in sorted(found, reverse=True))


def _short_tensors(results: Results, group: str) -> list[Row]:
    rows = [row for row in group_rows(results, group) if row.runs and row.family == "tensor"]
    return [row for row in rows if row.field("tube_length") == 4]


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
