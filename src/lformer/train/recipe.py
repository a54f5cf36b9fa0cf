"""How a model is trained: the paper's recipe by default, and what may be changed about it."""

from dataclasses import dataclass, fields
from typing import Any

from lformer.settings import UserError

SCHEDULES = ("onecycle", "cosine", "linear", "constant")
PRECISIONS = ("auto", "no", "bf16", "fp16")
LR_SCALES = ("none", "slice")
CAPTURES = ("auto", "always", "never")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything about a training but the model and the data. The defaults are the paper's for AG News at d=256."""

    epochs: int = 5
    """Passes over the training split; no checkpoint is selected, the last weights count."""
    max_steps: int | None = None
    """Stop after this many optimizer steps, whatever the epochs say; the schedule is planned for the steps that run."""
    batch_size: int = 128
    """Examples in one optimizer step, over all processes and accumulated parts together."""
    accumulate: int = 1
    """Parts that a process cuts its share of a batch into; the result is the same, the memory is less."""
    eval_batch_size: int = 256
    learning_rate: float = 3e-4
    """The largest of the schedule."""
    final_learning_rate: float = 1e-5
    """Where the schedule ends."""
    schedule: str = "onecycle"
    """"onecycle" (warm-up, then cosine), "cosine" (no warm-up), "linear" (warm-up, then linear) or "constant"."""
    warmup_fraction: float = 0.1
    """Share of the steps in which the learning rate rises in a line, from 1/25 of its largest value."""
    weight_decay: float = 0.01
    """AdamW's, on all parameters."""
    clip_norm: float = 1.0
    """Largest norm of the gradient; 0 does not clip."""
    lr_scale: str = "none"
    """"slice": weights of slices get tube_length times the learning rate, as their fan-in is that much smaller."""
    label_smoothing: float = 0.0
    ema: float = 0.0
    """Decay of a moving average of the weights, which is then evaluated and saved; 0 is none."""
    early_stopping: int = 0
    """Stop after this many epochs without a better validation score and take the best weights; 0 never stops."""
    mask_probability: float = 0.15
    """Share of tokens that a masked language model must predict."""
    sequence_length: int = 128
    """Tokens in one example of a causal language model. After the first epoch the text is cut at other places."""
    eval_steps: int = 0
    """Steps between evaluations on the validation split; 0 evaluates after every epoch. The last is of the whole split
    in any case."""
    eval_tokens: int = 200_000
    """Tokens that an evaluation of `eval_steps` looks at, spread over the split; 0 looks at all."""
    bucket: bool = False
    """Train on batches of similar length: less padding, but no longer a plain shuffle."""
    mixed_precision: str = "auto"
    """"auto" (bf16 on a GPU, none on a CPU), "no", "bf16" or "fp16"."""
    compile: bool = False
    """torch.compile the model."""
    capture: str = "auto"
    """Replay the step as one CUDA graph: "auto" where it can be done, "always" or an error, "never"."""
    seed: int = 42
    """For weights, order of examples, dropout and masks."""
    deterministic: bool = False
    """Refuse operations whose result may differ between runs on the same machine."""
    checkpoint_steps: int = 0
    """Steps between checkpoints; 0 writes one after every epoch."""
    keep_checkpoints: int = 2
    test_every_epoch: bool = False
    """Measure the test split after every epoch, for curves; nothing is chosen by it."""
    log_steps: int = 50
    """Steps between two lines of metrics."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "accumulate", "eval_batch_size", "sequence_length", "log_steps"):
            self._require(name, getattr(self, name) >= 1, "must be at least 1")
        self._require("keep_checkpoints", self.keep_checkpoints >= 1, "must be at least 1, or a run could not resume")
        self._require("max_steps", self.max_steps is None or self.max_steps >= 1, "must be at least 1")
        self._require("learning_rate", self.learning_rate > 0, "must be above 0")
        self._require("seed", 0 <= self.seed < 2**32, "must be from 0 to below 2^32")
        counts = ("early_stopping", "checkpoint_steps", "eval_steps", "eval_tokens")
        for name in ("final_learning_rate", "weight_decay", "clip_norm", *counts):
            self._require(name, getattr(self, name) >= 0, "must not be negative")
        for name in ("warmup_fraction", "label_smoothing", "ema"):
            self._require(name, 0 <= getattr(self, name) < 1, "must be from 0 to below 1")
        self._require("mask_probability", 0 < self.mask_probability < 1, "must be between 0 and 1")
        known = {"schedule": SCHEDULES, "mixed_precision": PRECISIONS, "lr_scale": LR_SCALES, "capture": CAPTURES}
        for name, choices in known.items():
            value = getattr(self, name)
            self._require(name, value in choices, f"is not one of {', '.join(map(repr, choices))}")

    def _require(self, name: str, holds: bool, what: str) -> None:
        if not holds:
            raise UserError(f"{name}={getattr(self, name)!r} {what}")


RECIPE_TYPES: dict[str, Any] = {field.name: field.type for field in fields(Recipe)}
