"""A prepared folder: token arrays, the tokenizer and a manifest. It needs neither the text nor what loaded it."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerFast

from lformer.data.examples import SPLITS, TASKS, TextData
from lformer.settings import UserError

FORMAT = "lformer-prepared"
VERSION = 1
MANIFEST = "manifest.json"
TOKENIZER = "tokenizer"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
ARRAYS = ("tokens", "offsets", "labels", "target_tokens", "target_offsets")
SETTINGS = ("max_length", "vocab_size", "lowercase", "tokenizer_kind", "tokenizer")


@dataclass(frozen=True)
class TokenSplit:
    """One split as arrays: example i is `tokens[offsets[i] : offsets[i + 1]]`."""

    tokens: np.ndarray
    """uint16, or int32 where the vocabulary is larger; memory-mapped; all examples one after another."""
    offsets: np.ndarray
    """int64, one more than examples."""
    labels: np.ndarray | None = None
    """int64; classification."""
    target_tokens: np.ndarray | None = None
    """As tokens; translation."""
    target_offsets: np.ndarray | None = None
    """As offsets; translation."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens of every example. int64."""
        return np.diff(self.offsets)


def array_file(split: str, array: str) -> str:
    return f"{split}.{array}.npy"


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def tokenizer_hash(tokenizer: PreTrainedTokenizerFast) -> str:
    """SHA-256 of a tokenizer that was given, to notice another one."""
    return hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest()


def resolved_settings(**settings: Any) -> dict[str, Any]:
    """The settings that matter: bytes have no case and 260 types, and a given tokenizer is what it is."""
    settings = dict(settings)
    given = settings.get("tokenizer")
    if isinstance(given, PreTrainedTokenizerFast):
        settings["tokenizer"] = tokenizer_hash(given)
    if given is not None:
        settings.update(dict.fromkeys(settings.keys() & {"vocab_size", "lowercase", "tokenizer_kind"}))
    elif settings.get("tokenizer_kind") == "byte":
        settings.update(dict.fromkeys(settings.keys() & {"vocab_size", "lowercase"}))
    return settings


