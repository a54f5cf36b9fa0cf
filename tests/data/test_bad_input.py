"""Every mistake in the user's files is one line that names the file and the row."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lformer.data import load_data
from lformer.settings import UserError

from .cases import ROWS, csv_of, jsonl_of, write

GOOD = csv_of(ROWS)
# name: (files, options, what the message must say)
CASES: dict[str, tuple[Mapping[str, str | bytes], dict[str, Any], str]] = {
    "missing column": (
        {"train.csv": "txt,label\na,b\n"},
        {},
        r"train\.csv: there is no column 'text', only 'txt', 'label'; did you mean 'txt'\?",
    ),
    "missing label column": ({"train.jsonl": '{"text": "a", "y": 1}'}, {}, r"train\.jsonl: there is no column 'label'"),
    "a row without the column": (
        {"train.jsonl": jsonl_of(ROWS) + '{"text": "a"}'},
        {},
        r"train\.jsonl, line 5: there is no 'label'",
    ),
    "column twice": ({"train.csv": "text,text,label\n"}, {}, r"train\.csv: the column 'text' is there twice"),
    "empty file": ({"train.csv": ""}, {}, r"train\.csv: the file is empty"),
    "only a header": ({"train.csv": "text,label\n"}, {}, r"train\.csv: there is no row"),
    "only blank lines": ({"train.csv": "\n\n"}, {}, r"train\.csv: the file has no line that names the columns"),
    "empty jsonl": ({"train.jsonl": "\n"}, {}, r"train\.jsonl: there is no row"),
    "unknown label in test": (
        {"train.csv": GOOD, "test.csv": "text,label\na,pos\nb,meh\n"},
        {},
        r"test\.csv, line 3: the label 'meh' is not in the training split, which has neg, pos",
    ),
    "unknown label in validation": (
        {"train.csv": GOOD, "dev.csv": "text,label\nb,meh\n"},
        {},
        r"dev\.csv, line 2: the label 'meh'",
    ),
    "label of no known class": (
        {"train.csv": "text,label\na,0\nb,4\n"},
        {"source": "ag_news"},
        r"train\.csv, line 3: the label '4' is not one of World, Sports, Business, Sci/Tech or 0 to 3",
    ),
    "class absent from training": (
        {"train.csv": "text,label\na,0\nb,1\nc,2\n"},
        {"source": "ag_news"},
        r"the class 'Sci/Tech' has no example in the training split",
    ),
    "class folder without text": (
        {"train/a/1.txt": "a", "train/b/1.md": "b"},
        {},
        r"the class 'b' has no example in the training split",
    ),
    "class folder only in test": (
        {"train/a/1.txt": "a", "train/b/1.txt": "b", "test/c/1.txt": "c"},
        {},
        r"test/c/1\.txt: the label 'c' is not in the training split",
    ),
    "one class": ({"train.csv": "text,label\na,x\nb,x\n"}, {}, r"there is only one class \('x'\)"),
    "one class folder": ({"train/a/1.txt": "a"}, {}, r"there is only one class \('a'\)"),
    "empty label": ({"train.csv": "text,label\na,x\nb,\n"}, {}, r"train\.csv, line 3: the label 'label' is ''"),
    "null label": (
        {"train.jsonl": jsonl_of([("a", 1), ("b", None)])},
        {},
        r"train\.jsonl, line 2: the label 'label' is None",
    ),
    "fractional label": (
        {"train.jsonl": jsonl_of([("a", 1), ("b", 1.5)])},
        {},
        r"train\.jsonl, line 2: the label 'label' is 1\.5",
    ),
    "text that is none": (
        {"train.jsonl": '{"text": "a", "label": 1}\n{"text": null, "label": 0}'},
        {},
        r"train\.jsonl, line 2: 'text' is no text but null",
    ),
    "half a surrogate": (
        {"train.jsonl": '{"text": "\\ud800", "label": 1}'},
        {},
        r"train\.jsonl, line 1: 'text' has half of a surrogate",
    ),
    "not UTF-8": (
        {"train.csv": b"text,label\na,x\nb\xff,y\n"},
        {},
        r"train\.csv, line 3: byte 0xff at offset 16 is not UTF-8",
    ),
    "not UTF-8 in jsonl": (
        {"train.jsonl": b'{"text": "\xe9", "label": 1}'},
        {},
        r"train\.jsonl, line 1: byte 0xe9 at offset 10 is not UTF-8",
    ),
    "not UTF-8 in a class folder": (
        {"train/a/1.txt": b"\x80", "train/b/1.txt": "b"},
        {},
        r"train/a/1\.txt, line 1: byte 0x80",
    ),
    "quote never closed": ({"train.csv": 'text,label\na,x\n"b,y\nc,x\n'}, {}, r"train\.csv, line 3: broken quoting"),
    "quote closed too early": ({"train.csv": 'text,label\na,x\n"b" b,y\n'}, {}, r"train\.csv, line 3: broken quoting"),
    "too many fields": (
        {"train.csv": "text,label\na,x\nb, b,y\n"},
        {},
        r"train\.csv, line 3: 3 fields, but the first line names 2",
    ),
    "row after a long one": ({"train.csv": 'text,label\n"a\n\na",x\nb\n'}, {}, r"train\.csv, line 5: 1 fields"),
    "not a parquet file": ({"train.parquet": "text,label\na,x\n"}, {}, r"train\.parquet: is not a parquet file"),
    "not JSON": ({"train.jsonl": '{"text": "a", "label": 1}\n{"text": '}, {}, r"train\.jsonl, line 2: is not JSON"),
    "not an object": (
        {"train.jsonl": '{"text": "a", "label": 1}\n\n["b", 2]'},
        {},
        r"train\.jsonl, line 3: is not a JSON object",
    ),
    "deep JSON": ({"train.jsonl": "[" * 200_000}, {}, r"train\.jsonl, line 1: is not JSON"),
    "two training files": (
        {"train.csv": GOOD, "train.jsonl": jsonl_of(ROWS)},
        {},
        r"several files for the train split \(train\.csv, train\.jsonl\)",
    ),
    "file and folder": ({"train.csv": GOOD, "train/a/1.txt": "a"}, {}, r"both train\.csv and the folder train/"),
    "no training file": ({"test.csv": GOOD}, {}, r"none of test\.csv is the training split; name it train\.csv"),
    "which one": ({"a.csv": GOOD, "b.csv": GOOD}, {}, r"none of a\.csv, b\.csv is the training split"),
    "archive": ({"data.zip": "PK"}, {}, r"expected train\.csv.*data\.zip is an archive: unpack it yourself first"),
    "compressed table": ({"train.csv.gz": "\x1f"}, {}, r"train\.csv\.gz is an archive"),
    "nothing": ({}, {}, r"there is no file; expected train\.csv"),
    "text column is the label": (
        {"train.csv": GOOD},
        {"text_columns": ["label"]},
        r"'label' is asked for as text and as label",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_one_clear_line(name: str, tmp_path: Path) -> None:
    files, options, message = CASES[name]
    with pytest.raises(UserError, match=message) as error:
        load_data(data_dir=write(tmp_path, files), **options)
    assert "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value) or name == "text column is the label"


@pytest.mark.parametrize(
    "damage", [lambda b: b[: len(b) // 2], lambda b: b[:-4] + b"XXXX", lambda b: b[:-8] + b"\xff" * 4 + b"PAR1"]
)
def test_damaged_parquet(damage: Any, tmp_path: Path) -> None:
    path = tmp_path / "train.parquet"
    pq.write_table(pa.table({"text": ["a", "b"], "label": [0, 1]}), path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=r"train\.parquet: is not a parquet file, or a damaged one"):
        load_data(data_dir=tmp_path)


def test_rows_of_a_parquet_file_are_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a", None], "label": [0, 1]}), tmp_path / "train.parquet")
    with pytest.raises(UserError, match=r"train\.parquet, row 2: 'text' is no text but null"):
        load_data(data_dir=tmp_path)
    pq.write_table(pa.table({"text": [b"\xff"], "label": [0]}), tmp_path / "train.parquet")
    with pytest.raises(UserError, match=r"train\.parquet, row 1: 'text' is no text but bytes"):
        load_data(data_dir=tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "name a source .imdb, ag_news, cldr. or give a folder"),
        ({"source": "imbd"}, "there is no source 'imbd', only imdb, ag_news, cldr; did you mean imdb?"),
        ({"source": "imdb", "task": "translate"}, "there is no task 'translate'.*did you mean translation?"),
        ({"source": "imdb", "task": "translation"}, "imdb is for classification"),
        ({"source": "cldr", "data_dir": Path("x")}, "cldr is embedded"),
        ({"source": "cldr", "validation_fraction": 1.0}, "validation_fraction=1.0 must be at least 0 and less than 1"),
        ({"source": "cldr", "validation_fraction": 0.1}, "there is a validation split already"),
        ({"data_dir": Path("/nowhere/at/all")}, "/nowhere/at/all: there is no such file or folder"),
        ({"data_dir": Path("x" * 5000)}, "cannot be read|there is no such file or folder"),
    ],
)
def test_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_data(**options)


def test_a_file_that_is_no_table(tmp_path: Path) -> None:
    write(tmp_path, {"a.tar.gz": "x"})
    with pytest.raises(UserError, match=re.escape(f"{tmp_path}/a.tar.gz: is not one of .parquet, .csv, .tsv, .jsonl")):
        load_data(data_dir=tmp_path / "a.tar.gz")
