"""Labelled text: the same examples come out of every format."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lformer.data import load_data

from .cases import ROWS, csv_of, jsonl_of, snapshot, write

TEXTS = [(text,) for text, _ in ROWS]
LABELS = [1, 0, 1, 0]


def parquet_of(rows: list[tuple[str, object]], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"text": [t for t, _ in rows], "label": [label for _, label in rows]}), path)


def make(kind: str, folder: Path) -> Path:
    if kind == "parquet":
        for split in ("train", "test"):
            parquet_of(ROWS, folder / f"{split}.parquet")
    elif kind == "shards":
        parquet_of(ROWS[:3], folder / "train-00000-of-00002.parquet")
        parquet_of(ROWS[3:], folder / "train-00001-of-00002.parquet")
        parquet_of(ROWS, folder / "test-00000-of-00001.parquet")
    else:
        content = {"csv": csv_of(ROWS), "tsv": csv_of(ROWS).replace(",", "\t"), "jsonl": jsonl_of(ROWS)}[kind]
        write(folder, {f"train.{kind}": content, f"test.{kind}": content})
    return folder


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet", "shards"])
def test_every_format_gives_the_same(kind: str, tmp_path: Path) -> None:
    before = snapshot(make(kind, tmp_path))
    data = load_data(data_dir=tmp_path)
    assert data.label_names == ["neg", "pos"]
    assert list(data.splits) == ["train", "test"]
    for split in data.splits.values():
        assert split.texts == TEXTS
        assert split.labels == LABELS
    assert data.name == tmp_path.name
    assert data.notes == []
    assert snapshot(tmp_path) == before


def test_a_folder_per_class(tmp_path: Path) -> None:
    files = {f"{split}/{label}/{i}.txt": text for split in ("train", "test") for i, (text, label) in enumerate(ROWS)}
    write(tmp_path, {**files, "train/urls.txt": "left out", "train/pos/list.csv": "left out"})
    data = load_data(data_dir=tmp_path)
    assert data.label_names == ["neg", "pos"]
    assert data.splits["train"].texts == [("a bad film",), ("so bad",), ("a good film",), ("very good",)]
    assert data.splits["test"].labels == [0, 0, 1, 1]
    assert data.notes == [f"{tmp_path}/train/pos: 1 files that are not .txt left out"]


def test_imdb_as_it_is_distributed_leaves_the_unlabelled_folder_out(tmp_path: Path) -> None:
    write(tmp_path, {"train/pos/0_9.txt": "good", "train/neg/0_1.txt": "bad", "train/unsup/0_0.txt": "?"})
    data = load_data("imdb", tmp_path)
    assert (data.name, data.label_names) == ("imdb", ["neg", "pos"])
    assert data.splits["train"].labels == [0, 1]
    assert "unsup: not one of the classes neg, pos" in data.notes[0]


@pytest.mark.parametrize("labels", [[0, 1, 2, 3], ["World", "Sports", "Business", "Sci/Tech"], ["0", "1", "2", "3"]])
def test_known_sources_take_numbers_and_names(labels: list[object], tmp_path: Path) -> None:
    write(tmp_path, {"train.jsonl": jsonl_of([(str(label), label) for label in labels])})
    data = load_data("ag_news", tmp_path)
    assert data.label_names == ["World", "Sports", "Business", "Sci/Tech"]
    assert data.splits["train"].labels == [0, 1, 2, 3]


def test_a_single_file_and_several_text_columns(tmp_path: Path) -> None:
    write(tmp_path, {"reviews.csv": 'kind,title,body\n10,"A, B","line\nline"\n9,C,"say ""d"""\n'})
    for location in (tmp_path, tmp_path / "reviews.csv"):
        data = load_data(data_dir=location, text_columns=["title", "body"], label_column="kind")
        assert data.splits["train"].texts == [("A, B", "line\nline"), ("C", 'say "d"')]
        assert data.label_names == ["9", "10"]  # integers by size
        assert data.splits["train"].labels == [1, 0]
    assert data.name == "reviews"


def test_integers_of_every_spelling_are_one_label(tmp_path: Path) -> None:
    parquet_of([("a", 1.0), ("b", 2.0)], tmp_path / "train.parquet")
    write(tmp_path, {"validation.csv": "text,label\nc,2\n", "test.jsonl": jsonl_of([("d", 1)])})
    data = load_data(data_dir=tmp_path)
    assert list(data.splits) == ["train", "validation", "test"]
    assert [split.labels for split in data.splits.values()] == [[0, 1], [1], [0]]


def test_byte_order_mark_blank_lines_and_windows_line_ends(tmp_path: Path) -> None:
    write(tmp_path, {"train.csv": b"\xef\xbb\xbftext,label\r\na,x\r\n\r\nb,y\r\n"})
    assert load_data(data_dir=tmp_path).splits["train"].texts == [("a",), ("b",)]
    write(tmp_path, {"train.csv": "\ufefftext,label\n" + "long " * 100_000 + ",x\nb,y\n"})
    assert len(load_data(data_dir=tmp_path).splits["train"].texts[0][0]) == 500_000


def test_empty_texts_are_kept_and_counted(tmp_path: Path) -> None:
    write(tmp_path, {"train.csv": "text,label\n,x\n  ,y\nc,y\n"})
    data = load_data(data_dir=tmp_path)
    assert data.splits["train"].texts == [("",), ("  ",), ("c",)]
    assert data.notes == ["train: 2 empty texts kept"]
    write(tmp_path / "folders", {"train/x/1.txt": "", "train/y/1.txt": "b"})
    assert load_data(data_dir=tmp_path / "folders").notes == ["train: 1 empty texts kept"]


def test_fingerprint_follows_contents_and_options_not_the_place(tmp_path: Path) -> None:
    one, two = write(tmp_path / "1", {"train.csv": csv_of(ROWS)}), write(tmp_path / "2", {"train.csv": csv_of(ROWS)})
    first = load_data(data_dir=one).fingerprint
    assert load_data(data_dir=two).fingerprint == first
    assert load_data(data_dir=one, validation_fraction=0.5).fingerprint != first
    write(two, {"train.csv": csv_of([*ROWS[:-1], ("so bad!", "neg")])})
    assert load_data(data_dir=two).fingerprint != first
