"""What a study is: named runs on named data, grouped into the tables in which they are compared."""

from dataclasses import dataclass, field
from typing import Any

from lformer.train import DataSettings, Recipe


@dataclass(frozen=True, kw_only=True)
class DataNeed:
    """A prepared data set that runs of a study train on."""

    source: str
    """A name that `load_data` knows; with --data-dir the folder of that name there."""
    task: str = "classification"
    splits: tuple[str, ...] | None = None
    """Those that are prepared; None is all there are."""
    settings: DataSettings = field(default_factory=DataSettings)
    rows: int | None = None
    """Training examples that are used, the first of every class; half as many of the other splits. None is all."""
    validation_bytes: int | None = None
    """Of a text, how much of its validation part is used, from the beginning; None is all."""
    stand_in: str | None = None
    """A source that needs no network, for a miniature where the data are not at hand."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Runs that share data and width, and so a table."""

    title: str
    data: str
    """The key of the data in the study, for all runs of the group that are reported."""
    reference: str = "Std"
    """The row with which the others are compared."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training."""

    group: str
    model: str
    """The row of the group's table."""
    label: str
    """What tells it from other runs of the row, such as "seed-42"."""
    data: str
    fields: dict[str, Any]
    """Of LFormerConfig, where they are not the defaults."""
    recipe: Recipe
    tuned_by: tuple[str, ...] = ()
    """Names of runs; this one takes the learning rate of the one with the best validation score."""
    rate_factor: float = 1.0
    """What that learning rate is multiplied by, where the trials are of a model of another width."""
    role: str = "result"
    """"result" (part of the row's mean), "trial" (chooses a learning rate) or "repeat" (of another run)."""

    @property
    def name(self) -> str:
        return f"{self.group}/{self.model}/{self.label}"

    @property
    def is_reported(self) -> bool:
        return self.role == "result"


@dataclass(frozen=True, kw_only=True)
class Study:
    """Everything that has to be run for a set of tables."""

    name: str
    scale: str
    data: dict[str, DataNeed]
    groups: dict[str, Group]
    runs: list[Run]
    comparisons: list[tuple[str, str, str]] = field(default_factory=list)
    """(group, model, other model): pairs whose difference is tested for significance."""
    score: str = "accuracy"
    """What learning rates are chosen by: "accuracy", or "bits" of a language model, of which fewer are better."""
    compressed: list[tuple[str, str]] = field(default_factory=list)
    """(group, model): dense models that are compressed after training."""
    is_timed: bool = True
    """Whether the speed of every row is measured, alone on the machine."""

    def __post_init__(self) -> None:
        names = [run.name for run in self.runs]
        assert len(set(names)) == len(names), "two runs have one name"
        assert all(other in names for run in self.runs for other in run.tuned_by), "a run is tuned by none that exists"

    def run(self, name: str) -> Run:
        return next(run for run in self.runs if run.name == name)

    def rows(self, group: str) -> list[str]:
        """The models of a group that are reported, in the order of the study."""
        return list(dict.fromkeys(run.model for run in self.runs if run.group == group and run.is_reported))
