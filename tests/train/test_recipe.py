"""The recipe and its schedule."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from lformer import LFormerConfig, LFormerForSequenceClassification
from lformer.settings import UserError
from lformer.train import PRESETS, Recipe
from lformer.train.optimizer import make_optimizer, set_learning_rate
from lformer.train.schedule import learning_rate


def test_the_defaults_are_the_papers() -> None:
    """paper: Table "Shared training configuration" and Table "Dataset-specific training schedules"."""
    recipe = Recipe()
    assert (recipe.learning_rate, recipe.weight_decay, recipe.clip_norm) == (3e-4, 0.01, 1.0)
    assert (recipe.warmup_fraction, recipe.final_learning_rate, recipe.schedule) == (0.1, 1e-5, "onecycle")
    presets = {name: PRESETS[name]() for name in ("paper-imdb", "paper-ag-news", "paper-ag-news-768")}
    sizes = {name: (p.model["hidden_size"], p.recipe.epochs, p.recipe.batch_size) for name, p in presets.items()}
    assert sizes == {"paper-imdb": (128, 20, 128), "paper-ag-news": (256, 5, 128), "paper-ag-news-768": (768, 5, 64)}
    assert all(p.data.max_length == 128 and p.data.vocab_size == 30_000 for p in presets.values())


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_builds_its_model(name: str) -> None:
    preset = PRESETS[name]()
    assert preset.about
    LFormerConfig(**preset.model)


def test_onecycle_warms_up_in_a_line_and_falls_as_a_cosine() -> None:
    recipe, steps = Recipe(), 1000
    rates = [learning_rate(recipe, step, steps) for step in range(steps)]
    assert rates[0] == pytest.approx(3e-4 / 25)
    assert rates[100] == pytest.approx(3e-4)
    assert max(rates) == rates[100]
    rises = [after - before for before, after in pairwise(rates[:101])]
    assert max(rises) == pytest.approx(min(rises))
    middle = 100 + (steps - 1 - 100) // 2
    assert rates[middle] == pytest.approx((3e-4 + 1e-5) / 2, rel=0.01)
    assert rates[-1] == pytest.approx(1e-5)


@pytest.mark.parametrize(
    ("schedule", "first", "last"), [("cosine", 1.0, 0.1), ("linear", 0.04, 0.1), ("constant", 1, 1)]
)
def test_other_schedules(schedule: str, first: float, last: float) -> None:
    recipe = Recipe(schedule=schedule, learning_rate=1.0, final_learning_rate=0.1)
    assert learning_rate(recipe, 0, 100) == pytest.approx(first)
    assert learning_rate(recipe, 99, 100) == pytest.approx(last)


def test_a_single_step_has_a_rate() -> None:
    for schedule in ("onecycle", "cosine", "linear", "constant"):
        assert learning_rate(Recipe(schedule=schedule), 0, 1) > 0


def test_weights_of_slices_get_a_larger_rate_if_asked() -> None:
    model = LFormerForSequenceClassification(LFormerConfig(vocab_size=9, hidden_size=16, num_hidden_layers=1))
    optimizer = make_optimizer(model, Recipe(lr_scale="slice"))
    set_learning_rate(optimizer, 0.5)
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    attention = model.model.layers[0].attention
    assert rates[id(attention.output.weight)] == 0.5 * 4
    assert rates[id(attention.output.bias)] == rates[id(model.classifier.weight)] == 0.5
    assert len(rates) == len(list(model.parameters()))
    assert {group["lr"] * group["weight_decay"] for group in optimizer.param_groups} == {0.5 * 0.01}


def test_of_two_factors_the_one_that_reads_the_slice_gets_it() -> None:
    sizes = {"vocab_size": 9, "hidden_size": 16, "num_hidden_layers": 1, "linear_rank": 3}
    model = LFormerForSequenceClassification(LFormerConfig(**sizes))
    optimizer = make_optimizer(model, Recipe(lr_scale="slice"))
    factors = {id(p): group["lr_factor"] for group in optimizer.param_groups for p in group["params"]}
    assert len(factors) == len(list(model.parameters()))
    output = model.model.layers[0].attention.output
    assert (factors[id(output.right)], factors[id(output.left)]) == (4, 1)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epochs", 0),
        ("batch_size", 0),
        ("learning_rate", 0.0),
        ("schedule", "step"),
        ("mixed_precision", "fp8"),
        ("label_smoothing", 1.0),
        ("keep_checkpoints", 0),
        ("max_steps", 0),
        ("mask_probability", 0.0),
    ],
)
def test_bad_values_are_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(UserError, match=f"{field}={value!r}"):
        replace(Recipe(), **{field: value})


def test_the_step_is_adamw() -> None:
    model = torch.nn.Linear(3, 2)
    assert isinstance(make_optimizer(model, Recipe()), torch.optim.AdamW)
