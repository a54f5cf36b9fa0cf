"""What a named starting point consists of: a model, a recipe and how the data are prepared."""

from dataclasses import dataclass, field, fields
from typing import Any

from lformer.train.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """How text becomes tokens."""

    max_length: int = 128
    """Tokens of a text that are kept, from its start."""
    vocab_size: int = 30_000
    """Types of the tokenizer; fewer where the text has fewer."""
    lowercase: bool = True
    tokenizer_kind: str = "bpe"
    """"bpe", or "byte" for one type per byte."""
    validation_fraction: float = 0.0
    """Share of the training examples that is held out where the data have no validation split."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """What `--preset` stands for."""

    about: str
    source: str | None = None
    task: str | None = None
    model: dict[str, Any] = field(default_factory=dict)
    recipe: Recipe = field(default_factory=Recipe)
    data: DataSettings = field(default_factory=DataSettings)


DATA_TYPES: dict[str, Any] = {field.name: field.type for field in fields(DataSettings)}
