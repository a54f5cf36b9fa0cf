"""Prepared folders hold what the tokenizer says, and say when they are stale."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lformer.data import Examples, Prepared, TextData, load_data, prepare, train_tokenizer
from lformer.data.storage import Tokens
from lformer.data.tokenizer import decode_bytes
from lformer.settings import UserError

from .cases import ROWS, csv_of, small_data, snapshot, write


def example(prepared: Prepared, split: str, i: int) -> list[int]:
    arrays = prepared.split(split)
    return arrays.tokens[arrays.offsets[i] : arrays.offsets[i + 1]].tolist()


def test_arrays_are_the_tokenizers_output(tmp_path: Path) -> None:
    data = small_data()
    prepare(data, tmp_path / "out", max_length=5, vocab_size=300)
    prepared = Prepared.open(tmp_path / "out")
    prepared.verify()
    tokenizer = prepared.tokenizer()
    assert prepared.splits == ["train", "test"]
    for name, part in data.splits.items():
        split = prepared.split(name)
        whole = [tokenizer(text)["input_ids"] for (text,) in part.texts]
        assert [example(prepared, name, i) for i in range(len(split))] == [ids[:5] for ids in whole]
        assert split.labels is not None
        assert split.labels.tolist() == part.labels
        assert split.lengths.tolist() == [min(5, len(ids)) for ids in whole]
        assert (split.tokens.dtype, split.offsets.dtype, split.labels.dtype) == (np.uint16, np.int64, np.int64)
        assert isinstance(split.tokens, np.memmap)
        assert split.target_tokens is None
        assert prepared.manifest["splits"][name]["truncated"] == sum(len(ids) > 5 for ids in whole)
    assert (prepared.name, prepared.task, prepared.label_names) == ("small", "classification", ["neg", "pos"])
    assert (prepared.max_length, prepared.vocab_size) == (5, len(tokenizer))
    assert tokenizer(data.splits["train"].texts[0][0], truncation=True)["input_ids"] == example(prepared, "train", 0)


def test_what_just_fits_is_not_truncated() -> None:
    tokens = Tokens(np.uint16)
    tokens.add([[1, 2], [1, 2, 3], [1, 2, 3, 4], []], max_length=3)
    assert tokens.tokens().tolist() == [1, 2, 1, 2, 3, 1, 2, 3]
    assert tokens.offsets().tolist() == [0, 2, 5, 8, 8]
    assert (tokens.truncated, tokens.count) == (1, 8)


def test_the_tokenizer_sees_the_training_split_only(tmp_path: Path) -> None:
    data = small_data()
    other = replace(data, splits={**data.splits, "test": Examples([("zzzz zzzz zzzz",)] * 50, [0] * 50)})
    one, two = prepare(data, tmp_path / "1"), prepare(other, tmp_path / "2")
    key = "tokenizer/tokenizer.json"
    assert one.manifest["files"][key]["sha256"] == two.manifest["files"][key]["sha256"]


def test_empty_texts_and_several_columns(tmp_path: Path) -> None:
    data = replace(small_data(), splits={"train": Examples([("a b", "c"), ("", "")], [0, 1])})
    prepared = prepare(data, tmp_path / "out")
    a, c = (prepared.tokenizer()(text)["input_ids"] for text in ("a b", "c"))
    assert example(prepared, "train", 0) == [*a, 2, *c]
    assert example(prepared, "train", 1) == [2]


def test_translation(tmp_path: Path) -> None:
    pairs = [("a dog runs", "ein Hund läuft"), ("", ""), ("a b c d e f g h", "a b c d e f g h")]
    data = TextData("pairs", "translation", {"train": Examples(pairs)}, [], "f")
    prepared = prepare(data, tmp_path / "out", max_length=6, vocab_size=400)
    split, tokenizer = prepared.split("train"), prepared.tokenizer()
    assert split.labels is None
    assert split.target_tokens is not None
    assert split.target_offsets is not None
    sources, targets = ([tokenizer(side)["input_ids"] for side in sides] for sides in zip(*pairs, strict=True))
    assert [example(prepared, "train", i) for i in range(3)] == [sources[0][:6], [2], sources[2][:6]]
    parts = np.split(split.target_tokens, split.target_offsets[1:-1])
    assert [part.tolist() for part in parts] == [ids[:5] for ids in targets]  # room for [BOS] or [EOS]
    with pytest.raises(UserError, match="max_length=1 must be at least 2"):
        prepare(data, tmp_path / "other", max_length=1)


@pytest.mark.parametrize("kind", ["bpe", "byte"])
def test_language_model(kind: str, tmp_path: Path) -> None:
    text = "To be, or not to be.\n\nThat is the [MASK] question: Ü\n" * 3000
    write(tmp_path / "data", {"train.txt": text, "test.txt": "to be"})
    data = load_data(data_dir=tmp_path / "data", task="language-modeling")
    calls: list[tuple[str, int, int]] = []
    report = lambda *call: calls.append(call)  # noqa: E731
    prepared = prepare(data, tmp_path / "out", tokenizer_kind=kind, max_length=8, progress=report)
    split, tokenizer = prepared.split("train"), prepared.tokenizer()
    assert len(split) == 1
    assert split.tokens.tolist() == tokenizer(text, split_special_tokens=True)["input_ids"]
    assert tokenizer.decode(split.tokens) == (text if kind == "byte" else text.lower())
    assert calls[-2:] == [("train", len(text), len(text)), ("test", 5, 5)]
    assert 3 in tokenizer("a [MASK]")["input_ids"]  # a prompt may have a mask


def test_documents_have_an_end_between_them(tmp_path: Path) -> None:
    data = TextData("docs", "language-modeling", {"train": Examples([("ab",), ("",), ("c",)])}, [], "f")
    prepared = prepare(data, tmp_path / "out", tokenizer_kind="byte")
    assert prepared.split("train").tokens.tolist() == [4 + ord("a"), 4 + ord("b"), 2, 2, 4 + ord("c")]
    assert prepared.split("train").lengths.tolist() == [3, 1, 1]


def test_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    content = bytes(range(256)) * 4
    write(tmp_path / "data", {"train.txt": content})
    data = load_data(data_dir=tmp_path / "data", task="language-modeling")
    prepared = prepare(data, tmp_path / "out", tokenizer_kind="byte")
    assert decode_bytes(prepared.split("train").tokens) == content
    with pytest.raises(UserError, match=r"train\.txt, line 2: byte 0x80 at offset 128 .* use tokenizer_kind='byte'"):
        prepare(data, tmp_path / "bpe")
    assert not (tmp_path / "bpe").exists()


def test_another_tokenizer(tmp_path: Path) -> None:
    given = train_tokenizer(["some other text"], vocab_size=270)
    prepared = prepare(small_data(), tmp_path / "out", tokenizer=given)
    assert prepared.tokenizer().backend_tokenizer.to_str() == given.backend_tokenizer.to_str()
    assert prepared.stale_reasons(small_data(), tokenizer=given, vocab_size=1) == []
    assert prepared.stale_reasons(vocab_size=30_000) == []
    assert len(prepared.stale_reasons(tokenizer=None, vocab_size=30_000)) == 2
    other = train_tokenizer(["more"], vocab_size=261)
    assert prepared.stale_reasons(tokenizer=other)[0].startswith("tokenizer was ")
    other.pad_token = None
    with pytest.raises(UserError, match="the tokenizer has no pad_token"):
        prepare(small_data(), tmp_path / "two", tokenizer=other)


def test_large_vocabularies_are_int32(tmp_path: Path) -> None:
    given = train_tokenizer([], kind="byte")
    given.add_tokens([f"<{i}>" for i in range(1 << 16)])
    assert prepare(small_data(), tmp_path / "out", tokenizer=given).split("train").tokens.dtype == np.int32


def test_stale_reasons(tmp_path: Path) -> None:
    data = small_data()
    prepared = prepare(data, tmp_path / "out", vocab_size=300)
    assert prepared.stale_reasons(data) == prepared.stale_reasons(None) == []
    same = {"max_length": 128, "vocab_size": 300, "lowercase": True, "tokenizer_kind": "bpe"}
    assert prepared.stale_reasons(data, **same) == []
    assert prepared.stale_reasons(data, **{**same, "max_length": 64}) == ["max_length was 128, now 64"]
    assert prepared.stale_reasons(data, lowercase=False, vocab_size=400) == [
        "vocab_size was 300, now 400",
        "lowercase was True, now False",
    ]
    assert prepared.stale_reasons(small_data(fingerprint="other")) == ["the source small or how it is read has changed"]
    with pytest.raises(TypeError, match="not batch_size"):
        prepared.stale_reasons(data, batch_size=3)
    of_bytes = prepare(data, tmp_path / "bytes", tokenizer_kind="byte", lowercase=False)
    assert of_bytes.stale_reasons(data, **{**same, "tokenizer_kind": "byte"}) == []  # bytes have no case
    assert of_bytes.stale_reasons(data, tokenizer_kind="bpe") == ["tokenizer_kind was byte, now bpe"]


def test_a_fresh_folder_is_kept_and_a_stale_one_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare(small_data(), out, vocab_size=300)
    stamp = (out / "manifest.json").stat().st_ino
    prepare(small_data(), out, vocab_size=300)
    assert (out / "manifest.json").stat().st_ino == stamp
    assert prepare(small_data(), out, vocab_size=280).vocab_size == 280
    assert Prepared.open(out).vocab_size == 280
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_it_is_reproducible(tmp_path: Path) -> None:
    for name in ("1", "2"):
        prepare(small_data(), tmp_path / name)
    assert snapshot(tmp_path / "1") == snapshot(tmp_path / "2")


def test_progress_and_notes(tmp_path: Path) -> None:
    calls = []
    data = replace(small_data(2500), notes=["train: 3 empty texts kept"])
    prepared = prepare(data, tmp_path / "deep" / "out", progress=lambda *call: calls.append(call))
    for stage in ("tokenizer", "train"):
        assert [call for call in calls if call[0] == stage] == [(stage, n, 2500) for n in (1000, 2000, 2500)]
    assert calls[-1] == ("test", 2, 2)
    assert json.loads((prepared.path / "manifest.json").read_text())["notes"] == data.notes


def test_from_files_to_arrays_without_touching_them(tmp_path: Path) -> None:
    before = snapshot(write(tmp_path / "data", {"train.csv": csv_of(ROWS), "test.csv": csv_of(ROWS)}))
    prepared = prepare(load_data(data_dir=tmp_path / "data"), tmp_path / "out")
    assert snapshot(tmp_path / "data") == before
    assert len(prepared.split("test")) == 4
