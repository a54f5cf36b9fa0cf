"""`lformer bench --side-by-side`: shapes that are prepared at once and timed one at a time."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from rich.console import Console

from lformer.settings import UserError
from lformer.studies.bench import side_by_side as module
from lformer.studies.bench.command import BenchOptions, make_request
from lformer.studies.bench.compare import compare
from lformer.studies.bench.progress import BenchProgress
from lformer.studies.bench.shapes import Case
from lformer.studies.bench.side_by_side import side_by_side


@pytest.fixture
def progress() -> Iterator[BenchProgress]:
    with BenchProgress(Console(quiet=True)) as progress:
        yield progress


def case(length: int) -> Case:
    return Case("layer", 1, length, 16, 4, (4,))


def note_times(case: Case, my_turn: Callable[[], None]) -> dict[str, Any]:
    prepared = time.time()
    my_turn()
    started = time.time()
    time.sleep(0.1)
    return {"length": case.length, "prepared": prepared, "started": started, "ended": time.time()}


def die_of_one(case: Case, my_turn: Callable[[], None]) -> dict[str, Any]:
    if case.length == 2:
        os._exit(7)
    my_turn()
    if case.length == 3:
        os._exit(8)
    return {"length": case.length}


def answer_and_linger(case: Case, my_turn: Callable[[], None]) -> dict[str, Any]:
    my_turn()
    threading.Thread(target=time.sleep, args=(60,)).start()  # for which the process would wait at its end
    return {"length": case.length}


def test_all_are_prepared_before_one_is_timed_and_timed_in_turn(progress: BenchProgress) -> None:
    found = list(side_by_side(note_times, [case(3), case(1), case(2)], progress))
    assert [each["length"] for each in found] == [3, 1, 2]
    assert max(each["prepared"] for each in found) <= found[0]["started"]
    for before, after in pairwise(found):
        assert before["ended"] <= after["started"]


def test_those_that_die_are_named_after_the_others(progress: BenchProgress) -> None:
    found: list[dict[str, Any]] = []
    with pytest.raises(UserError, match=r"1x2x16 \(exit code 7\), 1x3x16 \(exit code 8\) died"):
        found.extend(side_by_side(die_of_one, [case(2), case(1), case(3), case(4)], progress))
    assert [each["length"] for each in found] == [1, 4]


def test_one_that_answered_is_not_lost_if_it_is_slow_to_end(
    progress: BenchProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 1)  # the first is killed and gone while the second is waited for
    found = list(side_by_side(answer_and_linger, [case(5), case(6)], progress))
    assert found == [{"length": 5}, {"length": 6}]


def test_a_benchmark_finds_the_same_either_way() -> None:
    options = {"dense_modes": "eager", "compile_tensor": False, "peers": False, "device": "cpu", "quick": True}

    def found(**more: Any) -> dict[str, Any]:
        return compare(make_request("layer", BenchOptions(shapes="2x6x16,1x4x24", **options, **more)), None, print)

    def known_before_timing(result: dict[str, Any]) -> list[Any]:
        return [
            (each["shape"], [(row["name"], row["backend"], row["parameters"]) for row in each["rows"]])
            for each in result["shapes"]
        ]

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    apart, together = found(), found(side_by_side=True)
    torch.set_num_threads(threads)
    assert known_before_timing(together) == known_before_timing(apart)
    for each in together["shapes"]:
        assert each["ceilings"] == together["shapes"][0]["ceilings"]
        assert all(row[measure]["seconds"] for row in each["rows"] for measure in ("forward", "training"))
