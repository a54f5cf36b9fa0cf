"""Labelled text from local files: tables with a text and a label column, or a folder of .txt files per class."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lformer.data.columns import label_keys, text_fields
from lformer.data.examples import Examples
from lformer.data.files import TABLES, SourceFiles, listing
from lformer.data.labels import check_every_class, label_indices, label_set
from lformer.data.tables import Table, read_table
from lformer.settings import UserError

EXPECTED = "train.csv, .tsv, .jsonl or .parquet (and test.*, validation.*), or folders train/CLASS with .txt files"


@dataclass(frozen=True)
class RawSplit:
    """A split whose labels are still strings."""

    texts: list[tuple[str, ...]]
    keys: list[str]
    where: Callable[[int], str]
    """The place of an example, for error messages."""


def load_classification(
    files: SourceFiles, text_columns: list[str], label_column: str, label_names: list[str] | None
) -> tuple[dict[str, Examples], list[str], list[str]]:
    """The splits, the label names and the notes. With label names given, other classes are mistakes."""
    if label_column in text_columns:
        raise UserError(f"the column {label_column!r} is asked for as text and as label; name the text columns")
    notes: list[str] = []
    tables, folders = files.by_split(TABLES), files.class_folders()
    if "train" in folders and "train" in tables:
        raise UserError(f"{files.root}: both {tables['train'][0].name} and the folder train/ are there; keep one")
    raw: dict[str, RawSplit]
    if "train" in folders:
        names = label_names or sorted(folders["train"])
        raw = {split: _read_folders(files, classes, label_names, notes) for split, classes in folders.items()}
    elif "train" in tables:
        raw = {split: _read_tables(files, paths, text_columns, label_column) for split, paths in tables.items()}
        names = label_names or label_set(raw["train"].keys, str(files.location))
    else:
        raise files.nothing_found(EXPECTED)
    if len(names) < 2:
        raise UserError(f"{files.root}: there is only one class ({names[0]!r}); a classifier needs two or more")
    splits = {}
    for split, part in raw.items():
        labels = label_indices(part.keys, names, label_names is not None, split, part.where)
        splits[split] = Examples(part.texts, labels)
    check_every_class(splits["train"].labels or [], names, str(files.location))
    return splits, names, notes


def _read_tables(files: SourceFiles, paths: list[Path], text_columns: list[str], label_column: str) -> RawSplit:
    texts: list[tuple[str, ...]] = []
    keys: list[str] = []
    rows: list[tuple[Table, int]] = []
    for path in paths:
        table = read_table(files, path, [*text_columns, label_column])
        texts += text_fields(table, text_columns)
        keys += label_keys(table, label_column)
        rows += [(table, row) for row in range(len(table))]
    return RawSplit(texts, keys, lambda i: rows[i][0].where(rows[i][1]))


def _read_folders(
    files: SourceFiles, classes: dict[str, Path], label_names: list[str] | None, notes: list[str]
) -> RawSplit:
    texts: list[tuple[str, ...]] = []
    keys: list[str] = []
    paths: list[Path] = []
    for name, folder in classes.items():
        if label_names is not None and name not in label_names:  # aclImdb/train/unsup
            notes.append(f"{folder}: not one of the classes {', '.join(label_names)}, left out")
            continue
        everything = [path for path in listing(folder) if path.is_file()]
        wanted = [path for path in everything if path.suffix.lower() == ".txt"]
        if len(wanted) < len(everything):
            notes.append(f"{folder}: {len(everything) - len(wanted)} files that are not .txt left out")
        texts += [(files.read_text(path, may_be_empty=True),) for path in wanted]
        keys += [name] * len(wanted)
        paths += wanted
    return RawSplit(texts, keys, lambda i: str(paths[i]))
