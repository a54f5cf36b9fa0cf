"""The embedded data set."""

import sys
from collections import Counter

import pytest

from lformer.data import load_data
from lformer.data.cldr import LANGUAGES

babel = pytest.importorskip("babel", reason="no babel: pip install -e '.[demo]'")


def test_counts() -> None:
    data = load_data("cldr")
    sizes = {name: len(split) for name, split in data.splits.items()}
    total = sum(sizes.values())
    if babel.__version__ == "2.18.0":
        assert sizes == {"train": 10339, "validation": 1292, "test": 1293}
        assert data.fingerprint == "49f816ecc81e34ffbdd839fcaa8e4986df0dfbc28f7d94cc2e2a337988bcdbe5"
    assert 12_000 < total < 14_000
    assert sizes["train"] == total * 80 // 100
    assert data.label_names == list(LANGUAGES)
    assert len(LANGUAGES) == 16
    for split in data.splits.values():
        assert set(split.labels or []) == set(range(16))
        assert max(Counter(split.labels).values()) < 2 * total / 16


def test_a_string_has_one_language_and_one_split() -> None:
    data = load_data("cldr")
    texts = [text for split in data.splits.values() for (text,) in split.texts]
    assert len(texts) == len(set(texts))
    assert all(text == text.strip() != "" for text in texts)
    examples = {
        text: label
        for split in data.splits.values()
        for (text,), label in zip(split.texts, split.labels or [], strict=True)
    }
    assert LANGUAGES[examples["Deutschland"]] == "de"
    assert LANGUAGES[examples["Magyarország"]] == "hu"
    assert "Portugal" not in examples


def test_it_is_the_same_every_time() -> None:
    assert load_data("cldr") == load_data("cldr", seed=7)


def test_without_babel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "babel", None)
    monkeypatch.setitem(sys.modules, "babel.core", None)
    with pytest.raises(ImportError, match=r"the data set cldr needs babel: pip install 'lformer\[demo\]'"):
        load_data("cldr")
