"""The real data sets, where they lie beside the repository."""

import lzma
from collections import Counter
from pathlib import Path

import pytest

from lformer.data import load_data, prepare
from lformer.data.tokenizer import decode_bytes

from .cases import real_data


def test_imdb() -> None:
    data = load_data("imdb", real_data("imdb"))
    assert {name: Counter(split.labels) for name, split in data.splits.items()} == {
        "train": {0: 12_500, 1: 12_500},
        "test": {0: 12_500, 1: 12_500},
    }
    assert data.label_names == ["neg", "pos"]
    assert data.notes == []


def test_ag_news_71k_subset() -> None:
    data = load_data("ag_news", real_data("ag_news"), validation_fraction=0.1)
    sizes = {name: len(split) for name, split in data.splits.items()}
    assert sizes["train"] + sizes["validation"] == 71_292
    assert sizes["test"] == 7_600
    assert Counter(data.splits["validation"].labels) == {0: 1785, 1: 1799, 2: 1777, 3: 1768}
    assert data.label_names == ["World", "Sports", "Business", "Sci/Tech"]


def test_multi30k() -> None:
    data = load_data(data_dir=real_data("multi30k"), task="translation", text_columns=["en", "de"])
    assert {name: len(split) for name, split in data.splits.items()} == {
        "train": 29_000,
        "validation": 1_014,
        "test": 1_000,
    }
    assert data.splits["train"].texts[0][0].startswith("Two young, White males")
    assert data.splits["train"].texts[0][1].startswith("Zwei junge weiße Männer")


def test_tinyshakespeare(tmp_path: Path) -> None:
    folder = real_data("tinyshakespeare")
    data = load_data(data_dir=folder, task="language-modeling")
    prepared = prepare(data, tmp_path / "out", tokenizer_kind="byte")
    parts = [decode_bytes(prepared.split(name).tokens) for name in ("train", "validation", "test")]
    assert [len(part) for part in parts] == [1_003_854, 55_770, 55_770]
    assert b"".join(parts) == (folder / "input.txt").read_bytes()


@pytest.mark.parametrize("size", [1_000_000])
def test_head_of_enwik8(size: int, tmp_path: Path) -> None:
    with lzma.open(real_data("enwik8") / "enwik8.xz") as file:
        head = file.read(size)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "enwik8.xz").write_bytes(lzma.compress(head, preset=0))
    data = load_data(data_dir=tmp_path / "data", task="language-modeling")
    prepared = prepare(data, tmp_path / "out", tokenizer_kind="byte")
    assert prepared.name == "data"
    assert prepared.manifest["splits"]["train"]["tokens"] == size * 9 // 10
    assert b"".join(decode_bytes(prepared.split(name).tokens) for name in prepared.splits) == head
