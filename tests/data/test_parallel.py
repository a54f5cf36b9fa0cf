"""Parallel text."""

from pathlib import Path

import pytest

from lformer.data import load_data
from lformer.settings import UserError

from .cases import write

PAIRS = [("a dog", "ein Hund"), ("a cat", "eine Katze")]


@pytest.mark.parametrize(
    "files",
    [
        {"train.csv": "en,de\na dog,ein Hund\na cat,eine Katze\n"},
        {"train.jsonl": '{"id": 1, "de": "ein Hund", "en": "a dog"}\n{"id": 2, "de": "eine Katze", "en": "a cat"}\n'},
        {"train.en": "a dog\na cat\n", "train.de": "ein Hund\r\neine Katze"},
        {"corpus.en": "a dog\na cat\n", "corpus.de": "ein Hund\neine Katze\n", "README.md": "about"},
    ],
)
def test_every_format_gives_the_same(files: dict[str, str], tmp_path: Path) -> None:
    data = load_data(data_dir=write(tmp_path, files), task="translation", text_columns=["en", "de"])
    assert data.splits["train"].texts == PAIRS
    assert data.splits["train"].labels is None
    back = load_data(data_dir=tmp_path, task="translation", text_columns=["de", "en"])
    assert back.splits["train"].texts == [pair[::-1] for pair in PAIRS]


def test_two_columns_need_no_names(tmp_path: Path) -> None:
    data = load_data(data_dir=write(tmp_path, {"train.csv": "en,de\na,b\n,c\n"}), task="translation")
    assert data.splits["train"].texts == [("a", "b"), ("", "c")]
    assert data.notes == ["source 'en', target 'de': the order of the columns", "train: 1 empty texts kept"]


@pytest.mark.parametrize(
    ("files", "columns", "message"),
    [
        ({"train.en": "a\nb\n", "train.de": "c\n"}, ["en", "de"], r"train\.en has 2 lines and .*train\.de has 1"),
        ({"train.en": "a", "train.de": ""}, ["en", "de"], r"train\.de: the file is empty"),
        ({"train.en": "a", "train.de": b"\xff"}, ["en", "de"], r"train\.de, line 1: byte 0xff"),
        ({"train.en": "a"}, ["en", "de"], r"there is only train\.en; expected"),
        ({"train.en": "a", "train.de": "b", "test.en": "c"}, ["en", "de"], r"the test split is there in one language"),
        ({"train.en": "a", "train.de": "b"}, None, r"say which text columns are source and target"),
        ({"train.csv": "a,b,c\n1,2,3\n"}, None, r"train\.csv: has the columns a, b, c; say which two"),
        ({"train.csv": "en,de\na,b\n"}, ["en"], r"needs two different text columns"),
        ({"train.csv": "en,de\na,b\n"}, ["en", "fr"], r"train\.csv: there is no column 'fr', only 'en', 'de'"),
    ],
)
def test_bad_input(files: dict[str, str | bytes], columns: list[str] | None, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        load_data(data_dir=write(tmp_path, files), task="translation", text_columns=columns)
