"""A helper that compares must be able to fail."""

import pytest
import torch

from .cases import BASE, CLASSIFIER, assert_close, assert_differs, make_ids, make_model, output_of, pad


def test_assert_close_refuses_values_shapes_dtypes_nan_and_nothing():
    a = torch.randn(3, 4, dtype=torch.float64)
    assert_close(a, a.clone())
    for wrong, why in ((a + 1e-8, "differs"), (a * torch.nan, "differs"), (a[:2], "shape"), (a.float(), "dtype")):
        with pytest.raises(AssertionError, match=why):
            assert_close(wrong, a)
    with pytest.raises(AssertionError, match="nothing"):
        assert_close(a[:0], a[:0])
    with pytest.raises(AssertionError, match="only"):
        assert_differs(a, a)


def test_pad_puts_padding_where_it_says():
    ids, mask = pad(torch.tensor([[5, 6]]), torch.tensor([[1, 1]]), 1, "left")
    assert (ids.tolist(), mask.tolist()) == ([[0, 5, 6]], [[0, 1, 1]])
    ids, mask = pad(torch.tensor([[5, 6]]), torch.tensor([[1, 1]]), 2, "right")
    assert (ids.tolist(), mask.tolist()) == ([[5, 6, 0, 0]], [[1, 1, 0, 0]])


@pytest.mark.parametrize("kind", [BASE, CLASSIFIER])
def test_models_of_two_seeds_differ_and_so_do_texts(kind):
    a, b = make_model(kind, seed=0), make_model(kind, seed=1)
    assert_differs(output_of(a, input_ids=make_ids()), output_of(b, input_ids=make_ids()))
    assert_differs(output_of(a, input_ids=make_ids()), output_of(a, input_ids=make_ids(seed=1)))
