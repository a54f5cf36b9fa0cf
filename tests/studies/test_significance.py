"""The paired bootstrap against cases whose answer is known."""

import numpy as np
import pytest

from lformer.studies.significance import paired_bootstrap


def answers(right: int, examples: int = 1000, seeds: int = 3) -> np.ndarray:
    return np.tile(np.arange(examples) < right, (seeds, 1))


def test_the_difference_is_in_points():
    difference, low, high, p_value = paired_bootstrap(answers(900), answers(850))
    assert difference == pytest.approx(5.0)
    # 50 of 1,000 examples differ: the difference of a sample is binomial, with a deviation of sqrt(.05 .95 / 1000).
    deviation = 100 * np.sqrt(0.05 * 0.95 / 1000)
    assert low == pytest.approx(5.0 - 1.96 * deviation, abs=0.15)
    assert high == pytest.approx(5.0 + 1.96 * deviation, abs=0.15)
    assert p_value < 0.001


def test_it_is_antisymmetric():
    ahead, behind = paired_bootstrap(answers(900), answers(850)), paired_bootstrap(answers(850), answers(900))
    assert ahead[0] == -behind[0]
    assert ahead[1] == pytest.approx(-behind[2], abs=0.2)


def test_as_many_gains_as_losses_are_no_difference():
    one = answers(500)
    difference, low, high, p_value = paired_bootstrap(one, ~one)
    assert difference == 0
    assert low < 0 < high
    assert p_value > 0.9


def test_pairing_counts():
    """The same accuracies: on the same examples nothing is left to chance, on others it is."""
    one = answers(505, 1000)
    same, other = answers(500, 1000), answers(500, 1000)[:, ::-1]
    assert paired_bootstrap(one, same)[3] < 0.05
    assert paired_bootstrap(one, other)[3] > 0.5


def test_under_no_difference_small_p_values_are_rare():
    generator = np.random.default_rng(0)
    found = []
    for trial in range(200):
        one, other = generator.random((2, 1, 500)) < 0.8
        found.append(paired_bootstrap(one, other, samples=500, seed=trial)[3])
    assert 0.01 <= np.mean(np.array(found) < 0.05) <= 0.10


def test_unpaired_answers_are_refused():
    with pytest.raises(ValueError, match="paired"):
        paired_bootstrap(answers(5, 10), answers(5, 11))
