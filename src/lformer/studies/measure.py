"""The speed of a row: steps of its training and passes over the test split, alone on the machine."""

import time
from pathlib import Path
from typing import Any

import torch

from lformer.data import Prepared
from lformer.train import Recipe, evaluate
from lformer.train.batches import epoch_batches
from lformer.train.loop import Training
from lformer.train.run_folder import environment
from lformer.train.runner import set_up

PASSES = 3


def measure(prepared: Prepared, model: dict[str, Any], recipe: Recipe, *, warm_up: int, steps: int) -> dict[str, Any]:
    """Seconds of an epoch and of a pass over the test split (validation where there is none), places a second, and the
    peak of memory in training.
    """
    training = set_up(prepared, Path("unused"), model=model, recipe=recipe, quiet=True)
    lengths = training.task.lengths(training.train_split)
    batches = epoch_batches(lengths, recipe.batch_size, seed=recipe.seed, epoch=0, bucket=recipe.bucket)
    full = [batch for batch in batches if len(batch) == recipe.batch_size] or batches
    full = (full * (1 + (warm_up + steps) // len(full)))[: warm_up + steps]
    training.total_steps = max(training.total_steps, len(full))
    training.model.train()
    _steps(training, full[:warm_up])
    seconds = _steps(training, full[warm_up:]) / len(full[warm_up:])
    memory = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
    test = prepared.split("test" if "test" in prepared.splits else "validation")
    places = prepared.max_length if prepared.task == "classification" else recipe.sequence_length
    passes = [_timed_pass(training, test) for _ in range(1 + PASSES)][1:]  # the first one warms up
    facts = environment()
    return {
        "epoch_seconds": seconds * len(lengths) / recipe.batch_size,
        "tokens_per_second": recipe.batch_size * places / seconds,
        "inference_seconds": sum(passes) / len(passes),
        "peak_memory_bytes": memory,
        "device": facts["device"],
        "commit": facts["commit"] or "unknown",
    }


def _steps(training: Training, batches: list[Any]) -> float:
    if training.resident is not None:
        training.resident.plan(batches)
    started = _now()
    for rows in batches:
        training.step(rows)
    seconds = _now() - started
    training.losses.clear()
    training.correct.clear()
    return seconds


def _timed_pass(training: Training, split: Any) -> float:
    started = _now()
    evaluate(training.model, training.task, split, training.accelerator)
    return _now() - started


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()
