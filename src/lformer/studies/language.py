"""Which tensor block makes the best language model: bytes of Wikipedia, every row with as many layer parameters.

Every row has the same effort: its learning rate is the best of a grid on the validation part with a seed of its own;
then it is trained with three other seeds. The test part is not among the data: it is looked at once, when all is
decided (docs/language.md). Rows of the same family differ in one thing. The study comes in two sizes: `language` for a
GPU, and `language-small` for a CPU.

`language` also trains four of its rows at other sizes, with one seed and as many bytes. What is tuned at 3.2 M carries
over by muP's rule: the learning rate goes with one over the width.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from lformer.studies.scales import Scale
from lformer.studies.study import DataNeed, Group, Run, Study
from lformer.train import DataSettings, Recipe
from lformer.train.language_presets import modern

TRIAL_SEED = 1


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large the models of a study are, and how long they are trained."""

    study: str
    group: str
    title: str
    widths: dict[int, int]
    """Hidden sizes at which the layers have about as many parameters, by tube length; 1 is the dense model."""
    equal_work: int
    """Hidden size at which the dense model does as many multiply-adds for a token as T4 with L-products."""
    rates: tuple[float, ...]
    """Learning rates among which every row chooses."""
    recipe: Recipe
    validation_bytes: int | None = None
    budgets: dict[str, float] = field(default_factory=dict)
    """Rows that repeat another one, longer or shorter: their names, and how many times the steps."""
    others: "tuple[Other, ...]" = ()


@dataclass(frozen=True, kw_only=True)
class Other:
    """Another size, for the trend."""

    group: str
    title: str
    dense: int
    """Width of the dense model; that of T4 is twice as large, which gives as many layer parameters."""
    layers: int


RECOMMENDED = "T4 L-products, learned, interleaved, gated"
TWICE, HALF_AS_LONG = "dense, gated, twice the steps", f"{RECOMMENDED}, half the steps"

LARGE = Size(
    study="language",
    group="enwik8-3m",
    title="enwik8, 3.2 M layer parameters, 2,500 steps of 64 x 256 bytes",
    widths={1: 256, 2: 352, 4: 512, 8: 704},
    equal_work=280,
    rates=(1e-3, 2e-3, 4e-3),
    recipe=Recipe(epochs=1, max_steps=2_500, batch_size=64, sequence_length=256, eval_batch_size=128, eval_steps=500),
    budgets={TWICE: 2.0, HALF_AS_LONG: 0.5},
    others=(
        Other(group="enwik8-0.8m", title="enwik8, 0.8 M layer parameters, the same steps", dense=128, layers=4),
        Other(group="enwik8-13m", title="enwik8, 12.6 M layer parameters, the same steps", dense=512, layers=4),
        Other(
            group="enwik8-38m", title="enwik8, 38 M layer parameters in 12 layers, the same steps", dense=512, layers=12
        ),
    ),
)
SMALL = Size(
    study="language-small",
    group="enwik8-800k",
    title="enwik8, 0.8 M layer parameters, 800 steps of 32 x 128 bytes",
    widths={1: 128, 2: 176, 4: 256},
    equal_work=144,
    rates=(2e-3, 4e-3, 8e-3),
    recipe=Recipe(epochs=1, max_steps=800, batch_size=32, sequence_length=128, eval_steps=400, eval_tokens=100_000),
    validation_bytes=500_000,
)

