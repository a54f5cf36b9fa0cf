"""What a layer has to do at least, against formulas written out by hand."""

import pytest

from lformer.studies.bench.limits import Work, work
from lformer.studies.bench.machine import Ceilings
from lformer.studies.bench.shapes import Case

B, T, D, L = 8, 128, 256, 3
CASE = Case("model", B, T, D, heads=4, tube_lengths=(4,), layers=L)


@pytest.mark.parametrize("p", [1, 4])
def test_flops_by_hand(p: int) -> None:
    m = D // p
    projections = 4 * B * T * p * m * m  # Q, K, V and output
    feed_forward = 2 * B * T * p * m * (4 * m)
    attention = 2 * B * T * T * D  # scores, and scores times V
    forward = 2 * L * (projections + feed_forward + attention)
    found = work(CASE, p, parameters=0, item_size=2)
    assert found["forward"].flops == forward
    assert found["training"].flops == 3 * forward


@pytest.mark.parametrize("p", [1, 4])
def test_bytes_by_hand(p: int) -> None:
    weights, size = 1_000, 2
    found = work(CASE, p, parameters=weights, item_size=size)
    activations = L * B * T * D
    # x, qkv | qkv, y | y, x, x' | x', h | h, x', z with h of 4 D
    assert found["forward"].bytes == size * (22 * activations + weights)
    backward = 3 + (1 + 8) + (1 + 4) + (3 + 4) + (1 + 4) + 2 + 2 + 8 + 5 + 4
    assert found["training"].bytes == size * ((22 + backward) * activations + 3 * weights)


def test_padded_slices_count_as_they_are_computed() -> None:
    case = Case("layer", 1, 2, 10, heads=4, tube_lengths=(4,))
    padded = Case("layer", 1, 2, 12, heads=4, tube_lengths=(4,))
    found, wanted = (work(each, 4, 0, 4)["forward"] for each in (case, padded))
    assert found.bytes < wanted.bytes  # the feed-forward size is 40 and not 48
    assert found.bytes == 4 * 2 * (14 * 12 + 2 * 40)


def test_the_limit_is_the_slower_of_the_two() -> None:
    ceilings = Ceilings(flops_per_second=100.0, bytes_per_second=10.0, matmul_size=1, copy_bytes=1)
    assert Work(flops=1000, bytes=10).seconds(ceilings) == 10.0
    assert Work(flops=1000, bytes=500).seconds(ceilings) == 50.0
    better = ceilings.best(Ceilings(50.0, 20.0, 1, 1))
    assert (better.flops_per_second, better.bytes_per_second) == (100.0, 20.0)
