"""The tests of significance against cases whose answer is known, and how often they find what is not there."""

import numpy as np
import pytest

from lformer.studies.significance import SMALLEST_P_VALUE, _student, holm, over_seeds, paired_bootstrap


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


def test_equal_sums_over_seeds_are_equal():
    """1/3 and 2/3 - 1/3 are the same gain, though not in floating point: samples of as many gains as losses tie."""
    one, other = np.zeros((2, 3, 12), dtype=bool)
    one[0, :3] = True  # 1 - 0 of 3
    one[:2, 3:6], other[0, 3:6] = True, True  # 2 - 1
    other[0, 6:9] = True  # 0 - 1
    one[0, 9:], other[:2, 9:] = True, True  # 1 - 2
    _, _, _, found = paired_bootstrap(one, other, samples=2000)
    generator = np.random.default_rng(0)
    sums = generator.multinomial(12, [0.5, 0.5], size=2000) @ np.array([-1, 1])
    assert np.mean(sums == 0) > 0.15
    assert found == min(1.0, 2 * (min((sums <= 0).sum(), (sums >= 0).sum()) + 1) / 2001)


def test_the_smallest_p_value():
    assert paired_bootstrap(answers(900), answers(500))[3] == SMALLEST_P_VALUE


def test_unpaired_answers_are_refused():
    for test in (paired_bootstrap, over_seeds):
        with pytest.raises(ValueError, match="paired"):
            test(answers(5, 10), answers(5, 11))


@pytest.mark.parametrize(
    ("degrees", "quantile", "beyond_two"),
    [(1, 12.7062, 0.295167), (4, 2.77645, 0.116117), (10, 2.22814, 0.073388), (30, 2.04227, 0.054625)],
)
def test_students_t_as_in_tables(degrees: float, quantile: float, beyond_two: float):
    assert _student(2.0, degrees) == (pytest.approx(quantile, rel=1e-4), pytest.approx(beyond_two, abs=1e-5))


def test_seeds_that_agree_leave_the_chance_of_examples():
    found = over_seeds(answers(900), answers(850))
    assert found is not None
    assert found[:2] == pytest.approx(paired_bootstrap(answers(900), answers(850))[1:3], abs=0.15)


def test_seeds_that_differ_widen_the_interval():
    """Three seeds of 88, 90 and 92 % against three of 85 %: t with two degrees, as nothing else varies."""
    one = np.concatenate([answers(right, seeds=1) for right in (880, 900, 920)])
    found = over_seeds(one, answers(850))
    assert found is not None
    low, high, p_value = found
    assert (low + high) / 2 == pytest.approx(5.0)
    of_seeds = 2 / np.sqrt(3)
    assert 2.8 * of_seeds < high - 5.0 < 4.4 * of_seeds, "between t with four degrees and a little less than two"
    assert 0.02 < p_value < 0.08
    assert paired_bootstrap(one, answers(850))[3] < 0.001


def test_one_seed_says_nothing_about_seeds():
    assert over_seeds(answers(900, seeds=1), answers(850, seeds=1)) is None


def test_models_that_answer_alike_do_not_differ():
    assert over_seeds(answers(900), answers(900)) == (0.0, 0.0, 1.0)


def two_rows(generator: np.random.Generator, by_seed: float, by_model: float) -> np.ndarray:
    """Answers of two models with the same expected accuracy: (2, 3 seeds, 500 examples)."""
    difficulty = generator.normal(2.5, 2.5, 500)
    own = generator.normal(0, by_model, (2, 1, 500)) + generator.normal(0, by_seed, (2, 3, 1))
    return difficulty + own + generator.normal(0, 1.2, (2, 3, 500)) > 0


@pytest.mark.parametrize("by_model", [0.3, 2.0])
@pytest.mark.parametrize("by_seed", [0.0, 0.1, 0.2])
def test_over_seeds_few_false_positives(by_seed: float, by_model: float):
    """0.1 of `by_seed` is a deviation of about a point."""
    generator = np.random.default_rng(0)
    found = [over_seeds(*two_rows(generator, by_seed, by_model)) for _ in range(300)]
    rate = np.mean([p_value < 0.05 for _, _, p_value in found])
    assert rate <= 0.075
    assert all((low <= 0 <= high) == (p_value >= 0.05) for low, high, p_value in found)


def test_over_examples_alone_there_are_many():
    """What the interval over seeds is for: the bootstrap takes the luck of three seeds for a difference of models."""
    generator = np.random.default_rng(0)
    rows = [two_rows(generator, 0.2, 0.3) for _ in range(200)]
    assert np.mean([paired_bootstrap(*pair, samples=500)[3] < 0.05 for pair in rows]) > 0.2


def test_over_seeds_finds_what_is_there():
    generator = np.random.default_rng(0)
    found = []
    for _ in range(50):
        one, other = two_rows(generator, 0.05, 0.3)
        found.append(over_seeds(one | (generator.random(500) < 0.3), other))
    assert np.mean([p_value < 0.05 for _, _, p_value in found]) > 0.9


def test_holm_keeps_the_order_of_the_rows():
    assert holm([0.04, 0.001, 0.5, 0.02]) == pytest.approx([0.08, 0.004, 0.5, 0.06])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