MODERN: dict[str, Any] = {
    **modern(),
    "num_hidden_layers": 4,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
OF_THE_PAPER: dict[str, Any] = {"norm_placement": "post", "positional": "standard", "hidden_act": "relu"}
PAPER: dict[str, Any] = {**MODERN, **OF_THE_PAPER}
LEARNED: dict[str, Any] = {"transform": "learned"}
MIXED: dict[str, Any] = {**LEARNED, "interleave": True}
HALF: dict[str, Any] = {"initializer_range": 0.5}
GATED: dict[str, Any] = {"gated": True, "hidden_act": "silu"}
L_PRODUCTS: dict[str, Any] = {"attention_domain": "original", "activation_domain": "original"}


def matched(size: Size) -> str:
    """The name of the dense model with as many parameters, to which the others are compared."""
    return f"dense, d={size.widths[1]}"


def rows(size: Size = LARGE) -> dict[str, dict[str, Any]]:
    """The models."""
    dense = {**MODERN, "tube_length": 1, "hidden_size": size.widths[1], "num_attention_heads": 4}
    wide = size.widths[4]
    tensor = {**MODERN, "tube_length": 4, "hidden_size": wide, "num_attention_heads": 8}
    found = {
        matched(size): dense,
        f"dense, d={wide} (equal width)": {**dense, "hidden_size": wide, "num_attention_heads": 8},
        f"dense, d={size.equal_work} (equal multiply-adds)": {**dense, "hidden_size": size.equal_work},
        "dense, as in the paper": {**dense, **PAPER},
        "dense, half as large at the start": {**dense, **HALF},
        "dense, gated": {**dense, **GATED},
        f"dense, gated, d={size.equal_work} (equal multiply-adds)": {
            **dense,
            "hidden_size": size.equal_work,
            **GATED,
        },
        "dense, qk-norm": {**dense, "qk_norm": True},
        "T4, as in the paper": {**tensor, **PAPER},
        "T4": tensor,
        "T4 interleaved": {**tensor, "interleave": True},
        "T4 identity, interleaved": {**tensor, "transform": "identity", "interleave": True},
        "T4 learned": {**tensor, **LEARNED},
        "T4 learned, interleaved": {**tensor, **MIXED},
        "T4 learned-orthogonal, interleaved": {**tensor, "transform": "learned-orthogonal", "interleave": True},
        "T4 sigma original": {**tensor, "activation_domain": "original"},
        "T4 heads original": {**tensor, "attention_domain": "original"},
        "T4 L-products": {**tensor, **L_PRODUCTS},
        "T4 L-products, interleaved": {**tensor, **L_PRODUCTS, "interleave": True},
        "T4 L-products, learned": {**tensor, **L_PRODUCTS, **LEARNED},
        "T4 L-products, learned, interleaved": {**tensor, **L_PRODUCTS, **MIXED},
        RECOMMENDED: {**tensor, **L_PRODUCTS, **MIXED, **GATED},
        f"{RECOMMENDED}, rate by slice": {**tensor, **L_PRODUCTS, **MIXED, **GATED},
        "T4 L-products, learned, interleaved, half as large at the start": {**tensor, **L_PRODUCTS, **MIXED, **HALF},
        "T4 interleaved, shuffled": {**tensor, "interleave": True, "feed_forward_fold": "shuffled"},
        "T4 learned, interleaved, shuffled": {**tensor, **MIXED, "feed_forward_fold": "shuffled"},
        "T4 learned, interleaved, gated": {**tensor, **MIXED, **GATED},
        "T4 learned, interleaved, qk-norm": {**tensor, **MIXED, "qk_norm": True},
        "T4 learned, interleaved, rate by slice": {**tensor, **MIXED},
    }
    heads = {2: 4, 8: 16}
    for p in sorted(set(size.widths) & set(heads)):
        short = {**tensor, **MIXED, "tube_length": p, "hidden_size": size.widths[p], "num_attention_heads": heads[p]}
        found[f"T{p} learned, interleaved"] = short
        found[f"T{p} L-products, learned, interleaved"] = {**short, **L_PRODUCTS}
    found |= {name: found[_repeated(name)] for name in size.budgets}
    return found


def _repeated(name: str) -> str:
    """The row that one of another budget repeats."""
    return name.rpartition(", ")[0]


def other_rows(other: Other) -> dict[str, dict[str, Any]]:
    """The four models at another size, by the names of the rows that they continue; "dense" is the reference."""
    shared = {**MODERN, "num_hidden_layers": other.layers}
    dense = {**shared, "tube_length": 1, "hidden_size": other.dense, "num_attention_heads": max(4, other.dense // 64)}
    tensor = {**shared, "tube_length": 4, "hidden_size": 2 * other.dense}
    tensor["num_attention_heads"] = max(8, other.dense // 32)
    return {
        "dense": dense,
        "dense, gated": {**dense, **GATED},
        "T4, as in the paper": {**tensor, **OF_THE_PAPER},
        RECOMMENDED: {**tensor, **L_PRODUCTS, **MIXED, **GATED},
    }


# What a row changes about the recipe.
BY_SLICE = {"lr_scale": "slice"}
RECIPES: dict[str, dict[str, Any]] = {
    "T4 learned, interleaved, rate by slice": BY_SLICE,
    f"{RECOMMENDED}, rate by slice": BY_SLICE,
}


def language(scale: Scale) -> Study:
    """All rows on enwik8 at 3.2 M layer parameters, 41 M bytes of training each, and four rows from 0.8 M to 38 M."""
    return _study(scale, LARGE)


def language_small(scale: Scale) -> Study:
    """All rows on enwik8 at 0.8 M layer parameters, 3.3 M bytes of training each."""
    return _study(scale, SMALL)


def _study(scale: Scale, size: Size) -> Study:
    runs = []
    for model, fields in rows(size).items():
        rates = size.rates[: len(scale.rates)]
        if RECIPES.get(model, {}).get("lr_scale") == "slice":
            rates = tuple(rate / fields["tube_length"] for rate in rates)  # what is multiplied again in the slices
        trials = [_run(scale, size, model, fields, f"lr-{rate:g}", TRIAL_SEED, rate) for rate in rates]
        names = tuple(trial.name for trial in trials)
        final = [_run(scale, size, model, fields, f"seed-{seed}", seed, tuned_by=names) for seed in scale.seeds]
        runs += [*trials, *final]
    runs += [run for other in size.others for run in _other_runs(scale, size, other, runs)]
    data = DataNeed(
        source="enwik8",
        task="language-modeling",
        settings=DataSettings(tokenizer_kind="byte", lowercase=False),
        splits=("train", "validation"),
        validation_bytes=size.validation_bytes,
        stand_in="cldr" if scale.is_small else None,
    )
    return Study(
        name=size.study,
        scale=scale.name,
        score="bits",
        data={"enwik8": data},
        groups={
            size.group: Group(title=scale.title(size.title), data="enwik8", reference=matched(size)),
            **{
                other.group: Group(title=scale.title(other.title), data="enwik8", reference="dense")
                for other in size.others
            },
        },
        runs=runs,
    )


def _other_runs(scale: Scale, size: Size, other: Other, known: list[Run]) -> list[Run]:
    """One run a row, whose learning rate the trials of the same row at the size of the study choose."""
    found = []
    for model, fields in other_rows(other).items():
        row = matched(size) if model == "dense" else model
        trials = tuple(run.name for run in known if run.model == row and run.role == "trial")
        seed = scale.seeds[0]
        run = _run(scale, size, model, fields, f"seed-{seed}", seed, tuned_by=trials)
        found.append(replace(run, group=other.group, rate_factor=size.widths[1] / other.dense))
    return found


def _run(
    scale: Scale,
    size: Size,
    model: str,
    fields: dict[str, Any],
    label: str,
    seed: int,
    rate: float | None = None,
    tuned_by: tuple[str, ...] = (),
) -> Run:
    rate = size.rates[0] if rate is None else rate
    steps = round((size.recipe.max_steps or 0) * size.budgets.get(model, 1))
    recipe = replace(size.recipe, seed=seed, learning_rate=rate, max_steps=steps, **RECIPES.get(model, {}))
    return Run(
        group=size.group,
        model=model,
        label=label,
        data="enwik8",
        fields=scale.fields(fields),
        recipe=scale.recipe(recipe),
        tuned_by=tuned_by,
        role="result" if tuned_by else "trial",
    )
