"""Whether two rows of a table differ by more than chance explains: that of the test examples, and that of the seeds."""

import math

import numpy as np
from numpy.typing import NDArray

SAMPLES = 10_000
SMALLEST_P_VALUE = 2 / (SAMPLES + 1)
"""What a bootstrap says where every sample is on one side of zero."""


def paired_bootstrap(
    correct: NDArray[np.bool_], other: NDArray[np.bool_], *, samples: int = SAMPLES, seed: int = 0
) -> tuple[float, float, float, float]:
    """Difference of two accuracies in points, its 95 % interval, and the two-sided p-value of no difference.

    correct, other: (seeds, examples), whether each was right; the same examples, as many seeds each. A sample draws
    examples with replacement and takes both models' means over seeds on them. The models are taken as they are: other
    seeds would give other models, of which this says nothing. `over_seeds` does.

    >>> right = np.ones((3, 400), dtype=bool)
    >>> paired_bootstrap(right, right)
    (0.0, 0.0, 0.0, 1.0)
    """
    _require_pairs(correct, other)
    # Whole numbers up to the end: 2/3 - 1/3 is not 1/3, and a sample without a difference must count as one.
    by_example = correct.sum(0, dtype=np.int64) - other.sum(0, dtype=np.int64)
    # Few values occur, so that a sample of examples is a sample of their counts: fast and exact.
    values, counts = np.unique(by_example, return_counts=True)
    generator = np.random.default_rng(seed)
    differences = generator.multinomial(by_example.size, counts / by_example.size, size=samples) @ values
    low, high = np.quantile(differences, [0.025, 0.975])
    below, above = (differences <= 0).sum(), (differences >= 0).sum()
    p_value = min(1.0, 2 * (min(below, above) + 1) / (samples + 1))
    points = 100 / correct.size
    return points * float(by_example.sum()), points * float(low), points * float(high), float(p_value)


def over_seeds(correct: NDArray[np.bool_], other: NDArray[np.bool_]) -> tuple[float, float, float] | None:
    """The 95 % interval in points and the two-sided p-value, for other examples and other seeds; None of one seed.

    var = var(examples) + var(seeds) - var(both), at least each of the first two; t with Satterthwaite's degrees

    Shapes as in `paired_bootstrap`. The first two variances each hold the chance that is left when example and model
    are given, so that it is taken off once: the two-way clustered variance of Cameron, Gelbach and Miller (2011). Seeds
    of the two models are not paired. The tests measure how often it finds a difference where there is none.

    >>> over_seeds(np.ones((1, 400), dtype=bool), np.ones((1, 400), dtype=bool)) is None
    True
    """
    _require_pairs(correct, other)
    seeds, examples = correct.shape
    if seeds == 1:
        return None
    by_example = correct.mean(0) - other.mean(0)
    of_examples = float(by_example.var(ddof=1)) / examples
    of_seeds = [float(answers.mean(1).var(ddof=1)) / seeds for answers in (correct, other)]
    of_both = sum(_interaction(answers) / answers.size for answers in (correct, other))
    variance = max(of_examples + sum(of_seeds) - of_both, of_examples, sum(of_seeds))
    difference = 100 * float(by_example.mean())
    if variance == 0:
        return difference, difference, 1.0 if difference == 0 else 0.0
    uncertain = of_examples**2 / (examples - 1) + sum(part**2 for part in of_seeds) / (seeds - 1)
    quantile, p_value = _student(abs(difference) / 100 / math.sqrt(variance), variance**2 / uncertain)
    half = 100 * quantile * math.sqrt(variance)
    return difference - half, difference + half, p_value


def holm(p_values: list[float]) -> list[float]:
    """The p-values corrected for their number (Holm): below 0.05 for any true null hypothesis in 5 % of cases at most.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for place, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[i]))
        corrected[i] = largest
    return corrected


def _require_pairs(correct: NDArray[np.bool_], other: NDArray[np.bool_]) -> None:
    if correct.shape != other.shape:
        raise ValueError(f"the two have {correct.shape} and {other.shape} answers; they must be paired")


def _interaction(answers: NDArray[np.bool_]) -> float:
    """The variance of single answers that neither the example nor the seed explains."""
    seeds, examples = answers.shape
    left = answers - answers.mean(0) - answers.mean(1, keepdims=True) + answers.mean()
    return float(np.square(left).sum()) / ((seeds - 1) * (examples - 1))


def _student(t: float, degrees: float) -> tuple[float, float]:
    """The 97.5 % quantile of Student's t, and the probability of values further from zero than t.

    With t = sqrt(degrees) tan(angle) the density is that of cos(angle)^(degrees - 1), on a finite interval.
    """
    angles = np.linspace(0, np.pi / 2, 20_001)
    density = np.cos(angles) ** (degrees - 1)
    beyond = np.append(np.cumsum((density[1:] + density[:-1])[::-1])[::-1], 0.0)  # half the steps: only ratios matter
    beyond /= beyond[0]
    quantile = math.sqrt(degrees) * math.tan(float(np.interp(0.05, beyond[::-1], angles[::-1])))
    return quantile, float(np.interp(math.atan(t / math.sqrt(degrees)), angles, beyond))
