"""A model's loss, scores and predictions on one split."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from numpy.typing import NDArray
from torch import Tensor, nn

from lformer.data import TokenSplit
from lformer.train.batches import evaluation_batches, share, spread
from lformer.train.resident_data import fits
from lformer.train.tasks import Batch, Classification, Task


@dataclass(frozen=True)
class Evaluation:
    """What a model does on a split."""

    scores: dict[str, float]
    predictions: NDArray[np.int64] | None
    """A classifier's class for every example, in the order of the split; None for other tasks."""
    probabilities: NDArray[np.float32] | None


def to_device(batch: Batch, device: torch.device) -> dict[str, Tensor]:
    tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in batch.items()}
    if device.type != "cuda":
        return {name: tensor.to(device) for name, tensor in tensors.items()}
    return {name: tensor.pin_memory().to(device, non_blocking=True) for name, tensor in tensors.items()}


@torch.no_grad()
def evaluate(
    model: nn.Module, task: Task, split: TokenSplit, accelerator: Accelerator, *, tokens: int = 0
) -> Evaluation:
    """Loss per label, the task's scores, and a classifier's predictions; the processes share the work.

    With `tokens` only as many examples, spread over the split, as have about that many tokens. The predictions are
    then theirs.
    """
    lengths = task.lengths(split)
    chosen = spread(lengths, tokens)
    device = accelerator.device
    data = task.resident(split, device) if _belongs_on(device, split) else None
    classifies = isinstance(task, Classification)
    # Each process fills in its own rows; the sum over processes is the whole.
    probabilities = torch.zeros(len(lengths), task.num_labels if classifies else 0, device=device)
    sizes = task.byte_lengths()
    bytes_of = None if sizes is None else torch.as_tensor(sizes, device=device)
    # Stays on the device until the end, so that the host can go ahead. Of every batch: loss, hits, labels asked for,
    # and their bytes.
    found: list[Tensor] = []
    was_training = model.training
    model.eval()
    for index, batch in enumerate(evaluation_batches(lengths[chosen], task.recipe.eval_batch_size)):
        rows = share(chosen[batch], accelerator.process_index, accelerator.num_processes)
        if len(rows) == 0:
            continue
        places = to_device({"rows": rows}, device)["rows"]
        if data is not None:
            inputs = data.batch(places, data.kind(rows))
        else:
            inputs = to_device(task.batch(split, rows, np.random.default_rng([task.recipe.seed, index])), device)
        with accelerator.autocast():
            logits, labels = task.predict(model, inputs)
        logits = logits.float()
        if classifies:
            probabilities[places] = logits.softmax(-1)
        known = labels >= 0
        hits = (logits.argmax(-1) == labels) & known
        content = known.sum() if bytes_of is None else bytes_of[labels[known]].sum()
        found.append(torch.stack([task.loss(logits, labels), hits.sum(), known.sum(), content]))
    model.train(was_training)
    totals = torch.stack(found).cpu().double().sum(0) if found else torch.zeros(4, dtype=torch.float64)
    total, right, asked, content = _sum(accelerator, totals).tolist()
    scores: dict[str, float] = {"loss": total / max(asked, 1)}
    if not classifies:
        scores |= {"accuracy": right / max(asked, 1), "perplexity": float(np.exp(min(scores["loss"], 700)))}
        scores["bits"] = scores["loss"] / float(np.log(2))
        if bytes_of is not None:
            scores["bits_per_byte"] = total / float(np.log(2)) / max(content, 1)
        return Evaluation(scores, None, None)
    by_example = _sum(accelerator, probabilities).numpy()[chosen]
    predictions = by_example.argmax(-1)
    assert split.labels is not None
    scores |= task.scores(predictions, np.asarray(split.labels[chosen], dtype=np.int64))
    return Evaluation(scores, predictions, by_example)


def _belongs_on(device: torch.device, split: TokenSplit) -> bool:
    return device.type == "cuda" and fits(split, device)


def _sum(accelerator: Accelerator, value: Tensor) -> Tensor:
    total: Any = accelerator.reduce(value.to(accelerator.device), reduction="sum")
    return total.cpu()
