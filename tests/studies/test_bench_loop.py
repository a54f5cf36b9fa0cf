"""`lformer bench loop` measures what it says."""

from collections.abc import Iterator

import pytest
import torch

from lformer.studies.bench.loop import bench_loop


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Two threads on a busy machine wait for each other, in one part of the loop more than in another."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_the_loop_is_mostly_forward_backward_and_optimizer() -> None:
    found = bench_loop(hidden_size=64, steps=3, batch_size=16)
    assert 0.4 < found["share"] < 1.5  # tiny here, and on a busy machine; the command measures at d=256
    assert found["loop_seconds_per_step"] > 0
