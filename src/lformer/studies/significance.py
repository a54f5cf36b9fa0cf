"""Whether two rows of a table differ by more than the choice of test examples explains."""

import numpy as np
from numpy.typing import NDArray

SAMPLES = 10_000


def paired_bootstrap(
    correct: NDArray[np.bool_], other: NDArray[np.bool_], *, samples: int = SAMPLES, seed: int = 0
) -> tuple[float, float, float, float]:
    """Difference of two accuracies in points, its 95 % interval, and the two-sided p-value of no difference.

    correct, other: (seeds, examples), whether each was right; the same examples, as many seeds each. A sample draws
    examples with replacement and takes both models' means over seeds on them.

    >>> right = np.ones((3, 400), dtype=bool)
    >>> paired_bootstrap(right, right)
    (0.0, 0.0, 0.0, 1.0)
    """
    if correct.shape != other.shape:
        raise ValueError(f"the two have {correct.shape} and {other.shape} answers; they must be paired")
    by_example = correct.mean(0) - other.mean(0)
    # Few values occur (k / seeds), so that a sample of examples is a sample of their counts: fast and exact.
    values, counts = np.unique(by_example, return_counts=True)
    generator = np.random.default_rng(seed)
    drawn = generator.multinomial(len(by_example), counts / len(by_example), size=samples)
    differences = drawn @ values / len(by_example)
    low, high = np.quantile(differences, [0.025, 0.975])
    below, above = (differences <= 0).sum(), (differences >= 0).sum()
    p_value = min(1.0, 2 * (min(below, above) + 1) / (samples + 1))
    return 100 * float(by_example.mean()), 100 * float(low), 100 * float(high), float(p_value)
