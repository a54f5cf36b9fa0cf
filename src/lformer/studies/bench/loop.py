"""How much of a training's time is forward, backward and optimizer, and how much is everything around them."""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lformer.data import Examples, Prepared, TextData, prepare
from lformer.train import Recipe
from lformer.train.batches import epoch_batches
from lformer.train.evaluation import to_device
from lformer.train.loop import Training
from lformer.train.runner import set_up

WARMUP_STEPS = BLOCK = 4  # steps that are timed together; a GPU works ahead of Python within them


def bench_loop(
    hidden_size: int = 256,
    tube_length: int = 4,
    steps: int = 8,
    batch_size: int = 128,
    *,
    captured: bool = False,
) -> dict[str, Any]:
    """Steps of the real loop, batches made and moved, metrics kept, against bare steps on a batch that is ready.

    Both are timed in turn on the same model, T=128; the share is the bare time over the time of the loop. With
    `captured` the loop replays CUDA graphs; the bare steps are ordinary ones, and the share says how much that saves.
    """
    with tempfile.TemporaryDirectory() as folder:
        training = set_up(
            _random_reviews(Path(folder) / "data", batch_size * (steps + WARMUP_STEPS)),
            Path(folder) / "run",
            model={"hidden_size": hidden_size, "tube_length": tube_length},
            recipe=Recipe(epochs=1, batch_size=batch_size, log_steps=BLOCK, capture="always" if captured else "never"),
            quiet=True,
        )
        training.folder.path.mkdir()
        training.model.train()
        lengths = training.task.lengths(training.train_split)
        batches = epoch_batches(lengths, batch_size, seed=0, epoch=0)
        bare = _bare_step(training, batches[0])
        seconds = {"loop": 0.0, "bare": 0.0}
        for start in range(0, WARMUP_STEPS + steps, BLOCK):  # in turn, so that a change of the machine's load hits both
            part = batches[start : start + BLOCK]
            found = {
                "loop": _timed(partial(_loop, training, part), training.accelerator.device),
                "bare": _timed(partial(_repeat, bare, len(part)), training.accelerator.device),
            }
            if start >= WARMUP_STEPS:
                seconds = {name: seconds[name] + found[name] for name in seconds}
    loop, alone = seconds["loop"], seconds["bare"]
    return {
        "hidden_size": hidden_size,
        "tube_length": tube_length,
        "batch_size": batch_size,
        "steps": steps,
        "device": str(training.accelerator.device),
        "captured": captured,
        "loop_seconds_per_step": loop / steps,
        "bare_seconds_per_step": alone / steps,
        "share": alone / loop,
    }


def _loop(training: Training, batches: list[Any]) -> None:
    for rows in batches:
        training.step(rows)
    training.log()


def _repeat(work: Callable[[], None], count: int) -> None:
    for _ in range(count):
        work()


def _bare_step(training: Training, rows: Any) -> Callable[[], None]:
    batch = training.task.batch(training.train_split, rows, np.random.default_rng(0))
    tensors = to_device(batch, training.accelerator.device)
    weight = training.task.weight(batch)

    def step() -> None:
        with training.accelerator.autocast():
            logits, labels = training.task.predict(training.model, tensors)
            loss = training.task.loss(logits, labels) / weight
        training.accelerator.backward(loss)
        training.accelerator.clip_grad_norm_(training.model.parameters(), training.recipe.clip_norm)
        training.optimizer.step()
        training.optimizer.zero_grad(set_to_none=True)

    return step


def _timed(work: Callable[[], None], device: torch.device) -> float:
    started = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def _random_reviews(path: Path, count: int) -> Prepared:
    """Texts of 128 tokens and more, so that every batch is full."""
    generator = np.random.default_rng(0)
    texts: list[tuple[str, ...]] = [
        (" ".join(f"w{word}" for word in row),) for row in generator.integers(0, 500, size=(count, 130))
    ]
    examples = Examples(texts=texts, labels=[int(label) for label in generator.integers(0, 2, size=count)])
    data = TextData("random", "classification", {"train": examples}, ["no", "yes"], "random", [])
    return prepare(data, path, max_length=128, vocab_size=1_000)
