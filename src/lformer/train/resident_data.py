"""A split whose arrays live on the device, so that a batch is a lookup there and not a transfer.

Shapes are known on the host before a batch is made (`Kind`), its contents never are: nothing waits for the device.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from lformer.data import TokenSplit
from lformer.train.batches import Rows

BYTES_PER_TOKEN = 4  # int32: torch looks nothing up in uint16
IGNORED = -100


@dataclass(frozen=True)
class Kind:
    """What two batches must share to be made and trained on by the same kernels."""

    size: int
    width: int
    masked: bool
    """Whether some text is shorter than the width. A mask keeps attention from its fastest path."""
    target_width: int = 0
    """Of the second text of a pair."""


class ResidentData(ABC):
    """A split on a device."""

    lengths: Rows
    """Of every example; on the host."""

    @abstractmethod
    def kind(self, rows: Rows) -> Kind:
        """The shape of the batch that these examples make."""

    @abstractmethod
    def weight(self, batch: dict[str, Tensor]) -> int | Tensor:
        """The number of labels in a batch; a tensor where only the device knows it."""

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

    def weight(self, batch: dict[str, Tensor]) -> int:
        return len(batch["labels"])

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
    """One stream of tokens, cut into sequences of `length`, each of which predicts the next token.

    Rows are those of `stream_places`.
    """

    def __init__(self, split: TokenSplit, device: torch.device, *, lengths: Rows, length: int) -> None:
        self.lengths = lengths
        self.length = length
        self.tokens = _on_device(split.tokens, np.int32, device)

    def kind(self, rows: Rows) -> Kind:
        return Kind(len(rows), self.length, masked=False)

    def weight(self, batch: dict[str, Tensor]) -> int:
        return batch["labels"].numel()

    def batch(self, rows: Tensor, kind: Kind) -> dict[str, Tensor]:
        starts = stream_places(rows, len(self.lengths), self.length, len(self.tokens))
        tokens = self.tokens[starts[:, None] + torch.arange(self.length + 1, device=rows.device)].long()
        return {"input_ids": tokens[:, :-1], "labels": tokens[:, 1:]}


class ResidentPairs(ResidentData):
    """Pairs of texts, each side padded on the right; the decoder starts with `bos`, and the labels end with `eos`."""

    def __init__(
        self, split: TokenSplit, device: torch.device, *, pad: int, bos: int, eos: int, limit: int, multiple: int
    ) -> None:
        assert split.target_tokens is not None
        assert split.target_offsets is not None
        self.target_lengths = np.diff(split.target_offsets)
        self.source_lengths = split.lengths
        self.lengths = self.source_lengths + self.target_lengths
        self.pad, self.bos, self.eos, self.limit, self.multiple = pad, bos, eos, limit, multiple
        self.source = _Side(split.tokens, split.offsets, device)
        self.target = _Side(split.target_tokens, split.target_offsets, device)

    def kind(self, rows: Rows) -> Kind:
        source, target = (int(lengths[rows].max(initial=1)) for lengths in (self.source_lengths, self.target_lengths))
        width = padded_width(source, self.limit, self.multiple)
        # One place of the limit is left for the start token, or the end token.
        target_width = padded_width(target, self.limit - 1, self.multiple)
        return Kind(len(rows), width, masked=True, target_width=target_width)

    def weight(self, batch: dict[str, Tensor]) -> Tensor:
        return (batch["labels"] != IGNORED).sum()

    def batch(self, rows: Tensor, kind: Kind) -> dict[str, Tensor]:
        ids, mask = self.source.padded(rows, kind.width, self.pad)
        targets, target_mask = self.target.padded(rows, kind.target_width, self.pad)
        inputs = F.pad(targets, (1, 0), value=self.bos)
        labels = F.pad(targets.masked_fill(~target_mask, IGNORED), (0, 1), value=IGNORED)
        labels = labels.scatter(1, self.target.sizes[rows][:, None], self.eos)
        return {"input_ids": ids, "attention_mask": mask.long(), "decoder_input_ids": inputs, "labels": labels}


class _Side:
    """The texts of one side of the pairs, on a device."""

    def __init__(self, tokens: NDArray[Any], offsets: NDArray[Any], device: torch.device) -> None:
        self.tokens = _on_device(tokens if len(tokens) else [0], np.int32, device)
        self.starts = _on_device(offsets[:-1], np.int64, device)
        self.sizes = _on_device(np.diff(offsets), np.int64, device)

    def padded(self, rows: Tensor, width: int, pad: int) -> tuple[Tensor, Tensor]:
        """Ids and mask, (rows, width) each."""
        column = torch.arange(width, device=rows.device)
        mask = column < self.sizes[rows][:, None]
        place = (self.starts[rows][:, None] + column).clamp_max(len(self.tokens) - 1)
        return torch.where(mask, self.tokens[place].long(), pad), mask


def stream_places(rows: Any, count: int, length: int, tokens: int) -> Any:
    """Where in a stream of so many tokens the sequences begin: row i of `count` at i length, and row i + s count s
    tokens later, at the stream's beginning again if it would run over its end. Arrays or tensors.
    """
    return (rows % count * length + rows // count) % (tokens - length)


def padded_width(longest: int, limit: int, multiple: int) -> int:
    """The longest text of a batch rounded up to a multiple, at most `limit`."""
    return max(longest, min(limit, -(-longest // multiple) * multiple))


def fits(split: TokenSplit, device: torch.device) -> bool:
    """Whether the tokens take little enough of a GPU that a model has room beside them."""
    total = torch.cuda.get_device_properties(device).total_memory
    targets = 0 if split.target_tokens is None else len(split.target_tokens)
    return (len(split.tokens) + targets) * BYTES_PER_TOKEN <= total // 8


def _on_device(array: NDArray[Any] | list[int], dtype: type[np.generic], device: torch.device) -> Tensor:
    return torch.from_numpy(np.array(array, dtype=dtype)).to(device)
