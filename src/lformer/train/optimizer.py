"""AdamW over the parameters of a model, with the learning rate of each group set at every step."""

import torch
from torch import nn

from lformer.nn import LLinear, LowRankLLinear
from lformer.train.recipe import Recipe


def make_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.AdamW:
    """One group of parameters for each factor of the learning rate; `lr_factor` in the group says which.

    The fused implementation is one pass over memory, on the CPU too.
    """
    factors = _factors(model, recipe)
    groups = [
        {
            "params": [p for name, p in model.named_parameters() if factors[name] == factor],
            "lr_factor": factor,
            "weight_decay": recipe.weight_decay / factor,  # AdamW multiplies it by the rate: the decay stays the same
        }
        for factor in sorted(set(factors.values()))
    ]
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, fused=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate * group["lr_factor"]


def _factors(model: nn.Module, recipe: Recipe) -> dict[str, float]:
    """The factor of every parameter's learning rate, by name."""
    factors = {name: 1.0 for name, _ in model.named_parameters()}
    if recipe.lr_scale == "slice":
        # Adam's steps do not shrink with the fan-in, so that the rate has to: 1/M for a slice, against 1/D.
        for name, module in model.named_modules():
            if isinstance(module, LLinear):
                reads_slices = "right" if isinstance(module, LowRankLLinear) else "weight"
                factors[f"{name}.{reads_slices}"] = float(module.tube_length)
    return factors
