"""A source and options to text: the one way in."""

import hashlib
import json
from pathlib import Path

from lformer.data.classification import load_classification
from lformer.data.cldr import load_cldr
from lformer.data.examples import TASKS, Examples, TextData
from lformer.data.files import SourceFiles
from lformer.data.holdout import hold_out
from lformer.data.hub import load_from_hub
from lformer.data.labels import check_every_class
from lformer.data.language import load_language
from lformer.data.parallel import load_translation
from lformer.settings import UserError, did_you_mean

LABEL_NAMES = {"imdb": ["neg", "pos"], "ag_news": ["World", "Sports", "Business", "Sci/Tech"]}
SOURCES = ("imdb", "ag_news", "cldr")
READING = 1  # goes up when the same files would be read differently: prepared folders are then stale


def load_data(
    source: str | None = None,
    data_dir: Path | None = None,
    *,
    task: str = "classification",
    text_columns: list[str] | None = None,
    label_column: str = "label",
    validation_fraction: float = 0.0,
    seed: int = 0,
) -> TextData:
    """Text by the name of a source, or the user's own from a folder or file.

    >>> data = load_data("cldr")
    >>> sorted(data.splits), len(data.label_names)
    (['test', 'train', 'validation'], 16)

    Args:
        source: "imdb", "ag_news" (from the hub, or from `data_dir`), "cldr" (embedded), or None for the user's own.
        data_dir: a folder with train.*, validation.* and test.*, or a single file. Nothing is written there.
        task: "classification", "language-modeling" or "translation".
        text_columns: columns of a table; for translation source and target, or the endings of two text files.
        label_column: the column of a table that has the labels.
        validation_fraction: how much of the training split to hold out, by class where there are labels.
        seed: of the held-out examples.
    """
    _check_options(source, data_dir, task, validation_fraction)
    options = {
        "reading": READING,
        "source": source,
        "task": task,
        "text_columns": text_columns,
        "label_column": label_column if task == "classification" else None,
        "validation_fraction": validation_fraction,
        "seed": seed if validation_fraction else None,
    }
    notes: list[str] = []
    names: list[str] = []
    if source == "cldr":
        splits, names, content = load_cldr()
    elif data_dir is None:
        assert source is not None
        names = LABEL_NAMES[source]
        splits, content = load_from_hub(source)
        check_every_class(splits["train"].labels or [], names, source)
    else:
        files = SourceFiles(Path(data_dir))
        if task == "classification":
            known = LABEL_NAMES.get(source or "")
            splits, names, notes = load_classification(files, text_columns or ["text"], label_column, known)
        elif task == "language-modeling":
            splits, notes = load_language(files, text_columns or ["text"])
        else:
            splits, notes = load_translation(files, text_columns)
        content = files.fingerprint()
    if validation_fraction:
        if "validation" in splits:
            raise UserError("there is a validation split already; leave validation_fraction out")
        train, validation = hold_out(splits["train"], validation_fraction, seed)
        splits = {"train": train, "validation": validation, **{k: v for k, v in splits.items() if k != "train"}}
    return TextData(
        name=source or files.name,
        task=task,
        splits=splits,
        label_names=names,
        fingerprint=hashlib.sha256((content + json.dumps(options, sort_keys=True)).encode()).hexdigest(),
        notes=[*notes, *_empty_texts(splits, task)],
    )


def _check_options(source: str | None, data_dir: Path | None, task: str, validation_fraction: float) -> None:
    for what, value, known in (("source", source, SOURCES), ("task", task, TASKS)):
        if value is not None and value not in known:
            raise UserError(f"there is no {what} {value!r}, only {', '.join(known)}{did_you_mean(value, known)}")
    if source is None and data_dir is None:
        raise UserError(f"name a source ({', '.join(SOURCES)}) or give a folder with your own data")
    if source is not None and task != "classification":
        raise UserError(f"{source} is for classification; for {task} give a folder with text and no source")
    if source == "cldr" and data_dir is not None:
        raise UserError("cldr is embedded and reads no folder; leave the source out to use your own data")
    if not 0 <= validation_fraction < 1:
        raise UserError(f"validation_fraction={validation_fraction} must be at least 0 and less than 1")


def _empty_texts(splits: dict[str, Examples], task: str) -> list[str]:
    """How many examples of every split have no text, or only blanks; for translation, on one side."""
    missing = any if task == "translation" else all
    counts = {
        split: sum(missing(not t.strip() for t in texts) for texts in part.texts) for split, part in splits.items()
    }
    return [f"{split}: {count} empty texts kept" for split, count in counts.items() if count]
