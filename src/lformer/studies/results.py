"""The results of a study as one JSON file: what tables, figures and pages are made of.

Everything in it is small and plain, so that it can be kept under version control: no weights, no predictions.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lformer.settings import UserError
from lformer.train.files import write_text

FILE = "results.json"
VERSION = 2
# Points of accuracy by which two runs with the same settings and seed may differ on a GPU. Its kernels need not add up
# in a fixed order, and training makes large differences of small ones; but such runs share their first weights, the
# order of the examples and all else, so that they may not differ by more than runs with different seeds do: the paper's
# rows deviate by up to 0.31 points over seeds, two runs of such a row by 0.44. A bound that is checked, no measurement.
GPU_TOLERANCE = 0.5


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One finished run."""

    group: str
    model: str
    label: str
    seed: int
    learning_rate: float
    role: str
    """As of a `Run`: "result", "trial" or "repeat"."""
    fields: dict[str, Any]
    recipe: dict[str, Any]
    """Of the recipe that it was trained with, the fields that are not the defaults."""
    parameters: int
    layer_parameters: int
    test: dict[str, float]
    """accuracy, macro_f1, loss; of language models accuracy, bits, loss. Empty where there is no such split."""
    validation: dict[str, float]
    curve: list[dict[str, float]]
    """By epoch: "epoch", "train_loss", and on `curve_split` "loss", "accuracy" and "macro_f1"."""
    curve_split: str | None
    """None where no split was measured between the epochs."""
    confusion: list[list[int]]
    """Test examples by class (row) and predicted class (column); empty for runs that are not reported."""
    peak_memory_bytes: int | None
    train_seconds: float
    """Side by side with other runs: no measure of speed."""
    environment: int
    """Its place in `Results.environments`."""

    @property
    def name(self) -> str:
        return f"{self.group}/{self.model}/{self.label}"

    @property
    def is_reported(self) -> bool:
        return self.role == "result"

    @property
    def repeat_tolerance(self) -> float:
        """Points of accuracy by which the same run, done again, may differ: none on a CPU."""
        return 0.0 if self.peak_memory_bytes is None else GPU_TOLERANCE


@dataclass(frozen=True, kw_only=True)
class MissingRun:
    """A run that the study has and that is not finished."""

    group: str
    model: str
    label: str
    role: str
    reason: str

    @property
    def name(self) -> str:
        return f"{self.group}/{self.model}/{self.label}"

    @property
    def is_reported(self) -> bool:
        return self.role == "result"


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The speed of one row, measured alone on the machine."""

    group: str
    model: str
    epoch_seconds: float
    tokens_per_second: float
    """Places of a batch padded to the longest text that the data allow, as the paper counts."""
    inference_seconds: float
    """Over the whole test split, mean of three passes."""
    peak_memory_bytes: int | None
    device: str
    commit: str
    """Of the source that was measured."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Accuracy of `model` minus that of `other`, in points."""

    group: str
    model: str
    other: str
    seeds: int
    """Of each of the two."""
    difference: float
    low: float
    high: float
    """95 % interval of a paired bootstrap over test examples: the trained models on other examples."""
    p_value: float
    """Two-sided, like all."""
    low_over_seeds: float | None
    high_over_seeds: float | None
    """95 % interval for other examples and other seeds; None where there is one seed."""
    p_value_over_seeds: float | None


RECORDS: dict[str, type[Any]] = {
    "runs": RunRecord,
    "measurements": Measurement,
    "comparisons": Comparison,
    "missing": MissingRun,
}


@dataclass(frozen=True, kw_only=True)
class Results:
    """A study that was run, or as much of it as is finished."""

    study: str
    scale: str
    groups: dict[str, dict[str, Any]]
    """By key: "title", "data" (what the data are), "labels", "reference", "tokenizer", "vocab_size", "max_length", and
    sizes of the splits."""
    runs: list[RunRecord]
    score: str = "accuracy"
    """Or "bits", of language models, on the validation split."""
    measurements: list[Measurement] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    compressed: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """By "group/model": accuracy against parameters after compression of the trained model."""
    missing: list[MissingRun] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    """By "speed of GROUP/MODEL" or "compression of GROUP/MODEL": why it is not there."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall clock by phase."""
    tokens_to_report: float = 0.0
    """Wall clock from prepared tokens to the report: the sum of all phases but the preparation."""
    environments: list[dict[str, Any]] = field(default_factory=list)
    """In which the runs were trained: device, versions, commit, command. Each once, in the order of the runs."""

    def rows(self, group: str) -> dict[str, list[RunRecord]]:
        """The reported runs of a group by model."""
        found: dict[str, list[RunRecord]] = {}
        for run in self.runs:
            if run.group == group and run.is_reported:
                found.setdefault(run.model, []).append(run)
        return found

    def measurement(self, group: str, model: str) -> Measurement | None:
        return next((found for found in self.measurements if (found.group, found.model) == (group, model)), None)

    def write(self, path: Path) -> None:
        """Into a file, which is replaced."""
        write_text(path, _lines({"format": "lformer-study", "version": VERSION, **asdict(self)}))

    @classmethod
    def read(cls, path: Path) -> "Results":
        """From a file or the folder that holds it."""
        path = path / FILE if path.is_dir() else path
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if found.pop("format", None) != "lformer-study":
                raise ValueError("it is not the results of a study")
            if (version := found.pop("version", None)) != VERSION:
                raise ValueError(f"it is of version {version}, and this lformer reads {VERSION}")
            for name, kind in RECORDS.items():
                found[name] = [kind(**record) for record in found[name]]
            return cls(**found)
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}; give the folder of a study") from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(f"{path} does not hold the results of a study: {error}") from None


def _lines(value: dict[str, Any]) -> str:
    """JSON with one line for every run, so that a change of one is a change of one line."""
    parts = []
    for name, part in value.items():
        if isinstance(part, list):
            text = "[\n" + ",\n".join(json.dumps(item, ensure_ascii=False) for item in part) + "\n]"
        else:
            text = json.dumps(part, ensure_ascii=False)
        parts.append(f"{json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"
