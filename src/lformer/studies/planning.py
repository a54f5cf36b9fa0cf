"""Which runs of a study are asked for, and how long they are."""

import fnmatch

from lformer.data import Prepared
from lformer.settings import UserError
from lformer.studies.study import Run, Study


def wanted_runs(study: Study, patterns: tuple[str, ...]) -> list[Run]:
    """The runs whose name matches a pattern, and the trials that they wait for."""
    wanted = [run for run in study.runs if any(fnmatch.fnmatch(run.name, each) for each in patterns)]
    if not wanted:
        asked = " ".join(f"--only {each!r}" for each in patterns)
        raise UserError(f"no run of the study matches {asked}; a name is {study.runs[0].name}")
    needed = {name for run in wanted for name in run.tuned_by}
    return wanted + [run for run in study.runs if run.name in needed and run not in wanted]


def steps_of(run: Run, prepared: Prepared) -> int:
    """Its optimizer steps."""
    examples = len(prepared.split("train"))
    if prepared.task == "language-modeling":
        examples = len(prepared.split("train").tokens) // run.recipe.sequence_length
    per_epoch = -(-examples // run.recipe.batch_size)
    return min(run.recipe.max_steps or run.recipe.epochs * per_epoch, run.recipe.epochs * per_epoch)


def cost_of(run: Run, prepared: Prepared) -> float:
    """Roughly its time; a trial comes before what waits for it."""
    cost = steps_of(run, prepared) * run.recipe.batch_size * (256 + run.fields["hidden_size"])
    return cost if run.tuned_by else 1e6 * cost