class Prepared:
    """A prepared folder, opened to read."""

    def __init__(self, path: Path, manifest: dict[str, Any]):
        self.path = path
        self.manifest = manifest
        self.name: str = manifest["name"]
        self.task: str = manifest["task"]
        self.label_names: list[str] = manifest["label_names"]
        self.max_length: int = manifest["settings"]["max_length"]
        self.vocab_size: int = manifest["vocab_size"]

    @classmethod
    def open(cls, path: Path) -> "Prepared":
        """The folder, whose manifest and file sizes are checked; `verify` checks the contents too."""
        path = Path(path).expanduser()
        prepared = cls(path, read_manifest(path))
        for name, record in prepared.manifest["files"].items():
            file = path / name
            if not file.is_file():
                raise _damaged(path, f"{name} is missing")
            if file.stat().st_size != record["bytes"]:
                raise _damaged(path, f"{name} has {file.stat().st_size} bytes, not {record['bytes']}")
        return prepared

    def verify(self) -> None:
        """Reads every file and compares its SHA-256 with the manifest's."""
        for name, record in self.manifest["files"].items():
            if sha256_of(self.path / name) != record["sha256"]:
                raise _damaged(self.path, f"the contents of {name} have changed")

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """The tokenizer that made the arrays."""
        return PreTrainedTokenizerFast.from_pretrained(self.path / TOKENIZER, local_files_only=True)

    @property
    def splits(self) -> list[str]:
        """The names of the splits there are."""
        return list(self.manifest["splits"])

    def split(self, name: str) -> TokenSplit:
        """One split, its tokens memory-mapped."""
        if name not in self.splits:
            raise UserError(f"{self.path}: there is no {name} split, only {', '.join(self.splits)}")
        arrays = {array: self._array(name, array) for array in ARRAYS if array_file(name, array) in self._files}
        try:
            split = TokenSplit(**arrays)
            _check_offsets(split.offsets, split.tokens)
            if split.target_offsets is not None and split.target_tokens is not None:
                _check_offsets(split.target_offsets, split.target_tokens)
                _require(len(split.target_offsets) == len(split.offsets), "there are more sources than targets")
            if split.labels is not None:
                _require(len(split.labels) == len(split), "there are not as many labels as examples")
                _require(bool(np.isin(split.labels, range(len(self.label_names))).all()), "a label has no name")
        except (TypeError, ValueError) as error:
            raise _damaged(self.path, f"the {name} split: {error}") from error
        return split

    @property
    def _files(self) -> dict[str, Any]:
        return self.manifest["files"]

    def _array(self, split: str, array: str) -> np.ndarray:
        file = self.path / array_file(split, array)
        try:
            loaded: np.ndarray = np.load(file, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise _damaged(self.path, f"{file.name} is not an array: {error}") from error
        return loaded if array.endswith("tokens") else np.array(loaded)

    def stale_reasons(self, data: TextData | None = None, **settings: Any) -> list[str]:
        """How the data and the settings, those that are given, differ from what was prepared; [] if they do not."""
        unknown = settings.keys() - set(SETTINGS)
        if unknown:
            raise TypeError(f"stale_reasons() knows {', '.join(SETTINGS)}, not {', '.join(sorted(unknown))}")
        reasons = []
        if data is not None:
            if data.task != self.task:
                reasons.append(f"task was {self.task}, now {data.task}")
            if data.fingerprint != self.manifest["fingerprint"]:
                reasons.append(f"the source {data.name} or how it is read has changed")
        recorded = self.manifest["settings"]
        for key, value in resolved_settings(**{**recorded, **settings}).items():
            if key in settings and value != recorded[key]:
                reasons.append(f"{key} was {recorded[key]}, now {value}")
        return reasons


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a prepared folder, checked as far as the rest of this file relies on it."""
    if not path.is_dir():
        raise UserError(f"{path}: there is no such folder; make it with lformer prepare")
    file = path / MANIFEST
    if not file.is_file():
        raise UserError(f"{path}: is not a prepared folder: it has no {MANIFEST}; make one with lformer prepare")
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, f"{MANIFEST} cannot be read: {str(error)[:200]}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise UserError(f"{path}: is not a prepared folder: its {MANIFEST} is not one of lformer's")
    if manifest.get("version") != VERSION:
        raise UserError(
            f"{path}: is of format {manifest.get('version')}, this lformer reads {VERSION}; prepare it again elsewhere"
        )
    try:
        _check_manifest(manifest)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(path, f"{MANIFEST}: {type(error).__name__} {error}") from error
    return manifest


def _check_manifest(manifest: dict[str, Any]) -> None:
    _require(isinstance(manifest["name"], str), "name")
    _require(isinstance(manifest["fingerprint"], str), "fingerprint")
    _require(manifest["task"] in TASKS, "task")
    _require(all(isinstance(name, str) for name in manifest["label_names"]), "label_names")
    _require(set(manifest["settings"]) == set(SETTINGS), "settings")
    _require(type(manifest["settings"]["max_length"]) is int and type(manifest["vocab_size"]) is int, "sizes")
    _require("train" in manifest["splits"] and set(manifest["splits"]) <= set(SPLITS), "splits")
    known = {f"{TOKENIZER}/{name}" for name in TOKENIZER_FILES}
    known |= {array_file(split, array) for split in SPLITS for array in ARRAYS}
    _require(set(manifest["files"]) <= known, "files")  # names from outside never lead outside
    for record in manifest["files"].values():
        _require(type(record["bytes"]) is int and isinstance(record["sha256"], str), "files")
    needed = {array_file(split, array) for split in manifest["splits"] for array in ("tokens", "offsets")}
    _require({f"{TOKENIZER}/tokenizer.json", *needed} <= set(manifest["files"]), "files")


def _check_offsets(offsets: np.ndarray, tokens: np.ndarray) -> None:
    right = offsets.ndim == 1 and len(offsets) > 0 and offsets[0] == 0 and bool((np.diff(offsets) >= 0).all())
    _require(right and tokens.ndim == 1 and offsets[-1] == len(tokens), "the offsets do not fit the tokens")


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(what)


def _damaged(path: Path, what: str) -> UserError:
    return UserError(f"{path}: the prepared folder is damaged ({what}); delete it and run lformer prepare again")
