"""A model's loss, scores and predictions on one split."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from numpy.typing import NDArray
from torch import Tensor, nn

from lformer.data import TokenSplit
from lformer.train.batches import evaluation_batches, share
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
def evaluate(model: nn.Module, task: Task, split: TokenSplit, accelerator: Accelerator) -> Evaluation:
    """Loss per label, the task's scores, and a classifier's predictions; the processes share the work."""
    lengths = task.lengths(split)
    device = accelerator.device
    classifies = isinstance(task, Classification)
    totals = torch.zeros(2, dtype=torch.float64)
    # Each process fills in its own rows; the sum over processes is the whole.
    probabilities = torch.zeros(len(lengths), task.num_labels if classifies else 0)
    correct = torch.zeros(2, dtype=torch.float64)
    was_training = model.training
    model.eval()
    for index, batch_rows in enumerate(evaluation_batches(lengths, task.recipe.eval_batch_size)):
        rows = share(batch_rows, accelerator.process_index, accelerator.num_processes)
        if len(rows) == 0:
            continue
        batch = task.batch(split, rows, np.random.default_rng([task.recipe.seed, index]))
        with accelerator.autocast():
            logits, labels = task.predict(model, to_device(batch, device))
        logits = logits.float()
        totals += torch.tensor([float(task.loss(logits, labels)), task.weight(batch)], dtype=torch.float64)
        if classifies:
            probabilities[torch.from_numpy(rows)] = logits.softmax(-1).cpu()
        else:
            known = labels >= 0
            hits = (logits.argmax(-1) == labels) & known
            correct += torch.tensor([float(hits.sum()), float(known.sum())], dtype=torch.float64)
    model.train(was_training)
    total, weight = _sum(accelerator, totals).tolist()
    scores: dict[str, float] = {"loss": total / max(weight, 1)}
    if not classifies:
        hits_, known_ = _sum(accelerator, correct).tolist()
        scores |= {"accuracy": hits_ / max(known_, 1), "perplexity": float(np.exp(min(scores["loss"], 700)))}
        scores["bits"] = scores["loss"] / float(np.log(2))
        return Evaluation(scores, None, None)
    found = _sum(accelerator, probabilities).numpy()
    predictions = found.argmax(-1)
    assert split.labels is not None
    scores |= task.scores(predictions, np.asarray(split.labels, dtype=np.int64))
    return Evaluation(scores, predictions, found)


def _sum(accelerator: Accelerator, value: Tensor) -> Tensor:
    total: Any = accelerator.reduce(value.to(accelerator.device), reduction="sum")
    return total.cpu()
