"""Prepared data of a study: those that are taken without their text are those that it needs."""

from dataclasses import replace
from pathlib import Path

import pytest

from lformer.data import Examples, Prepared, TextData, prepare
from lformer.settings import UserError
from lformer.studies.reproduce import Reproduction, make_study
from lformer.studies.study import DataNeed
from lformer.studies.study_data import describe, prepare_data, subset, unfit
from lformer.train import DataSettings

SMALL = DataSettings(max_length=8, vocab_size=300)
WHOLE = DataNeed(source="imdb", settings=SMALL)
MINIATURE = replace(WHOLE, rows=8, stand_in="cldr")


def texts(folder: Path, count: int = 40) -> Path:
    """A folder with the data set in it, as --data-dir has it."""
    (folder / "imdb").mkdir(parents=True)
    for split, number in (("train", count), ("test", 10)):
        lines = [f"a film that is number {i},{i % 2}" for i in range(number)]
        (folder / "imdb" / f"{split}.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    return folder


def test_prepared_data_need_no_text(tmp_path: Path) -> None:
    made = prepare_data(WHOLE, tmp_path / "cache", texts(tmp_path / "texts"))
    found = prepare_data(WHOLE, tmp_path / "cache", None)
    assert found.manifest == made.manifest
    assert unfit(WHOLE, found) == []


@pytest.mark.parametrize(
    ("made", "needed", "reason"),
    [
        (replace(MINIATURE, stand_in=None), WHOLE, "another part of the data: 8 rows"),
        (WHOLE, MINIATURE, "another part of the data: all of them"),
        (WHOLE, replace(WHOLE, settings=replace(SMALL, max_length=9)), "max_length was 8, now 9"),
        (WHOLE, replace(WHOLE, settings=replace(SMALL, validation_fraction=0.1)), "must be held out"),
        (replace(WHOLE, settings=replace(SMALL, validation_fraction=0.1)), WHOLE, "are held out"),
        (WHOLE, replace(WHOLE, source="ag_news"), "holds imdb, not ag_news"),
    ],
)
def test_other_data_are_refused(tmp_path: Path, made: DataNeed, needed: DataNeed, reason: str) -> None:
    before = prepare_data(made, tmp_path / "cache", texts(tmp_path / "texts")).manifest
    with pytest.raises(UserError, match=rf"cache does not hold what the study needs: .*{reason}.*; choose another"):
        prepare_data(needed, tmp_path / "cache", None)
    assert Prepared.open(tmp_path / "cache").manifest == before


def test_a_stand_in_is_not_taken_for_the_data(tmp_path: Path) -> None:
    pytest.importorskip("babel", reason="no babel: pip install -e '.[demo]'")
    prepare_data(MINIATURE, tmp_path / "cache", None)
    assert prepare_data(MINIATURE, tmp_path / "cache", None).name == "cldr"
    with pytest.raises(UserError, match="it holds cldr, not imdb"):
        prepare_data(WHOLE, tmp_path / "cache", None)


def test_text_of_another_length_is_refused(tmp_path: Path) -> None:
    """The two language studies prepare the same data differently."""
    (tmp_path / "enwik8").mkdir()
    for split in ("train", "validation", "test"):
        (tmp_path / "enwik8" / f"{split}.txt").write_text("all that is known " * 40)
    (large,) = make_study("language").data.values()
    small = replace(next(iter(make_study("language-small").data.values())), validation_bytes=100)
    prepare_data(small, tmp_path / "cache", tmp_path)
    assert prepare_data(small, tmp_path / "cache", None).splits == ["train", "validation"]
    with pytest.raises(UserError, match="100 bytes of validation"):
        prepare_data(large, tmp_path / "cache", None)
    with pytest.raises(UserError, match="100 bytes of validation"):
        prepare_data(replace(small, validation_bytes=200), tmp_path / "cache", None)


def test_a_subset_is_called_one(tmp_path: Path) -> None:
    """Of 25,000 reviews."""
    some = prepare_data(WHOLE, tmp_path / "some", texts(tmp_path / "texts"))
    assert subset(WHOLE, some) == ", 40 subset"
    assert "40 of the 25,000 training texts" in describe(WHOLE, some)
    work = Reproduction(make_study("paper"), tmp_path / "out", prepared={"imdb": some})
    assert work._about("imdb-128")["title"] == "IMDB, d=128, 20 epochs, 40 subset"
    many = Examples([("good",), ("bad",)] * 12_500, [1, 0] * 12_500)
    all_of_them = TextData("imdb", "classification", {"train": many, "test": many}, ["neg", "pos"], "all", [])
    whole = prepare(all_of_them, tmp_path / "whole", max_length=8, vocab_size=300)
    assert subset(WHOLE, whole) == ""
    assert describe(WHOLE, whole) == "IMDB, 25,000 training and 25,000 test texts"
    part = prepare(replace(all_of_them, splits={"train": many.take(range(7_123)), "test": many}), tmp_path / "part")
    assert subset(WHOLE, part) == ", 7k subset"
    assert subset(MINIATURE, part) == ""
