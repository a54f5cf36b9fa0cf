"""Plain text keeps its bytes."""

import lzma
from pathlib import Path

import pytest

from lformer.data import load_data
from lformer.data.language import character_start, encode
from lformer.settings import UserError

from .cases import write


def load(folder: Path, **options: float) -> dict[str, bytes]:
    data = load_data(data_dir=folder, task="language-modeling", **options)
    assert data.label_names == []
    assert all(split.labels is None and len(split) == 1 for split in data.splits.values())
    return {name: encode(split.texts[0][0]) for name, split in data.splits.items()}


def test_named_splits_are_taken_as_they_are(tmp_path: Path) -> None:
    files = {"train.txt": b"\xef\xbb\xbfa\r\n\xff\x00", "validation.txt": b"b", "test.txt": b"c\n"}
    assert load(write(tmp_path, files)) == {name.removesuffix(".txt"): content for name, content in files.items()}


@pytest.mark.parametrize("name", ["input.txt", "input.xz", "input.txt.xz"])
def test_a_single_file_is_split_by_position(name: str, tmp_path: Path) -> None:
    content = bytes(range(256)) * 10
    write(tmp_path, {name: lzma.compress(content) if name.endswith("xz") else content})
    for location in (tmp_path, tmp_path / name):
        parts = load(location)
        assert list(parts) == ["train", "validation", "test"]
        assert b"".join(parts.values()) == content
        assert [len(part) for part in parts.values()] == [2304, 128, 128]


def test_no_character_is_cut(tmp_path: Path) -> None:
    parts = load(write(tmp_path, {"input.txt": "€" * 101}))
    assert "".join(part.decode("utf-8") for part in parts.values()) == "€" * 101
    assert character_start(b"\x80" * 10, 5) == 5  # not UTF-8: nothing to keep together


def test_a_file_of_any_name(tmp_path: Path) -> None:
    write(tmp_path, {"enwik": bytes(100)})
    assert [len(part) for part in load(tmp_path / "enwik").values()] == [90, 5, 5]


def test_a_fraction_is_the_end_of_the_training_text(tmp_path: Path) -> None:
    parts = load(write(tmp_path, {"train.txt": "0123456789"}), validation_fraction=0.2)
    assert parts == {"train": b"01234567", "validation": b"89"}


def test_rows_of_a_table_are_documents(tmp_path: Path) -> None:
    write(tmp_path, {"train.jsonl": '{"text": "a"}\n{"text": "b"}\n', "README.txt": "not the data"})
    data = load_data(data_dir=tmp_path, task="language-modeling")
    assert data.splits["train"].texts == [("a",), ("b",)]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"train.txt": ""}, r"train\.txt: the file is empty"),
        ({"input.txt": "abc"}, r"input\.txt: 3 bytes are too few to split"),
        ({"input.xz": "no xz"}, r"input\.xz: is not a complete \.xz file"),
        ({"input.xz": lzma.compress(b"abc" * 999)[:-9]}, r"input\.xz: is not a complete \.xz file"),
        ({"input.txt.zip": "PK"}, r"expected train\.txt.*is an archive"),
        ({"train.txt": "a", "train.csv": "text\na\n"}, r"both train\.txt and train\.csv"),
    ],
)
def test_bad_input(files: dict[str, str | bytes], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        load(write(tmp_path, files))


def test_bytes_that_are_not_utf8_are_noted_with_their_place(tmp_path: Path) -> None:
    data = load_data(data_dir=write(tmp_path, {"train.txt": b"a\nb\xffc"}), task="language-modeling")
    assert data.notes == [
        f"{tmp_path}/train.txt, line 2: byte 0xff at offset 3 is not UTF-8; only the byte tokenizer can read it"
    ]
