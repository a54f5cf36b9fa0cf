"""What every source gives: texts and labels, split by split."""

from dataclasses import dataclass, field

TASKS = ("classification", "language-modeling", "translation")
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Examples:
    """One split."""

    texts: list[tuple[str, ...]]
    """One or more text fields an example; translation: (source, target); language model: (text,)."""
    labels: list[int] | None = None
    """Indices into the label names; None unless the task is classification."""

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, indices: list[int]) -> "Examples":
        """The examples at these indices, in this order."""
        labels = None if self.labels is None else [self.labels[i] for i in indices]
        return Examples([self.texts[i] for i in indices], labels)


@dataclass(frozen=True)
class TextData:
    """A data set as text."""

    name: str
    task: str
    """"classification", "language-modeling" or "translation"."""
    splits: dict[str, Examples]
    """"train", and where there are any "validation" and "test"."""
    label_names: list[str]
    """Empty unless the task is classification."""
    fingerprint: str
    """SHA-256 of the source's contents and the reading options."""
    notes: list[str] = field(default_factory=list)
    """What the user should know, for example how many texts are empty."""
