"""From the folders of a study's runs to its results."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lformer.data import Prepared
from lformer.settings import UserError
from lformer.studies.results import Comparison, Measurement, RunRecord
from lformer.studies.significance import over_seeds, paired_bootstrap
from lformer.studies.study import Run, Study
from lformer.train import Recipe, RunFolder
from lformer.train.metrics import confusion_matrix

SAVING = ("checkpoint_steps", "keep_checkpoints")  # when a run is saved does not change it
SCORES = ("accuracy", "macro_f1", "loss", "bits")


def record(run: Run, folder: RunFolder, prepared: Prepared, environments: list[dict[str, Any]]) -> RunRecord:
    """What a finished run has to say; its environment is added to those that are known."""
    result, request, environment = folder.result(), folder.request(), folder.environment()
    if environment not in environments:
        environments.append(environment)
    lines = list(folder.metrics())
    split = _curve_split(lines)
    return RunRecord(
        group=run.group,
        model=run.model,
        label=run.label,
        seed=request["recipe"]["seed"],
        learning_rate=request["recipe"]["learning_rate"],
        role=run.role,
        fields=run.fields,
        recipe=changed_fields(request["recipe"]),
        parameters=result["parameters"],
        layer_parameters=result["layer_parameters"],
        test=_scores(result, "test"),
        validation=_scores(result, "validation"),
        curve=_curve(lines, split) if split else [],
        curve_split=split,
        confusion=_confusion(folder, prepared) if run.is_reported and prepared.task == "classification" else [],
        peak_memory_bytes=result["peak_memory_bytes"],
        train_seconds=result["train_seconds"],
        environment=environments.index(environment),
    )


def changed_fields(recipe: dict[str, Any]) -> dict[str, Any]:
    """The fields of a recipe that are not the defaults, but for those on which no score depends."""
    defaults = asdict(Recipe())
    return {name: value for name, value in recipe.items() if value != defaults.get(name) and name not in SAVING}


def trained_the_same(recipe: dict[str, Any], other: dict[str, Any], but: list[str]) -> bool:
    """Whether two recipes, one of which may be of an older version with fewer fields, make the same run."""
    shared = (recipe.keys() & other.keys()) - {*SAVING, *but}
    return all(recipe[name] == other[name] for name in shared)


def compare(study: Study, finished: list[Run], runs: Path, prepared: dict[str, Prepared]) -> list[Comparison]:
    """The differences that the study asks for, by the predictions of all seeds that both rows have."""
    found = []
    for group, model, other in study.comparisons:
        labels = np.asarray(prepared[study.groups[group].data].split("test").labels)
        both = [_correct(finished, runs, group, name, labels) for name in (model, other)]
        shared = sorted(both[0].keys() & both[1].keys())
        if not shared:
            continue
        pair = [np.stack([correct[seed] for seed in shared]) for correct in both]
        difference, low, high, p_value = paired_bootstrap(*pair)
        low_over_seeds, high_over_seeds, p_value_over_seeds = over_seeds(*pair) or (None, None, None)
        found.append(
            Comparison(
                group=group,
                model=model,
                other=other,
                seeds=len(shared),
                difference=difference,
                low=low,
                high=high,
                p_value=p_value,
                low_over_seeds=low_over_seeds,
                high_over_seeds=high_over_seeds,
                p_value_over_seeds=p_value_over_seeds,
            )
        )
    return found


def measurements(study: Study, folder: Path) -> list[Measurement]:
    """The speeds that were measured."""
    return [
        _measurement(path, group, model)
        for group in study.groups
        for model in study.rows(group)
        if (path := measurement_file(folder, group, model)).is_file()
    ]


def _measurement(path: Path, group: str, model: str) -> Measurement:
    try:
        return Measurement(group=group, model=model, **json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        raise UserError(f"{path} is damaged or of another version: delete it to measure again") from None


def measurement_file(folder: Path, group: str, model: str) -> Path:
    return folder / f"{group}--{model.replace('/', '-')}.json"


def require_sound(folder: RunFolder) -> None:
    """Refuse what a finished run left if it cannot be read: before hours of training, and not after them."""
    try:
        if folder.is_finished and "macro_f1" in folder.result().get("test", {}):
            _predictions(folder)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{folder.path} is damaged ({error}): delete it to train it again") from None


def _scores(result: dict[str, Any], split: str) -> dict[str, float]:
    return {name: value for name, value in result.get(split, {}).items() if name in SCORES}


def _curve_split(lines: list[dict[str, Any]]) -> str | None:
    """The split that was measured after every epoch: more often than once, which is the end."""
    for split in ("validation", "test"):
        epochs = {line["epoch"] for line in lines if line["kind"] == "evaluation" and line["split"] == split}
        if len(epochs) > 1:
            return split
    return None


def _curve(lines: list[dict[str, Any]], split: str) -> list[dict[str, float]]:
    points: dict[int, dict[str, float]] = {}
    losses: list[float] = []
    for line in lines:
        if line["kind"] == "train":
            losses.append(line["loss"])
        elif line["kind"] == "evaluation" and line["split"] == split and line["epoch"] not in points:
            scores = {name: line[name] for name in SCORES if name in line}
            mean = {"train_loss": float(np.mean(losses))} if losses else {}
            points[line["epoch"]] = {"epoch": line["epoch"], **mean, **scores}
            losses = []
    return [{name: round(value, 6) for name, value in points[epoch].items()} for epoch in sorted(points)]


def _predictions(folder: RunFolder) -> NDArray[np.int64]:
    found: NDArray[np.int64] = np.load(folder.path / "predictions" / "test.npy", allow_pickle=False).astype(np.int64)
    return found


def _confusion(folder: RunFolder, prepared: Prepared) -> list[list[int]]:
    labels = np.asarray(prepared.split("test").labels)
    return confusion_matrix(labels, _predictions(folder), len(prepared.label_names)).tolist()


def _correct(
    finished: list[Run], runs: Path, group: str, model: str, labels: NDArray[Any]
) -> dict[str, NDArray[np.bool_]]:
    """Which test examples each finished run of a row got right, by its label."""
    row = [run for run in finished if (run.group, run.model) == (group, model) and run.is_reported]
    return {run.label: _predictions(RunFolder(runs / run.name)) == labels for run in row}
