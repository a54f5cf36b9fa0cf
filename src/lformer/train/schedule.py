"""The learning rate as a function of the step: nothing to save, nothing to restore."""

import math

from lformer.train.recipe import Recipe

WARMUP_START = 1 / 25  # of the largest rate, as torch's OneCycleLR starts


def learning_rate(recipe: Recipe, step: int, total_steps: int) -> float:
    """The rate of optimizer step `step`, counted from 0, of `total_steps`."""
    largest, last = recipe.learning_rate, min(recipe.final_learning_rate, recipe.learning_rate)
    if recipe.schedule == "constant":
        return largest
    warmup = 0 if recipe.schedule == "cosine" else int(recipe.warmup_fraction * total_steps)
    if step < warmup:
        return largest * (WARMUP_START + (1 - WARMUP_START) * step / warmup)
    progress = min(1.0, (step - warmup) / max(1, total_steps - 1 - warmup))
    if recipe.schedule == "linear":
        return largest + (last - largest) * progress
    return last + (largest - last) * (1 + math.cos(math.pi * progress)) / 2
