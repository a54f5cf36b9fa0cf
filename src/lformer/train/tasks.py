"""What is learned: how examples become a batch, which model takes it, what the loss is, what is scored.

A batch is made whole by every process, of which each then takes its rows: so the loss can be divided by what the whole
batch holds, and any number of processes or parts gives the same gradient.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from lformer.data import Prepared, TokenSplit
from lformer.data.tokenizer import is_byte_level
from lformer.models import (
    LFormerConfig,
    LFormerForCausalLM,
    LFormerForConditionalGeneration,
    LFormerForMaskedLM,
    LFormerForSequenceClassification,
    LFormerPreTrainedModel,
)
from lformer.settings import UserError
from lformer.train.batches import Rows
from lformer.train.metrics import accuracy, macro_f1
from lformer.train.recipe import Recipe
from lformer.train.resident_data import (
    IGNORED,
    ResidentData,
    ResidentPairs,
    ResidentStream,
    ResidentTexts,
    padded_width,
    stream_places,
)

Batch = dict[str, NDArray[Any]]
PAD_MULTIPLE = 8  # lengths are rounded up to this: fewer shapes, and what fused attention likes


@dataclass(frozen=True)
class Task(ABC):
    """A way of training on a prepared data set."""

    recipe: Recipe
    tokenizer: PreTrainedTokenizerFast
    num_labels: int
    max_length: int

    model_class: ClassVar[type[LFormerPreTrainedModel]]

    def lengths(self, split: TokenSplit) -> Rows:
        """The length of every example of the split."""
        return split.lengths

    def shifted(self, batches: list[Rows], split: TokenSplit, epoch: int) -> list[Rows]:
        """The batches of an epoch, of other examples where a task can cut the same data differently."""
        return batches

    @abstractmethod
    def batch(self, split: TokenSplit, rows: Rows, generator: np.random.Generator) -> Batch:
        """The examples as padded arrays: what the model takes, and "labels"."""

    def resident(self, split: TokenSplit, device: torch.device, multiple: int = PAD_MULTIPLE) -> ResidentData | None:
        """The split on a device, for a task whose batches are a lookup; None where the host must make them."""
        return None

    def weight(self, batch: Batch) -> int:
        """What a loss summed over the batch is divided by: the number of labels."""
        return int((batch["labels"] != IGNORED).sum())

    def predict(self, model: torch.nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Logits, one row for each label, and the labels."""
        labels = batch["labels"]
        logits = model(**{name: value for name, value in batch.items() if name != "labels"}).logits
        return logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)

    def loss(self, logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        """Cross entropy, summed."""
        return F.cross_entropy(logits.float(), labels, reduction="sum", ignore_index=IGNORED, label_smoothing=smoothing)

    def config(self, **fields: Any) -> LFormerConfig:
        """The model's configuration: the given fields, and those that the data decide."""
        special = {name: getattr(self.tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
        decided: dict[str, Any] = {"vocab_size": len(self.tokenizer), **special, **self.decided()}
        return LFormerConfig(**{**decided, **fields})

    def decided(self) -> dict[str, Any]:
        return {"max_position_embeddings": self.max_length}

    def scores(self, predictions: Rows, labels: Rows) -> dict[str, float]:
        """What is reported beside the loss."""
        return {}

    def byte_lengths(self) -> NDArray[np.int64] | None:
        """How many bytes of text every token stands for, where the text is predicted whole: what makes language models
        of different tokenizers comparable.
        """
        return None

    def _padded(self, split: TokenSplit, rows: Rows) -> Batch:
        ids, mask = _gather(split.tokens, split.offsets, rows, self.tokenizer.pad_token_id, self.max_length)
        return {"input_ids": ids, "attention_mask": mask}

    score: ClassVar[str] = "loss"
    """What early stopping looks at; "loss" is better when smaller, everything else when larger."""


class Classification(Task):
    model_class = LFormerForSequenceClassification
    score = "accuracy"

    def batch(self, split: TokenSplit, rows: Rows, generator: np.random.Generator) -> Batch:
        assert split.labels is not None
        return {**self._padded(split, rows), "labels": np.asarray(split.labels[rows], dtype=np.int64)}

    def resident(self, split: TokenSplit, device: torch.device, multiple: int = PAD_MULTIPLE) -> ResidentData:
        pad = self.tokenizer.pad_token_id
        return ResidentTexts(split, device, pad=pad, limit=self.max_length, multiple=multiple)

    def decided(self) -> dict[str, Any]:
        return {**super().decided(), "num_labels": self.num_labels}

    def scores(self, predictions: Rows, labels: Rows) -> dict[str, float]:
        return {"accuracy": accuracy(labels, predictions), "macro_f1": macro_f1(labels, predictions, self.num_labels)}


class MaskedLanguageModeling(Task):
    """Of the chosen tokens 80 % become the mask, 10 % another token, 10 % stay."""

    model_class = LFormerForMaskedLM

    def batch(self, split: TokenSplit, rows: Rows, generator: np.random.Generator) -> Batch:
        batch = self._padded(split, rows)
        ids = batch["input_ids"]
        chosen = (generator.random(ids.shape) < self.recipe.mask_probability) & (batch["attention_mask"] == 1)
        if not chosen.any() and batch["attention_mask"].any():
            chosen.flat[np.flatnonzero(batch["attention_mask"])[0]] = True  # a batch with nothing to learn has no loss
        labels = np.where(chosen, ids, IGNORED)
        fate = generator.random(ids.shape)
        random_ids = generator.integers(len(self.tokenizer), size=ids.shape)
        ids = np.where(chosen & (fate < 0.8), self.tokenizer.mask_token_id, ids)
        ids = np.where(chosen & (fate >= 0.8) & (fate < 0.9), random_ids, ids)
        return {**batch, "input_ids": ids, "labels": labels}

    def scores(self, predictions: Rows, labels: Rows) -> dict[str, float]:
        known = labels != IGNORED
        return {"accuracy": accuracy(labels[known], predictions[known])}


class CausalLanguageModeling(Task):
    """The text as one stream, cut into sequences of recipe.sequence_length tokens; each predicts the next.

    In every epoch but the first the cuts are at other places (`stream_places`).
    """

    model_class = LFormerForCausalLM

    def lengths(self, split: TokenSplit) -> Rows:
        count = (len(split.tokens) - 1) // self.recipe.sequence_length
        if count < 1:
            raise UserError(
                f"the text has {len(split.tokens)} tokens, fewer than one sequence of "
                f"sequence_length={self.recipe.sequence_length}; use a longer text or a smaller sequence_length"
            )
        return np.full(count, self.recipe.sequence_length, dtype=np.int64)

    def shifted(self, batches: list[Rows], split: TokenSplit, epoch: int) -> list[Rows]:
        if epoch == 0:
            return batches
        by = np.random.default_rng([self.recipe.seed, epoch, 1]).integers(self.recipe.sequence_length)
        return [rows + by * len(self.lengths(split)) for rows in batches]

    def batch(self, split: TokenSplit, rows: Rows, generator: np.random.Generator) -> Batch:
        length = self.recipe.sequence_length
        starts = stream_places(rows, len(self.lengths(split)), length, len(split.tokens))
        tokens = np.asarray(split.tokens[starts[:, None] + np.arange(length + 1)], dtype=np.int64)
        return {"input_ids": tokens[:, :-1], "labels": tokens[:, 1:]}

    def resident(self, split: TokenSplit, device: torch.device, multiple: int = PAD_MULTIPLE) -> ResidentData:
        return ResidentStream(split, device, lengths=self.lengths(split), length=self.recipe.sequence_length)

    def predict(self, model: torch.nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        logits = model(input_ids=batch["input_ids"], use_cache=False).logits
        return logits.reshape(-1, logits.shape[-1]), batch["labels"].reshape(-1)

    def decided(self) -> dict[str, Any]:
        return {"max_position_embeddings": self.recipe.sequence_length, "is_decoder": True}

    def byte_lengths(self) -> NDArray[np.int64] | None:
        if not is_byte_level(self.tokenizer):
            return None  # such as one that was given to `prepare`, whose tokens have other letters than the text
        # Byte-level tokenizers write every byte of a token as one character. A special token is none of the text.
        special = set(self.tokenizer.all_special_ids)
        tokens = self.tokenizer.convert_ids_to_tokens([*range(len(self.tokenizer))])
        return np.array([0 if i in special else len(token) for i, token in enumerate(tokens)], dtype=np.int64)


class Translation(Task):
    """From the first text of a pair to the second; the decoder starts with the beginning-of-text token."""

    model_class = LFormerForConditionalGeneration

    def lengths(self, split: TokenSplit) -> Rows:
        assert split.target_offsets is not None
        return split.lengths + np.diff(split.target_offsets)

    def batch(self, split: TokenSplit, rows: Rows, generator: np.random.Generator) -> Batch:
        assert split.target_tokens is not None
        assert split.target_offsets is not None
        source = self._padded(split, rows)
        pad, limit = self.tokenizer.pad_token_id, self.max_length - 1
        targets, mask = _gather(split.target_tokens, split.target_offsets, rows, pad, limit)
        one = np.ones((len(rows), 1), dtype=np.int64)
        length = mask.sum(1, keepdims=True)
        # The input is the start token and the target, the labels are the target and the end token.
        labels = np.concatenate([np.where(mask == 1, targets, IGNORED), IGNORED * one], axis=1)
        np.put_along_axis(labels, length, self.tokenizer.eos_token_id, axis=1)
        return {
            **source,
            "decoder_input_ids": np.concatenate([self.tokenizer.bos_token_id * one, targets], axis=1),
            # No mask for it: padding is on the right, where a causal decoder does not look.
            "labels": labels,
        }

    def resident(self, split: TokenSplit, device: torch.device, multiple: int = PAD_MULTIPLE) -> ResidentData:
        ids = {"pad": self.tokenizer.pad_token_id, "bos": self.tokenizer.bos_token_id}
        ids["eos"] = self.tokenizer.eos_token_id
        return ResidentPairs(split, device, **ids, limit=self.max_length, multiple=multiple)

    def predict(self, model: torch.nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        inputs = {name: value for name, value in batch.items() if name != "labels"}
        logits = model(**inputs, use_cache=False).logits
        return logits.reshape(-1, logits.shape[-1]), batch["labels"].reshape(-1)

    def decided(self) -> dict[str, Any]:
        start = self.tokenizer.bos_token_id
        return {**super().decided(), "is_encoder_decoder": True, "decoder_start_token_id": start}


TASKS: dict[str, type[Task]] = {
    "classification": Classification,
    "masked-lm": MaskedLanguageModeling,
    "causal-lm": CausalLanguageModeling,
    "translation": Translation,
}
NATURAL_TASK = {"classification": "classification", "language-modeling": "causal-lm", "translation": "translation"}


def make_task(name: str | None, prepared: Prepared, recipe: Recipe) -> Task:
    """The task of that name for a prepared data set; without a name the one that the data are for."""
    name = name or NATURAL_TASK[prepared.task]
    if name not in TASKS:
        raise UserError(f"there is no task {name!r}; there are {', '.join(TASKS)}")
    for needed, kind in (("classification", "classification"), ("translation", "translation")):
        if name == needed and prepared.task != kind:
            raise UserError(f"the data in {prepared.path} are for {prepared.task}; they cannot train a {name} model")
    return TASKS[name](recipe, prepared.tokenizer(), len(prepared.label_names), prepared.max_length)


def _gather(
    tokens: NDArray[Any], offsets: NDArray[Any], rows: Rows, pad: int, limit: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The token sequences of some rows side by side, padded on the right, and their mask: (rows, width) each.

    The width is that of the longest, rounded up to a multiple of PAD_MULTIPLE, at most `limit`.
    """
    starts = np.asarray(offsets[rows])
    lengths = np.asarray(offsets[rows + 1]) - starts
    width = padded_width(int(lengths.max(initial=1)), limit, PAD_MULTIPLE)
    column = np.arange(width)
    mask = column < lengths[:, None]
    place = np.minimum(starts[:, None] + column, max(len(tokens) - 1, 0))
    ids = np.where(mask, tokens[place] if len(tokens) else pad, pad).astype(np.int64)
    return ids, mask.astype(np.int64)
