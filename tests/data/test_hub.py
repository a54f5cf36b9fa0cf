"""The hub, with a stand-in for `datasets`: what is asked of it, and what a missing package or network says."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lformer.data import load_data
from lformer.data.optional import MissingPackage
from lformer.settings import UserError

from .cases import write


def stand_in(monkeypatch: pytest.MonkeyPatch, load: Any) -> None:
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))


def test_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load(name: str) -> dict[str, dict[str, list[Any]]]:
        asked.append(name)
        return {split: {"text": ["bad", "good"], "label": [0, 1]} for split in ("train", "test", "unsupervised")}

    stand_in(monkeypatch, load)
    data = load_data("imdb", validation_fraction=0.0)
    assert asked == ["stanfordnlp/imdb"]
    assert list(data.splits) == ["train", "test"]
    assert data.splits["test"].texts == [("bad",), ("good",)]
    assert (data.label_names, data.splits["train"].labels) == (["neg", "pos"], [0, 1])


def test_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> None:
        raise ConnectionError("Couldn't reach the hub\nand much more")

    stand_in(monkeypatch, load)
    with pytest.raises(UserError, match=r"ag_news: cannot be loaded .*Couldn't reach the hub\); .* use --data-dir"):
        load_data("ag_news")


@pytest.mark.parametrize("package", ["datasets", "pyarrow"])
def test_missing_package(package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in [package, *(name for name in sys.modules if name.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, module, None)
    write(tmp_path, {"train.parquet": "x"})
    with pytest.raises(MissingPackage, match=rf"needs {package}: pip install 'lformer\[hub\]'"):
        load_data("imdb", tmp_path if package == "pyarrow" else None)
