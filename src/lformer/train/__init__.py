"""Training on accelerate: recipe, tasks, loop, checkpoints, and the folder of a run."""

from lformer.train.evaluation import Evaluation, evaluate
from lformer.train.loop import Diverged, Interrupted
from lformer.train.presets import PRESETS, DataSettings, Preset
from lformer.train.recipe import Recipe
from lformer.train.run_folder import RunFolder
from lformer.train.runner import train
from lformer.train.tasks import TASKS, make_task

__all__ = [
    "PRESETS",
    "TASKS",
    "DataSettings",
    "Diverged",
    "Evaluation",
    "Interrupted",
    "Preset",
    "Recipe",
    "RunFolder",
    "evaluate",
    "make_task",
    "train",
]
