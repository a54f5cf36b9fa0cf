"""Results of studies that nobody ran: made up by a seeded generator, with everything that real ones may lack."""

import random
from dataclasses import replace
from typing import Any

from lformer.studies import controls, language
from lformer.studies.published import PUBLISHED
from lformer.studies.results import Comparison, Measurement, MissingRun, Results, RunRecord
from lformer.studies.significance import SMALLEST_P_VALUE
from lformer.studies.tables.parameters import count_parts

NASTY = 'T4 <b>&"wide"_50%$x$|\\{#~^}'
SEEDS = (42, 123, 7)
ENVIRONMENT = {
    "command": "lformer reproduce paper --out runs/paper",
    "commit": "0123456789abcdef0123456789abcdef01234567",
    "python": "3.11.2",
    "packages": {"lformer": "0.1.0", "torch": "2.8.0", "transformers": "5.0.0", "triton": None},
    "device": "NVIDIA H200",
    "cuda": "12.8",
}
TOKENS = {"tokenizer": "bpe", "vocab_size": 30_000, "max_length": 128}
GROUPS: dict[str, dict[str, Any]] = {
    "imdb-128": {
        "title": "IMDB, d=128",
        "data": "IMDB: 25,000 training and 25,000 test reviews.",
        "labels": ["neg", "pos"],
        "reference": "Std",
        "train": 25_000,
        "test": 25_000,
        **TOKENS,
    },
    "ag-news-256": {
        "title": "AG News, d=256, 71k subset",
        "data": "AG News, 71k subset: 71,292 of the 120,000 training texts, and 7,600 test texts",
        "labels": ["World", "Sports", "Business", "Sci/Tech"],
        "reference": "Std",
        "train": 71_292,
        "test": 7_600,
        **TOKENS,
    },
}
GROUPS["ag-news-768"] = {**GROUPS["ag-news-256"], "title": "AG News, d=768, 71k subset"}
for _name in ("imdb-128", "ag-news-256"):
    GROUPS[f"{_name}-tuned"] = {**GROUPS[_name], "title": f"{GROUPS[_name]['title']}, tuned"}
PAPER = ("imdb-128", "ag-news-256", "ag-news-768")
TUNED = ("imdb-128-tuned", "ag-news-256-tuned")
HEADS = {128: 4, 256: 4, 768: 8}


def fields_of(model: str, width: int) -> dict[str, Any]:
    positional = model.partition("-")[2]
    fields: dict[str, Any] = {"hidden_size": width, "num_attention_heads": HEADS[width]}
    if model.startswith("Std"):
        return {**fields, "tube_length": 1, **({"num_hidden_layers": 1} if model == "Std-1L" else {})}
    tube_length = int(model[1:].partition("-")[0]) if model[1:2].isdigit() and "-" in model else 4
    known = {"learnable": "learned", "linear": "linear", "harmonic": "harmonic", "exponential": "exponential"}
    return {**fields, "tube_length": tube_length, "positional": known.get(positional, "standard")}


def record(group: str, model: str, label: str, accuracy: float, fields: dict[str, Any], **changes: Any) -> RunRecord:
    """A run of a classifier with an accuracy; the other figures follow from it."""
    about = GROUPS[group]
    parts = count_parts({**fields, "num_labels": len(about["labels"])})
    assert parts is not None
    epochs, classes, per_class = 5, len(about["labels"]), about["test"] // len(about["labels"])
    right = round(accuracy * per_class)
    wrong = per_class - right
    confusion = [[0] * classes for _ in range(classes)]
    for i in range(classes):
        confusion[i][i] = right
        confusion[i][(i + 1) % classes] += wrong
    curve = [
        {
            "epoch": float(epoch),
            "train_loss": 0.9 * 0.6**epoch,
            "loss": 0.5 * 0.8**epoch,
            "accuracy": accuracy - 0.1 * 0.5**epoch,
            "macro_f1": accuracy - 0.11 * 0.5**epoch,
        }
        for epoch in range(1, epochs + 1)
    ]
    values: dict[str, Any] = {
        "seed": int(label.removeprefix("seed-")) if label.removeprefix("seed-").isdigit() else 42,
        "learning_rate": 3e-4,
        "role": "result",
        "recipe": {"epochs": epochs},
        "parameters": parts.embedding + parts.layers + parts.beside + parts.classifier,
        "layer_parameters": parts.layers,
        "test": {"accuracy": accuracy, "macro_f1": accuracy - 0.001, "loss": 1 - accuracy},
        "validation": {},
        "curve": curve,
        "curve_split": "test",
        "confusion": confusion,
        "peak_memory_bytes": 500_000_000,
        "train_seconds": 60.0,
        "environment": 0,
        **changes,
    }
    return RunRecord(group=group, model=model, label=label, fields=fields, **values)


