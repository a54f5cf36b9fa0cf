"""A split whose arrays live on the device, so that a batch is a lookup there and not a transfer.

Shapes are known on the host before a batch is made (`Kind`), its contents never are: nothing waits for the device.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lformer.data import TokenSplit
from lformer.train.batches import Rows

BYTES_PER_TOKEN = 4  # int32: torch looks nothing up in uint16


@dataclass(frozen=True)
class Kind:
    """What two batches must share to be made and trained on by the same kernels."""

    size: int
    width: int
    masked: bool
    """Whether some text is shorter than the width. A mask keeps attention from its fastest path."""


class ResidentData(ABC):
    """A split on a device."""

    lengths: Rows
    """Of every example; on the host."""

    @abstractmethod
    def kind(self, rows: Rows) -> Kind:
        """The shape of the batch that these examples make."""

    @abstractmethod
    def weight(self, size: int) -> int:
        """The number of labels in a batch of that many examples."""

    @abstractmethod
    def batch(self, rows: Tensor, kind: Kind) -> dict[str, Tensor]:
        """The examples `rows`, a tensor on the device: what the model takes, and "labels"."""


class ResidentTexts(ResidentData):
    """Texts with a label each, padded on the right to a multiple of `multiple` tokens, at most `limit`."""

    def __init__(self, split: TokenSplit, device: torch.device, *, pad: int, limit: int, multiple: int) -> None:
        assert split.labels is not None
        self.lengths = split.lengths
        self.pad, self.limit, self.multiple = pad, limit, multiple
        self.tokens = _on_device(split.tokens, np.int32, device)
        self.starts = _on_device(split.offsets[:-1], np.int64, device)
        self.sizes = _on_device(self.lengths, np.int64, device)
        self.labels = _on_device(split.labels, np.int64, device)

    def kind(self, rows: Rows) -> Kind:
        lengths = self.lengths[rows]
        width = padded_width(int(lengths.max(initial=1)), self.limit, self.multiple)
        return Kind(len(rows), width, bool(lengths.min(initial=width) < width))

    def weight(self, size: int) -> int:
        return size

    def batch(self, rows: Tensor, kind: Kind) -> dict[str, Tensor]:
        column = torch.arange(kind.width, device=rows.device)
        place = self.starts[rows][:, None] + column
        labels = self.labels[rows]
        if not kind.masked:
            return {"input_ids": self.tokens[place].long(), "labels": labels}
        mask = column < self.sizes[rows][:, None]
        ids = torch.where(mask, self.tokens[place.clamp_max(max(len(self.tokens) - 1, 0))].long(), self.pad)
        return {"input_ids": ids, "attention_mask": mask.long(), "labels": labels}


class ResidentStream(ResidentData):
    """One stream of tokens, cut into sequences of `length`, each of which predicts the next token."""

    def __init__(self, split: TokenSplit, device: torch.device, *, lengths: Rows, length: int) -> None:
        self.lengths = lengths
        self.length = length
        self.tokens = _on_device(split.tokens, np.int32, device)

    def kind(self, rows: Rows) -> Kind:
        return Kind(len(rows), self.length, masked=False)

    def weight(self, size: int) -> int:
        return size * self.length

    def batch(self, rows: Tensor, kind: Kind) -> dict[str, Tensor]:
        tokens = self.tokens[rows[:, None] * self.length + torch.arange(self.length + 1, device=rows.device)].long()
        return {"input_ids": tokens[:, :-1], "labels": tokens[:, 1:]}


def padded_width(longest: int, limit: int, multiple: int) -> int:
    """The longest text of a batch rounded up to a multiple, at most `limit`."""
    return max(longest, min(limit, -(-longest // multiple) * multiple))


def fits(split: TokenSplit, device: torch.device) -> bool:
    """Whether the tokens take little enough of a GPU that a model has room beside them."""
    total = torch.cuda.get_device_properties(device).total_memory
    return len(split.tokens) * BYTES_PER_TOKEN <= total // 8


def _on_device(array: NDArray[Any], dtype: type[np.generic], device: torch.device) -> Tensor:
    return torch.from_numpy(np.array(array, dtype=dtype)).to(device)
