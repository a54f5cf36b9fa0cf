"""Speeds are of steps alone: nothing that happens once falls into them."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lformer.data import Prepared, load_data, prepare
from lformer.studies import measure as measuring
from lformer.studies.measure import measure
from lformer.train import Recipe
from lformer.train.captured import WARM_UP_STEPS
from lformer.train.resident_data import Kind
from lformer.train.runner import set_up

MODEL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4}
RECIPE = Recipe(epochs=1, batch_size=32, bucket=True)  # of one length: many kinds of batches


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    pytest.importorskip("babel", reason="no babel: pip install -e '.[demo]'")
    data = load_data("cldr")
    some = {name: part.take(range(0, len(part), 8)) for name, part in data.splits.items()}
    return prepare(replace(data, splits=some), tmp_path_factory.mktemp("names"), max_length=16, vocab_size=300)


class Launches:
    """In place of a `Capture`: notes what is launched before and while the steps are timed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clocks = 0
        self.seen: Counter[Kind] = Counter()
        self.timed: Counter[Kind] = Counter()
        self.recorded_while_timed: list[Kind] = []
        plain = measuring._now

        def now() -> float:
            self.clocks += 1
            return plain()

        def resident(*arguments: Any, **options: Any) -> Any:
            training = set_up(*arguments, **options, _resident=True)
            assert training.resident is not None
            self.compute = training.resident.compute
            training.resident.launch = self
            return training

        monkeypatch.setattr(measuring, "_now", now)
        monkeypatch.setattr(measuring, "set_up", resident)

    def __call__(self, kind: Kind) -> None:
        self.seen[kind] += 1
        if self.clocks == 3:  # the first two are around the steps that warm up
            self.timed[kind] += 1
            if self.seen[kind] == WARM_UP_STEPS + 1:
                self.recorded_while_timed.append(kind)
        self.compute(kind)


@pytest.mark.parametrize("warm_up", [1, 9])
def test_no_graph_is_recorded_while_steps_are_timed(
    names: Prepared, monkeypatch: pytest.MonkeyPatch, warm_up: int
) -> None:
    launches = Launches(monkeypatch)
    found = measure(names, MODEL, RECIPE, warm_up=warm_up, steps=8)
    assert len(launches.timed) > 2
    assert sum(launches.timed.values()) == 8
    assert launches.recorded_while_timed == []
    assert min(launches.seen[kind] - launches.timed[kind] for kind in launches.timed) > WARM_UP_STEPS
    assert found["tokens_per_second"] > 0


def test_more_steps_than_an_epoch_has(names: Prepared, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    launches = Launches(monkeypatch)
    per_epoch = len(names.split("train")) // 256
    measure(names, MODEL, Recipe(epochs=1, batch_size=256), warm_up=1, steps=per_epoch + 2)
    assert sum(launches.timed.values()) == per_epoch + 2


def test_what_was_measured_is_named(names: Prepared) -> None:
    found = measure(names, MODEL, RECIPE, warm_up=1, steps=1)
    assert found["device"]
    assert found["commit"]