def missing(group: str, model: str, label: str, reason: str, role: str = "result") -> MissingRun:
    return MissingRun(group=group, model=model, label=label, role=role, reason=reason)


def comparison(group: str, model: str, other: str, difference: float, half: float, p_value: float) -> Comparison:
    """Over seeds the interval is twice as wide, and the p-value three times as large."""
    return Comparison(
        group=group,
        model=model,
        other=other,
        seeds=3,
        difference=difference,
        low=difference - half,
        high=difference + half,
        p_value=p_value,
        low_over_seeds=difference - 2 * half,
        high_over_seeds=difference + 2 * half,
        p_value_over_seeds=min(1.0, 3 * p_value),
    )


def measurement(group: str, model: str, **changes: Any) -> Measurement:
    values: dict[str, Any] = {
        "epoch_seconds": 0.4 if model == "Std" else 0.3,
        "tokens_per_second": 8_000_000.0 if model == "Std" else 10_666_670.0,
        "inference_seconds": 0.05 if model == "Std" else 0.04,
        "peak_memory_bytes": None if group == "imdb-128" else 900_000_000,
        "device": "NVIDIA H200",
        "commit": ENVIRONMENT["commit"],
        **changes,
    }
    return Measurement(group=group, model=model, **values)


def paper_results() -> Results:
    """As the paper's study would come out: a nasty name, a row of one seed, a row without runs, curves that lack."""
    chance = random.Random(0)
    runs = []
    for group in PAPER:
        width = int(group.rpartition("-")[2])
        recipe = {"epochs": 20} if group == "imdb-128" else {}
        if width == 768:
            recipe = {"batch_size": 64, "eval_batch_size": 128}
        for model, published in PUBLISHED[group].items():
            assert published.accuracy is not None
            if (group, model) == ("ag-news-256", "T4-harmonic"):
                continue  # missing
            seeds = SEEDS[:1] if (group, model) == ("imdb-128", "T4-exponential") else SEEDS
            for seed in seeds:
                accuracy = (published.accuracy - 1 + chance.gauss(0, 0.2)) / 100
                changes: dict[str, Any] = {"recipe": {**recipe, "seed": seed}}
                if (group, model) == ("ag-news-768", "Std"):
                    changes |= {"curve": [], "curve_split": None}
                runs.append(record(group, model, f"seed-{seed}", accuracy, fields_of(model, width), **changes))
    for seed in SEEDS:
        accuracy = 0.81 + chance.gauss(0, 0.002)
        recipe = {"epochs": 20, "seed": seed}
        runs.append(record("imdb-128", NASTY, f"seed-{seed}", accuracy, fields_of(NASTY, 128), recipe=recipe))
    first = next(run for run in runs if run.name == "imdb-128/Std/seed-42")
    again = first.test["accuracy"] + 0.0004
    runs.append(record("imdb-128", "Std", "seed-42-again", again, first.fields, role="repeat", confusion=[]))
    return Results(
        study="paper",
        scale="full",
        groups={group: GROUPS[group] for group in PAPER},
        runs=runs,
        measurements=[measurement(group, model) for group in PAPER for model in ("Std", "T4-linear")],
        comparisons=[
            comparison("imdb-128", "T4-linear", "Std", 0.8, 0.5, 0.002),
            comparison("imdb-128", "T4-linear", "Std-1L", 4.1, 0.5, 0.0002),
            comparison("ag-news-256", "T4-linear", "Std", -0.6, 0.8, 0.13),
            replace(
                comparison("ag-news-256", "T4-linear", "Std-1L", 3.8, 0.5, 0.0002),
                seeds=1,
                low_over_seeds=None,
                high_over_seeds=None,
                p_value_over_seeds=None,
            ),
        ],
        missing=[
            *(missing("ag-news-256", "T4-harmonic", f"seed-{s}", "the loss was not finite at step 12") for s in SEEDS),
            *(missing("imdb-128", "T4-exponential", f"seed-{s}", "stopped by the user") for s in (123, 7)),
        ],
        failures={"speed of imdb-128/T4-harmonic": "CUDA out of memory"},
        seconds={"prepare": 31.0, "train": 1200.0, "measure": 88.5},
        tokens_to_report=1288.5,
        environments=[ENVIRONMENT],
    )


