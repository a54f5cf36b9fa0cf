"""Results of studies that nobody ran: made up by a seeded generator, with everything that real ones may lack."""

import random
from typing import Any

from lformer.studies.published import PUBLISHED
from lformer.studies.results import Comparison, Measurement, MissingRun, Results, RunRecord
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
GROUPS: dict[str, dict[str, Any]] = {
    "imdb-128": {
        "title": "IMDB, d=128",
        "data": "IMDB: 25,000 training and 25,000 test reviews.",
        "labels": ["neg", "pos"],
        "train": 25_000,
        "validation": 0,
        "test": 25_000,
    },
    "ag-news-256": {
        "title": "AG News, d=256",
        "data": "AG News, 71k subset: 71,292 of the 120,000 training texts, and 7,600 test texts",
        "labels": ["World", "Sports", "Business", "Sci/Tech"],
        "train": 71_292,
        "validation": 0,
        "test": 7_600,
    },
}
GROUPS["ag-news-768"] = {**GROUPS["ag-news-256"], "title": "AG News, d=768"}
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
    """A run with an accuracy; the other figures follow from it."""
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


def paper_results() -> Results:
    """As the paper's study would come out: a nasty name, a row of one seed, a row without runs, curves that lack."""
    chance = random.Random(0)
    runs = []
    for group in GROUPS:
        width = int(group.rpartition("-")[2])
        for model, published in PUBLISHED[group].items():
            assert published.accuracy is not None
            if (group, model) == ("ag-news-256", "T4-harmonic"):
                continue  # missing
            seeds = SEEDS[:1] if (group, model) == ("imdb-128", "T4-exponential") else SEEDS
            for seed in seeds:
                accuracy = (published.accuracy - 1 + chance.gauss(0, 0.2)) / 100
                without = {"curve": [], "curve_split": None} if group == "ag-news-768" and model == "Std" else {}
                runs.append(record(group, model, f"seed-{seed}", accuracy, fields_of(model, width), **without))
    for seed in SEEDS:
        accuracy = 0.81 + chance.gauss(0, 0.002)
        runs.append(record("imdb-128", NASTY, f"seed-{seed}", accuracy, fields_of(NASTY, 128)))
    first = next(run for run in runs if run.name == "imdb-128/Std/seed-42")
    again = first.test["accuracy"] + 0.0004
    runs.append(record("imdb-128", "Std", "seed-42-again", again, first.fields, role="repeat", confusion=[]))
    measurements = [
        Measurement(
            group=group,
            model=model,
            epoch_seconds=4.0 if model == "Std" else 3.0,
            tokens_per_second=800_000.0 if model == "Std" else 1_066_667.0,
            inference_seconds=0.5 if model == "Std" else 0.4,
            peak_memory_bytes=None if group == "imdb-128" else 900_000_000,
            device="NVIDIA H200",
            commit="0123456789abcdef0123456789abcdef01234567",
        )
        for group in GROUPS
        for model in ("Std", "T4-linear")
    ]
    return Results(
        study="paper",
        scale="full",
        groups=GROUPS,
        runs=runs,
        measurements=measurements,
        comparisons=[
            Comparison(
                group="imdb-128", model="T4-linear", other="Std", difference=0.8, low=0.3, high=1.3, p_value=0.002
            ),
            Comparison(
                group="ag-news-256", model="T4-linear", other="Std", difference=-0.6, low=-1.4, high=0.2, p_value=0.13
            ),
        ],
        missing=[
            *(missing("ag-news-256", "T4-harmonic", f"seed-{s}", "the loss was not finite at step 12") for s in SEEDS),
            *(missing("imdb-128", "T4-exponential", f"seed-{s}", "stopped by the user") for s in (123, 7)),
        ],
        seconds={"data": 31.0, "training": 1200.0, "measurement": 88.5},
        environments=[ENVIRONMENT],
    )


def controls_results() -> Results:
    """As a study of our own would come out: tuned rates, many rows, compression; no measurements, no curves."""
    chance = random.Random(1)
    group, width = "ag-news-256", 256
    rows: dict[str, tuple[float, dict[str, Any]]] = {
        "Std": (0.911, {}),
        "dense d=128": (0.915, {"hidden_size": 128, "tube_length": 1}),
        "T2-linear": (0.912, {}),
        "T4-linear": (0.910, {}),
        "T8-linear": (0.905, {"num_attention_heads": 8}),
        "T4-identity": (0.903, {"transform": "identity"}),
        "T4-learned-Z": (0.913, {"transform": "learned"}),
        NASTY: (0.908, {"interleave": True}),
    }
    runs = []
    for model, (accuracy, changes) in rows.items():
        fields = {**fields_of(model, width), **changes}
        without: dict[str, Any] = {"curve": [], "curve_split": None}
        for i, rate in enumerate((3e-4, 1e-3, 3e-3)):
            if (model, rate) == ("T8-linear", 3e-3):
                continue
            validation = {"accuracy": accuracy - 0.01 * abs(i - 1), "macro_f1": accuracy, "loss": 0.3}
            trial = {"learning_rate": rate, "role": "trial", "validation": validation, "confusion": []}
            runs.append(record(group, model, f"lr-{rate:g}", accuracy, fields, **without, **trial))
        for seed in SEEDS:
            found = accuracy + chance.gauss(0, 0.002)
            runs.append(record(group, model, f"seed-{seed}", found, fields, learning_rate=1e-3, **without))
    points: list[dict[str, Any]] = [
        {
            "method": method,
            "parts": parts,
            "rank": rank,
            "layer_parameters": 3_159_040 * rank // 256,
            "validation_accuracy": 0.91 - loss / rank,
            "test_accuracy": 0.909 - loss / rank,
            "macro_f1": 0.908 - loss / rank,
        }
        for method, loss in (("svd", 2.0), ("lsvd dct", 3.0))
        for parts in ("feed-forward", "all")
        for rank in (32, 64, 128)
    ]
    points.append({"method": "prune", "parts": "all", "layer_parameters": 800_000, "test_accuracy": 0.85})
    groups = {group: {**GROUPS[group], "title": "AG News, d=256, tuned", "validation": 3_000}}
    return Results(
        study="controls",
        scale="full",
        groups=groups,
        runs=runs,
        compressed={f"{group}/Std": points},
        missing=[missing(group, "T8-linear", "lr-0.003", "the loss was not finite at step 40", "trial")],
        seconds={"training": 100.0},
        environments=[{"command": "lformer reproduce controls"}],
    )
