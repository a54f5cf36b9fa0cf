"""`lformer bench loop` measures what it says."""

from lformer.studies.bench_loop import bench_loop


def test_the_loop_is_mostly_forward_backward_and_optimizer() -> None:
    found = bench_loop(hidden_size=64, steps=3, batch_size=16)
    assert 0.4 < found["share"] < 1.5  # tiny here, and on a busy machine; the command measures at d=256
    assert found["loop_seconds_per_step"] > 0
