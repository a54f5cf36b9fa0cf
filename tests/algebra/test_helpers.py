"""A helper that compares must be able to fail: each gets an input that is wrong on purpose."""

import pytest
import torch

from lformer.algebra import reference

from .cases import DTYPES, assert_close, assert_matches_reference, make_matrix, randn


@pytest.mark.parametrize("dtype", DTYPES)
def test_assert_close_takes_equal_and_refuses_different(dtype):
    a = randn(3, 2, 4, dtype=dtype)
    assert_close(a, a.clone())
    wrong = a.clone()
    wrong[1, 1, 1] += 1
    with pytest.raises(AssertionError, match="differs by"):
        assert_close(wrong, a)


def test_assert_close_refuses_shape_dtype_and_nan():
    a = randn(3, 2, 4)
    with pytest.raises(AssertionError, match="shape"):
        assert_close(a, a[:2])
    with pytest.raises(AssertionError, match="dtype"):
        assert_close(a.float(), a)
    with pytest.raises(AssertionError, match="differs by"):
        assert_close(a * torch.nan, a)


def test_assert_close_sees_an_error_just_above_the_rounding():
    a = randn(3, 2, 4)
    with pytest.raises(AssertionError, match="differs by"):
        assert_close(a + 1e-9, a)


def test_assert_matches_reference_refuses_wrong_values_and_an_imaginary_part():
    a = randn(3, 2, 4)
    assert_matches_reference(a, a.to(torch.complex128))
    with pytest.raises(AssertionError, match="differs by"):
        assert_matches_reference(a + 1, a.to(torch.complex128))
    with pytest.raises(AssertionError, match="not real"):
        assert_matches_reference(a, a + 1e-6j)


def test_the_reference_depends_on_the_matrix():
    """Else parity with it would prove nothing about L."""
    a, b = randn(3, 2, 4, seed=1), randn(2, 3, 4, seed=2)
    z = make_matrix("real", 4)
    with pytest.raises(AssertionError, match="differs by"):
        assert_matches_reference(reference.lproduct(a, b, z), reference.lproduct(a, b, z.T))
    with pytest.raises(AssertionError, match="differs by"):
        assert_matches_reference(reference.lproduct(a, b, z), reference.facewise(a, b))
