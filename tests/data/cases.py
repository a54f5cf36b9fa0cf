"""Small data folders made on the spot, and where the real ones lie."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from lformer.data import Examples, TextData

REAL = Path(__file__).parents[3] / "shared" / "data"
ROWS = [("a good film", "pos"), ("a bad film", "neg"), ("very good", "pos"), ("so bad", "neg")]


def real_data(name: str) -> Path:
    if not (REAL / name).is_dir():
        pytest.skip(f"{REAL / name} is not there: the real data is not part of the repository")
    return REAL / name


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def csv_of(rows: list[tuple[str, str]]) -> str:
    return "text,label\n" + "".join(f"{text},{label}\n" for text, label in rows)


def jsonl_of(rows: list[tuple[str, object]]) -> str:
    return "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows)


def small_data(n: int = 12, fingerprint: str = "f" * 64) -> TextData:
    texts = [(f"the film number {i} is {'good' if i % 2 else 'bad'}",) for i in range(n)]
    train = Examples(texts, [i % 2 for i in range(n)])
    return TextData(
        "small", "classification", {"train": train, "test": train.take([0, 1])}, ["neg", "pos"], fingerprint
    )


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
