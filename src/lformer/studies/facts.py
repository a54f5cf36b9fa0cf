"""What a finished run has to say: read from its folder, nothing is computed again."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lformer.data import Prepared
from lformer.settings import UserError
from lformer.train import RunFolder
from lformer.train.metrics import confusion_matrix


@dataclass(frozen=True)
class RunFacts:
    """One run, ready to be compared with others."""

    name: str
    """The folder's name; with its parent's where two runs have the same."""
    path: Path
    request: dict[str, Any]
    environment: dict[str, Any]
    result: dict[str, Any]
    losses: list[tuple[int, float]]
    """Training loss by optimizer step."""
    accuracies: list[tuple[int, float]]
    """Validation accuracy by epoch."""
    confusion: NDArray[np.int64] | None
    """Test examples by class (row) and predicted class (column); None where there are no predictions or no labels."""
    label_names: list[str]

    def score(self, name: str, split: str = "test") -> float | None:
        """A final score, None where the run has none of that name."""
        return self.result.get(split, {}).get(name)


def collect(runs: list[Path]) -> list[RunFacts]:
    """The facts of finished runs, in the order given."""
    shared = {name for name, count in Counter(run.resolve().name for run in runs).items() if count > 1}
    return [_collect(run, with_parent=run.resolve().name in shared) for run in runs]


def _collect(run: Path, with_parent: bool) -> RunFacts:
    folder = RunFolder(run)
    request, result = folder.request(), folder.result()
    lines = list(folder.metrics())
    validation = {
        line["epoch"]: line["accuracy"]
        for line in lines
        if line["kind"] == "evaluation" and line["split"] == "validation" and "accuracy" in line
    }
    confusion, label_names = _confusion(run, request)
    name = run.resolve().name
    return RunFacts(
        name=f"{run.resolve().parent.name}/{name}" if with_parent else name,
        path=run,
        request=request,
        environment=folder.environment(),
        result=result,
        losses=[(line["step"], line["loss"]) for line in lines if line["kind"] == "train"],
        accuracies=sorted(validation.items()),
        confusion=confusion,
        label_names=label_names,
    )


def _confusion(run: Path, request: dict[str, Any]) -> tuple[NDArray[np.int64] | None, list[str]]:
    """From the predictions of the run and the labels of its token cache, if both are still there and fit."""
    path = run / "predictions" / "test.npy"
    cache = _cache(run, request)
    if not path.is_file() or cache is None or "test" not in cache.splits:
        return None, []
    labels = cache.split("test").labels
    try:
        predictions = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{path} is not an array: {error}") from None
    if labels is None or predictions.shape != labels.shape:
        return None, []
    names = cache.label_names
    return confusion_matrix(labels, predictions.astype(np.int64), len(names)), names


def _cache(run: Path, request: dict[str, Any]) -> Prepared | None:
    """The token cache of the run: where it was, or beside or inside the run where all was moved together."""
    for place in (Path(request["data"]["path"]), run / "data", run.parent / "data"):
        try:
            cache = Prepared.open(place)
        except UserError:
            continue
        if cache.manifest["fingerprint"] == request["data"]["fingerprint"]:
            return cache
    return None
