"""The learning rate of a row: that of the trial with the best validation score."""

from pathlib import Path

from lformer.settings import UserError
from lformer.studies.study import Run, Study
from lformer.train import RunFolder


def chosen_rate(study: Study, runs: Path, run: Run) -> float:
    """What the trials of a tuned run choose, as far as they are finished."""
    trial = best_trial(study, runs, run)
    if trial is None:
        raise UserError("none of the trials that choose its learning rate is finished")
    return trial.recipe.learning_rate * run.rate_factor


def best_trial(study: Study, runs: Path, run: Run) -> Run | None:
    """The finished trial with the best score; with the smaller learning rate of two that are as good."""
    sign = -1 if study.score == "bits" else 1
    scores: dict[str, float] = {}
    for name in run.tuned_by:
        folder = RunFolder(runs / name)
        if folder.is_finished:
            scores[name] = sign * folder.result()["validation"][study.score]
    trials = [study.run(name) for name in scores]
    return max(trials, key=lambda trial: (scores[trial.name], -trial.recipe.learning_rate), default=None)


def other_rate(study: Study, runs: Path, run: Run) -> str:
    """Why a tuned run that was started cannot stand in its row: a trial that was finished later chose another rate.

    Empty if it can.
    """
    folder = RunFolder(runs / run.name)
    if not run.tuned_by or not folder.is_started or best_trial(study, runs, run) is None:
        return ""
    found, chosen = folder.request()["recipe"]["learning_rate"], chosen_rate(study, runs, run)
    if found == chosen:
        return ""
    return (
        f"it was trained with learning rate {found:g}, but the trials of its row now choose {chosen:g}; "
        f"delete {folder.path} to train it again"
    )
