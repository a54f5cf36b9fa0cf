"""Which tensor block makes the best language model: bytes of Wikipedia, every row with as many layer parameters.

Every row has the same effort: its learning rate is the best of a grid on the validation part with a seed of its own;
then it is trained with three other seeds. The test part is not among the data: it is looked at once, when all is
decided. Rows of the same family differ in one thing.
"""

from dataclasses import replace
from typing import Any

from lformer.studies.scales import Scale
from lformer.studies.study import DataNeed, Group, Run, Study
from lformer.train import DataSettings, Recipe

GROUP = "enwik8-3m"
MATCHED = "dense, d=256"
TRIAL_SEED = 1
RATES = (1e-3, 2e-3, 4e-3)
RECIPE = Recipe(epochs=1, max_steps=2_500, batch_size=64, sequence_length=256, eval_batch_size=128)

MODERN: dict[str, Any] = {
    "num_hidden_layers": 4,
    "norm_placement": "pre",
    "positional": "rope",
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
PAPER: dict[str, Any] = {**MODERN, "norm_placement": "post", "positional": "standard", "hidden_act": "relu"}
DENSE: dict[str, Any] = {"tube_length": 1, "hidden_size": 256, "num_attention_heads": 4}
TENSOR: dict[str, Any] = {"tube_length": 4, "hidden_size": 512, "num_attention_heads": 8}
LEARNED: dict[str, Any] = {"transform": "learned"}
MIXED: dict[str, Any] = {**LEARNED, "interleave": True}
L_PRODUCTS: dict[str, Any] = {"attention_domain": "original", "activation_domain": "original"}


def rows() -> dict[str, dict[str, Any]]:
    """The models. A gated feed-forward network is two thirds as wide, T2 and T8 as wide as makes them as large."""
    dense, tensor = {**MODERN, **DENSE}, {**MODERN, **TENSOR}
    return {
        MATCHED: dense,
        "dense, d=512 (equal width)": {**dense, "hidden_size": 512, "num_attention_heads": 8},
        "dense, as in the paper": {**PAPER, **DENSE},
        "dense, gated": {**dense, "gated": True, "hidden_act": "silu", "intermediate_size": 680},
        "dense, qk-norm": {**dense, "qk_norm": True},
        "T4, as in the paper": {**PAPER, **TENSOR},
        "T4": tensor,
        "T4 interleaved": {**tensor, "interleave": True},
        "T4 identity, interleaved": {**tensor, "transform": "identity", "interleave": True},
        "T4 learned": {**tensor, **LEARNED},
        "T4 learned, interleaved": {**tensor, **MIXED},
        "T4 sigma original": {**tensor, "activation_domain": "original"},
        "T4 heads original": {**tensor, "attention_domain": "original"},
        "T4 L-products": {**tensor, **L_PRODUCTS},
        "T4 L-products, interleaved": {**tensor, **L_PRODUCTS, "interleave": True},
        "T4 L-products, learned": {**tensor, **L_PRODUCTS, **LEARNED},
        "T4 L-products, learned, interleaved": {**tensor, **L_PRODUCTS, **MIXED},
        "T4 interleaved, shuffled": {**tensor, "interleave": True, "feed_forward_fold": "shuffled"},
        "T4 learned, interleaved, shuffled": {**tensor, **MIXED, "feed_forward_fold": "shuffled"},
        "T4 learned, interleaved, gated": {
            **tensor,
            **MIXED,
            "gated": True,
            "hidden_act": "silu",
            "intermediate_size": 1360,
        },
        "T4 learned, interleaved, qk-norm": {**tensor, **MIXED, "qk_norm": True},
        "T2 learned, interleaved": {
            **tensor,
            **MIXED,
            "tube_length": 2,
            "hidden_size": 352,
            "num_attention_heads": 4,
        },
        "T2 L-products, learned, interleaved": {
            **tensor,
            **L_PRODUCTS,
            **MIXED,
            "tube_length": 2,
            "hidden_size": 352,
            "num_attention_heads": 4,
        },
        "T8 learned, interleaved": {
            **tensor,
            **MIXED,
            "tube_length": 8,
            "hidden_size": 704,
            "num_attention_heads": 16,
        },
    }


def language(scale: Scale) -> Study:
    """All rows on enwik8 at 3.2 M layer parameters, 41 M bytes of training each."""
    runs = []
    for model, fields in rows().items():
        trials = [_run(scale, model, fields, f"lr-{rate:g}", TRIAL_SEED, rate) for rate in RATES[: len(scale.rates)]]
        names = tuple(trial.name for trial in trials)
        final = [_run(scale, model, fields, f"seed-{seed}", seed, tuned_by=names) for seed in scale.seeds]
        runs += [*trials, *final]
    data = DataNeed(
        source="enwik8",
        task="language-modeling",
        settings=DataSettings(tokenizer_kind="byte", lowercase=False),
        splits=("train", "validation"),
        stand_in="cldr" if scale.is_small else None,
    )
    return Study(
        name="language",
        scale=scale.name,
        score="bits",
        data={"enwik8": data},
        groups={
            GROUP: Group(
                title=scale.title("enwik8, 3.2 M layer parameters, 2,500 steps of 64 x 256 bytes"),
                data="enwik8",
                reference=MATCHED,
            )
        },
        runs=runs,
    )


def _run(
    scale: Scale,
    model: str,
    fields: dict[str, Any],
    label: str,
    seed: int,
    rate: float = RATES[0],
    tuned_by: tuple[str, ...] = (),
) -> Run:
    recipe = scale.recipe(replace(RECIPE, seed=seed, learning_rate=rate))
    return Run(
        group=GROUP,
        model=model,
        label=label,
        data="enwik8",
        fields=scale.fields(fields),
        recipe=recipe,
        tuned_by=tuned_by,
        is_reported=bool(tuned_by),
    )
