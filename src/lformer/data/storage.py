"""Token ids gathered into arrays, and files written so that they survive a crash of the machine."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np


class Tokens:
    """The tokens of one split, gathered batch by batch."""

    def __init__(self, dtype: type[np.generic]):
        self.dtype = dtype
        self.count = 0
        self.truncated = 0
        self._parts: list[np.ndarray] = []
        self._lengths: list[int] = []

    def add(self, examples: list[list[int]], max_length: int) -> None:
        """Examples, each cut to its first `max_length` ids."""
        self.truncated += sum(len(ids) > max_length for ids in examples)
        cut = [ids[:max_length] for ids in examples]
        self._parts.append(np.array([i for ids in cut for i in ids], dtype=self.dtype))
        self._lengths += [len(ids) for ids in cut]
        self.count += len(self._parts[-1])

    def add_document(self, parts: list[np.ndarray]) -> None:
        """One example in parts, in full length."""
        length = sum(len(part) for part in parts)
        self._parts += parts
        self._lengths.append(length)
        self.count += length

    def tokens(self) -> np.ndarray:
        """All ids one after another."""
        return np.concatenate([*self._parts, np.array([], dtype=self.dtype)]).astype(self.dtype, copy=False)

    def offsets(self) -> np.ndarray:
        """Where every example begins, and where the last one ends. int64."""
        return np.concatenate([[0], np.cumsum(self._lengths, dtype=np.int64)]).astype(np.int64)


def write_array(path: Path, array: np.ndarray) -> None:
    """An .npy file, on the disk when this returns."""
    with path.open("wb") as file:
        np.save(file, array, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())


def write_json(path: Path, value: Any) -> None:
    """A JSON file, on the disk when this returns."""
    with path.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=2, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