def controls_results() -> Results:
    """As a study of our own would come out: tuned rates, many rows, compression; no measurements, no curves."""
    chance = random.Random(1)
    runs: list[RunRecord] = []
    compressed: dict[str, list[dict[str, Any]]] = {}
    comparisons = []
    without: dict[str, Any] = {"curve": [], "curve_split": None}
    for group in TUNED:
        rows = {**controls.rows(controls.WIDTHS[group]), NASTY: {"hidden_size": controls.WIDTHS[group]}}
        means = {model: (0.81 if "imdb" in group else 0.91) + chance.gauss(0, 0.003) for model in rows}
        means["T4"] = means["Std"] - 0.004
        for model, fields in rows.items():
            for i, rate in enumerate((3e-4, 1e-3, 3e-3)):
                if (model, rate) == ("T8", 3e-3):
                    continue
                validation = {"accuracy": means[model] - 0.01 * abs(i - 1), "macro_f1": means[model], "loss": 0.3}
                trial = {"learning_rate": rate, "role": "trial", "validation": validation, "confusion": []}
                runs.append(record(group, model, f"lr-{rate:g}", means[model], fields, **without, **trial))
            for seed in SEEDS:
                accuracy = means[model] + chance.gauss(0, 0.002)
                recipe = {"learning_rate": 1e-3, "seed": seed}
                changes = {"learning_rate": 1e-3, "recipe": recipe, **without}
                runs.append(record(group, model, f"seed-{seed}", accuracy, fields, **changes))
        for other in (controls.MATCHED, "Std", "T4"):
            for model in rows:
                if model not in (other, NASTY):
                    difference = 100 * (means[model] - means[other])
                    comparisons.append(
                        comparison(
                            group, model, other, difference, 0.3, max(10 ** (-5 * abs(difference)), SMALLEST_P_VALUE)
                        )
                    )
        compressed[f"{group}/Std"] = sweep(means["Std"], 793_088 if "imdb" in group else 3_159_040)
    group = "ag-news-256-tuned"
    return Results(
        study="controls",
        scale="full",
        groups={group: GROUPS[group] for group in TUNED},
        runs=runs,
        comparisons=comparisons,
        compressed=compressed,
        missing=[missing(group, "T8", "lr-0.003", "the loss was not finite at step 40", "trial")],
        failures={"compression of imdb-128-tuned/Other": "there is no trial of it"},
        seconds={"training": 100.0},
        environments=[{"command": "lformer reproduce controls"}],
    )


def sweep(accuracy: float, whole: int) -> list[dict[str, Any]]:
    """What `posthoc_sweep` says of the points that were chosen, with ranks of as many matrices as there are."""
    parts = ("query", "key", "value", "output", "inner", "outer")
    matrices = [f"layers.{layer}.{part}" for layer in range(4) for part in parts]
    points = [point("none", None, [], [], 1.0, accuracy, [], whole)]
    for share, budgets in ((0.82, [1.0, 0.9]), (0.7, [0.75]), (0.48, [0.5]), (0.24, [0.25])):
        ranks: list[Any] = [max(1, round(share * (10 + i))) for i in range(24)]
        points.append(
            point("rank reduction", None, matrices, ranks, share, accuracy - 0.2 * (1 - share) ** 3, budgets, whole)
        )
        by_layer = [f"layers.{layer}.attention" for layer in range(4)]
        stacks, way = [*by_layer, "layers.*.inner", "layers.*.outer"], "attention of a layer"
        if share < 0.5:
            stacks, way = [f"layers.*.{part}" for part in parts], "parts over layers"
        ranks = [[8, 9, 7, 8] for _ in stacks]
        points.append(
            point("stacked L-SVD", way, stacks, ranks, share, accuracy - 0.3 * (1 - share) ** 3, budgets, whole)
        )
    return points


