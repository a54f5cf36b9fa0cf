"""Random files: they load or the user gets one line; nothing else, and nothing is written."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lformer.data import TextData, load_data
from lformer.settings import UserError

from .cases import snapshot, write

FUZZ = settings(deadline=None, derandomize=True, max_examples=150)
HEADERS = {"csv": b"text,label\n", "tsv": b"text\tlabel\n", "jsonl": b""}
ROWS = [
    b"a,x\n",
    b'"b",y\n',
    b'"',
    b'""',
    b",",
    b"\t",
    b"\r",
    b"\n",
    b"\x00",
    b"\xff",
    b"{",
    b'{"text":"a","label":1}\n',
    b"\\ud800",
    b"[1]\n",
    b"9" * 5000,
]
CONTENT = st.one_of(st.binary(max_size=200), st.lists(st.sampled_from(ROWS), max_size=12).map(b"".join))


def loads_or_explains(files: dict[str, bytes], **options: object) -> TextData | None:
    with tempfile.TemporaryDirectory() as top:
        folder = write(Path(top) / "data", files)
        before = snapshot(Path(top))
        try:
            return load_data(data_dir=folder, **options)  # type: ignore[arg-type]
        except UserError:
            return None
        finally:
            assert snapshot(Path(top)) == before


@pytest.mark.parametrize("kind", HEADERS)
@FUZZ
@given(content=CONTENT, header=st.booleans(), test=CONTENT)
def test_tables(kind: str, content: bytes, header: bool, test: bytes) -> None:
    start = HEADERS[kind] if header else b""
    files = {f"train.{kind}": start + content}
    if test:
        files[f"test.{kind}"] = start + test
    data = loads_or_explains(files)
    if data is not None:
        for split in data.splits.values():
            assert len(split.texts) == len(split.labels or [])
            assert all(0 <= label < len(data.label_names) for label in split.labels or [])


@FUZZ
@given(content=CONTENT, name=st.sampled_from(["train.txt", "input.txt", "input.xz", "train.txt.xz"]))
def test_text(content: bytes, name: str) -> None:
    data = loads_or_explains({name: content}, task="language-modeling")
    if data is not None and not name.endswith("xz"):
        whole = "".join(text for split in data.splits.values() for (text,) in split.texts)
        assert whole.encode("utf-8", "surrogateescape") == content


@FUZZ
@given(source=CONTENT, target=CONTENT)
def test_parallel(source: bytes, target: bytes) -> None:
    data = loads_or_explains({"train.en": source, "train.de": target}, task="translation", text_columns=["en", "de"])
    if data is not None:
        assert len(data.splits["train"]) >= 1


@FUZZ
@given(content=CONTENT)
def test_class_folders_and_parquet(content: bytes) -> None:
    loads_or_explains({"train/a/1.txt": content, "train/b/1.txt": content})
    assert loads_or_explains({"train.parquet": content}) is None
