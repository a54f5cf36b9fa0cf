"""What the paper does not compare with: baselines of the same size, and each part of the tensor layer changed alone.

Every row has the same effort: its learning rate is the best of a grid on validation texts held out of the training
split, with one seed; then it is trained on the whole training split with three seeds and measured on the test split.

Training is shorter than the paper's: with tuned learning rates 20 epochs of IMDB only learn it by heart. AG News, whose
texts are mostly short, is trained on batches of similar length. Tests are on larger batches, so that they
are sooner done. All of it holds for every row alike.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from lformer.studies.paper import GROUPS
from lformer.studies.scales import Scale
from lformer.studies.study import Run, Study
from lformer.train import Recipe

VALIDATION = 0.1
# The groups have other names than the paper's: with tuned learning rates they are not what it reports.
BASES = {"imdb-128-tuned": "imdb-128", "ag-news-256-tuned": "ag-news-256"}
WIDTHS = {"imdb-128-tuned": 128, "ag-news-256-tuned": 256}
TITLES = {
    "imdb-128-tuned": "IMDB, d=128, 4 epochs, learning rates tuned",
    "ag-news-256-tuned": "AG News, d=256, 2 epochs, learning rates tuned",
}
RECIPES = {
    "imdb-128-tuned": Recipe(epochs=4, eval_batch_size=1024),
    "ag-news-256-tuned": Recipe(epochs=2, bucket=True, eval_batch_size=1024),
}
MATCHED = "Dense, half as wide"

TENSOR: dict[str, Any] = {"tube_length": 4, "positional": "standard"}
DENSE: dict[str, Any] = {"tube_length": 1, "positional": "standard"}
TRANSFORMS = ("dst", "hartley", "hadamard", "haar", "dft", "random", "learned", "learned-orthogonal")


def controls(scale: Scale) -> Study:
    """All rows on IMDB at d=128 and AG News at d=256, each with a tuned learning rate."""
    runs = [
        run
        for group, width in WIDTHS.items()
        for model, fields in rows(width).items()
        for run in _tuned(scale, group, model, scale.fields(fields))
    ]
    data = {GROUPS[BASES[group]].data: scale.data(GROUPS[BASES[group]].data) for group in WIDTHS}
    trials = {
        _trial_data(group): scale.data(GROUPS[BASES[group]].data, validation_fraction=VALIDATION) for group in WIDTHS
    }
    models = list(rows(128))
    return Study(
        name="controls",
        scale=scale.name,
        data={**data, **trials},
        groups={group: replace(GROUPS[BASES[group]], title=scale.title(title)) for group, title in TITLES.items()},
        runs=runs,
        comparisons=[
            (group, model, other)
            for group in WIDTHS
            for other in (MATCHED, "Std", "T4")
            for model in models
            if model != other
        ],
        compressed=[(group, "Std") for group in WIDTHS],
        is_timed=False,
    )


def rows(width: int) -> dict[str, dict[str, Any]]:
    """The models at that width. "Same size" is the number of parameters in the layers of T4."""
    tensor = {**TENSOR, "hidden_size": width}
    dense = {**DENSE, "hidden_size": width}
    return {
        "Std": dense,
        # of the same size as T4
        MATCHED: {**dense, "hidden_size": width // 2},
        "Dense, one layer": {**dense, "num_hidden_layers": 1},
        "Dense, shared layers": {**dense, "share_layers": True},
        "Dense, low rank": {**dense, "linear_rank": 3 * width // 16},
        "FNet": {**dense, "token_mixing": "fourier", "intermediate_size": fourier_intermediate_size(width)},
        # the paper's layer, and each of its choices changed
        "T4": tensor,
        "T4 identity (block-diagonal)": {**tensor, "transform": "identity"},
        "T4 block scope": {**tensor, "transform_scope": "block"},
        "T4 sigma in the original domain": {**tensor, "activation_domain": "original"},
        **{f"T4 {name}": {**tensor, "transform": name} for name in TRANSFORMS},
        "T4 interleaved": {**tensor, "interleave": True},
        "T4 learned, interleaved": {**tensor, "transform": "learned", "interleave": True},
        "T2": {**tensor, "tube_length": 2},
        "T8": {**tensor, "tube_length": 8, "num_attention_heads": 8},
        "T16": {**tensor, "tube_length": 16, "num_attention_heads": 16},
    }


def fourier_intermediate_size(width: int) -> int:
    """The feed-forward width at which a layer without attention weights is as large as a T4 layer.

    T4 has 3 d^2 + 13 d parameters a layer; a Fourier layer has 2 d F + F + d in the feed-forward and 4 d in its norms.
    """
    return (3 * width * width + 8 * width) // (2 * width + 1)


def _tuned(scale: Scale, group: str, model: str, fields: dict[str, Any]) -> Iterator[Run]:
    """The trials that choose a learning rate, then the runs that are reported."""
    trials = [
        Run(
            group=group,
            model=model,
            label=f"lr-{rate:g}",
            data=_trial_data(group),
            fields=fields,
            recipe=_recipe(scale, group, learning_rate=rate, seed=scale.seeds[0]),
            role="trial",
        )
        for rate in scale.rates
    ]
    yield from trials
    for seed in scale.seeds:
        yield Run(
            group=group,
            model=model,
            label=f"seed-{seed}",
            data=GROUPS[BASES[group]].data,
            fields=fields,
            recipe=_recipe(scale, group, seed=seed),
            tuned_by=tuple(trial.name for trial in trials),
        )


def _recipe(scale: Scale, group: str, **changes: Any) -> Recipe:
    return scale.recipe(replace(RECIPES[group], **changes))


def _trial_data(group: str) -> str:
    return f"{GROUPS[BASES[group]].data}-trials"