def point(
    method: str,
    way: str | None,
    parts: list[str],
    rank: list[Any],
    share: float,
    accuracy: float,
    budgets: list[float],
    whole: int,
) -> dict[str, Any]:
    return {
        "method": method,
        "way": way,
        "transform": "dct" if way else None,
        "search": "greedy" if parts else None,
        "parts": parts,
        "rank": rank,
        "layer_parameters": round(whole * share),
        "share": share,
        "validation_accuracy": accuracy + 0.001,
        "validation_loss": 1 - accuracy,
        "budgets": budgets,
        "test_accuracy": accuracy,
        "macro_f1": accuracy - 0.001,
        "test_loss": 1 - accuracy,
    }


def sizes_results() -> Results:
    """Two models of `language_results` at another size too, with one seed and without trials."""
    results, name = language_results(), "enwik8-large"
    reference = language.matched(language.SMALL)
    more = [
        replace(
            run,
            group=name,
            model="dense" if run.model == reference else run.model,
            layer_parameters=4 * run.layer_parameters,
            validation={"bits": run.validation["bits"] - 0.5},
        )
        for run in results.runs
        if run.model in (reference, language.RECOMMENDED) and run.label == f"seed-{SEEDS[0]}"
    ]
    about = {**next(iter(results.groups.values())), "title": "a larger one", "reference": "dense"}
    return replace(results, runs=[*results.runs, *more], groups={**results.groups, name: about})


def language_results() -> Results:
    """As the study of language models comes out on a CPU: a row without runs, one that was not measured."""
    chance = random.Random(2)
    size = language.SMALL
    title, reference = size.title, language.matched(size)
    about = {"title": title, "data": "enwik8: 90,000,000 train, 500,000 validation bytes", "reference": reference}
    recipe = {"epochs": 1, "max_steps": 800, "batch_size": 32, "sequence_length": 128}
    empty: dict[str, Any] = {"test": {}, "curve": [], "curve_split": None, "confusion": [], "peak_memory_bytes": None}
    runs = []
    lost, *models = reversed(language.rows(size))
    for model in models:
        fields, mean = language.rows(size)[model], 2.2 + chance.gauss(0, 0.1)
        for rate in size.rates:
            changes = {"learning_rate": rate, "role": "trial", "recipe": {**recipe, "learning_rate": rate}, **empty}
            bits = {"bits": mean + abs(rate - 4e-3)}
            runs.append(record("imdb-128", model, f"lr-{rate:g}", 0.5, fields, validation=bits, **changes))
        for seed in SEEDS:
            changes = {"learning_rate": 4e-3, "recipe": {**recipe, "learning_rate": 4e-3, "seed": seed}, **empty}
            bits = {"bits": mean + chance.gauss(0, 0.01)}
            runs.append(record("imdb-128", model, f"seed-{seed}", 0.5, fields, validation=bits, **changes))
    measured = [
        measurement(
            size.group, model, tokens_per_second=chance.uniform(8e3, 2e4), peak_memory_bytes=None, device="x86_64"
        )
        for model in models[1:]
    ]
    return Results(
        study=size.study,
        scale="full",
        score="bits",
        groups={size.group: {**about, "labels": [], "train": 90_000_000, "validation": 500_000}},
        runs=[replace(run, group=size.group) for run in runs],
        measurements=measured,
        missing=[missing(size.group, lost, f"seed-{seed}", "was not asked for") for seed in SEEDS],
        failures={f"speed of {size.group}/{models[0]}": "it was stopped"},
        seconds={"train": 1000.0},
        environments=[{**ENVIRONMENT, "device": "x86_64"}],
    )
