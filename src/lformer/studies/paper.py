"""The paper's experiments: its three settings, every model of its tables, three seeds."""

from dataclasses import replace
from typing import Any

from lformer.studies.scales import Scale
from lformer.studies.study import Group, Run, Study
from lformer.train import Recipe

DENSE: dict[str, Any] = {"tube_length": 1, "positional": "standard"}
STRATEGIES = {
    "T4-standard": "standard",
    "T4-linear": "linear",
    "T4-exponential": "exponential",
    "T4-harmonic": "harmonic",
    "T4-learnable": "learned",  # the whole tensor: its count is the one that the paper's table has
}
T4: dict[str, dict[str, Any]] = {
    name: {"tube_length": 4, "positional": strategy} for name, strategy in STRATEGIES.items()
}
STD: dict[str, dict[str, Any]] = {"Std": DENSE, "Std-1L": {**DENSE, "num_hidden_layers": 1}}

ROWS: dict[str, dict[str, dict[str, Any]]] = {
    "imdb-128": {**STD, **T4, "T2-linear": {"tube_length": 2, "positional": "linear"}},
    "ag-news-256": {**STD, **T4},
    "ag-news-768": {"Std": DENSE, "T4-linear": T4["T4-linear"]},
}
WIDTHS: dict[str, dict[str, Any]] = {
    "imdb-128": {"hidden_size": 128},
    "ag-news-256": {"hidden_size": 256},
    "ag-news-768": {"hidden_size": 768, "num_attention_heads": 8},
}
RECIPES = {
    "imdb-128": Recipe(epochs=20),
    "ag-news-256": Recipe(epochs=5),
    "ag-news-768": Recipe(epochs=5, batch_size=64, eval_batch_size=128),
}
GROUPS = {
    "imdb-128": Group(title="IMDB, d=128, 20 epochs", data="imdb"),
    "ag-news-256": Group(title="AG News, d=256, 5 epochs", data="ag_news"),
    "ag-news-768": Group(title="AG News, d=768, 5 epochs", data="ag_news"),
}
REPEATED = ("imdb-128", "T4-linear")


def paper(scale: Scale) -> Study:
    """Every row of the paper's tables with the paper's recipe, and one run a second time."""
    runs = [
        Run(
            group=group,
            model=model,
            label=f"seed-{seed}",
            data=GROUPS[group].data,
            fields=scale.fields({**WIDTHS[group], **fields}),
            recipe=_recipe(scale, group, seed),
        )
        for group, rows in ROWS.items()
        for model, fields in rows.items()
        for seed in scale.seeds
    ]
    first = next(run for run in runs if (run.group, run.model) == REPEATED)
    return Study(
        name="paper",
        scale=scale.name,
        data={name: scale.data(name) for name in ("imdb", "ag_news")},
        groups={name: replace(group, title=scale.title(group.title)) for name, group in GROUPS.items()},
        runs=[*runs, replace(first, label=f"{first.label}-again", role="repeat")],
        comparisons=[
            *((group, model, "Std") for group, rows in ROWS.items() for model in rows if model != "Std"),
            *((group, "T4-linear", "Std-1L") for group, rows in ROWS.items() if "Std-1L" in rows),
        ],
    )


def _recipe(scale: Scale, group: str, seed: int) -> Recipe:
    # The paper shows the curves of its first seed, and measuring them takes longer than the training.
    return scale.recipe(replace(RECIPES[group], seed=seed, test_every_epoch=seed == scale.seeds[0]))
