"""The held-out split: of every class, by the seed, the same everywhere."""

from collections import Counter
from pathlib import Path

import pytest

from lformer.data import Examples, load_data
from lformer.data.holdout import hold_out, shuffled
from lformer.settings import UserError

from .cases import write


def test_every_class_gives_its_share() -> None:
    labels = [0] * 100 + [1] * 20 + [2] * 1
    train = Examples([(str(i),) for i in range(121)], labels)
    rest, held = hold_out(train, 0.1, seed=0)
    assert Counter(held.labels) == {0: 10, 1: 2}  # the only example of a class stays
    assert sorted(rest.texts + held.texts) == sorted(train.texts)
    assert hold_out(train, 0.1, seed=0) == (rest, held)
    assert hold_out(train, 0.1, seed=1)[1].texts != held.texts
    assert Counter(hold_out(train, 0.999, seed=0)[0].labels) == {0: 1, 1: 1, 2: 1}


def test_the_order_is_pinned() -> None:
    assert shuffled(list("abcdefgh"), 0) == [7, 5, 6, 3, 0, 2, 1, 4]


def test_through_load_data(tmp_path: Path) -> None:
    write(tmp_path, {"all.csv": "text,label\n" + "".join(f"t{i},{i % 2}\n" for i in range(20))})
    data = load_data(data_dir=tmp_path, validation_fraction=0.2, seed=3)
    assert list(data.splits) == ["train", "validation"]
    assert Counter(data.splits["validation"].labels) == {0: 2, 1: 2}
    assert not set(data.splits["train"].texts) & set(data.splits["validation"].texts)
    with pytest.raises(UserError, match=r"validation_fraction=0.01 of 20 examples holds out none"):
        load_data(data_dir=tmp_path, validation_fraction=0.01)
