"""Which examples make up which batch: a function of the seed and the epoch, so that a run can go on anywhere."""

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
BUCKETED_BATCHES = 32  # sorted by length together; enough to save most padding, few enough to stay near a shuffle


def epoch_batches(lengths: Rows, batch_size: int, *, seed: int, epoch: int, bucket: bool = False) -> list[Rows]:
    """The batches of one epoch: a shuffle, cut into pieces; the last may be smaller.

    With `bucket`, pieces of BUCKETED_BATCHES batches are sorted by length before they are cut, and batches shuffled.
    """
    generator = np.random.default_rng([seed, epoch])
    order = generator.permutation(len(lengths))
    if not bucket:
        return _cut(order, batch_size)
    pools = _cut(order, batch_size * BUCKETED_BATCHES)
    batches = [batch for pool in pools for batch in _cut(pool[np.argsort(lengths[pool], kind="stable")], batch_size)]
    return [batches[i] for i in generator.permutation(len(batches))]


def evaluation_batches(lengths: Rows, batch_size: int) -> list[Rows]:
    """All examples once, sorted by length: the least padding; an example's result is the same in any order."""
    return _cut(np.argsort(lengths, kind="stable"), batch_size)


def spread(lengths: Rows, tokens: int) -> Rows:
    """Examples at even distances, as many as have about that many tokens; all of them for 0 tokens."""
    total = int(lengths.sum())
    if not tokens or total <= tokens:
        return np.arange(len(lengths))
    count = max(1, round(len(lengths) * tokens / total))
    return np.arange(count) * len(lengths) // count


def share(rows: Rows, process: int, processes: int) -> Rows:
    """The rows of a batch that one of several processes works on."""
    return rows[process::processes]


def _cut(rows: Rows, size: int) -> list[Rows]:
    return [rows[i : i + size] for i in range(0, len(rows), size)]
