"""The speed of a row: steps of its training and passes over the test split, alone on the machine."""

import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from lformer.data import Prepared
from lformer.train import Recipe, evaluate
from lformer.train.batches import Rows, epoch_batches
from lformer.train.captured import WARM_UP_STEPS
from lformer.train.loop import Training
from lformer.train.run_folder import environment
from lformer.train.runner import set_up

PASSES = 3


def measure(prepared: Prepared, model: dict[str, Any], recipe: Recipe, *, warm_up: int, steps: int) -> dict[str, Any]:
    """Seconds of an epoch and of a pass over the test split (validation where there is none), places a second, and the
    peak of memory in training.
    """
    training = set_up(prepared, Path("unused"), model=model, recipe=recipe, quiet=True)
    lengths = training.lengths
    batches = epoch_batches(lengths, recipe.batch_size, seed=recipe.seed, epoch=0, bucket=recipe.bucket)
    full = [batch for batch in batches if len(batch) == recipe.batch_size] or batches
    full = (full * (1 + (warm_up + steps) // len(full)))[: warm_up + steps]
    before, timed = full[:warm_up], full[warm_up:]
    before += _until_recorded(training, before, timed)
    training.total_steps = max(training.total_steps, len(before) + len(timed))
    training.model.train()
    _steps(training, before)
    seconds = _steps(training, timed) / len(timed)
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


def _until_recorded(training: Training, before: list[Rows], timed: list[Rows]) -> list[Rows]:
    """Batches to take after `before`, so that no kind has its graph recorded while it is timed: that takes as long as
    hundreds of steps.
    """
    if training.resident is None:
        return []
    kind = training.resident.data.kind
    seen, wanted = Counter(map(kind, before)), {kind(rows): rows for rows in timed}
    return [rows for found, rows in wanted.items() for _ in range(WARM_UP_STEPS + 1 - seen[found])]


def _steps(training: Training, batches: list[Rows]) -> float:
    started = _now()
    at_once = max(1, len(training.lengths) // training.recipe.batch_size)  # as many as an epoch plans
    for start in range(0, len(batches), at_once):
        part = batches[start : start + at_once]
        if training.resident is not None:
            training.resident.plan(part)
        for rows in part:
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
