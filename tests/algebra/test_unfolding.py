"""Unfolding, mode products, and the folding of features into tubes."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from lformer.algebra import fold, matricize, mode_contract, mode_product, reference, tensorize, unfold

from .cases import assert_close, randn

shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def test_unfolding_is_the_example_of_kolda_and_bader():
    """Their Section 2.4: the 3 x 4 x 2 tensor of 1..24, column by column, slice by slice."""
    a = torch.arange(1, 25).reshape(2, 4, 3).permute(2, 1, 0)
    assert a[:, :, 0].tolist() == [[1, 4, 7, 10], [2, 5, 8, 11], [3, 6, 9, 12]]
    assert unfold(a, 0).tolist() == [
        [1, 4, 7, 10, 13, 16, 19, 22],
        [2, 5, 8, 11, 14, 17, 20, 23],
        [3, 6, 9, 12, 15, 18, 21, 24],
    ]
    assert unfold(a, 1)[0].tolist() == [1, 2, 3, 13, 14, 15]
    assert unfold(a, 2).tolist() == [list(range(1, 13)), list(range(13, 25))]


@settings(deadline=None, max_examples=30, derandomize=True)
@given(shape=shapes, data=st.data())
def test_fold_undoes_unfold(shape, data):
    mode = data.draw(st.integers(-len(shape), len(shape) - 1))
    a = randn(*shape)
    matrix = unfold(a, mode)
    assert matrix.shape == (shape[mode], a.numel() // shape[mode])
    assert torch.equal(fold(matrix, mode, shape), a)


@settings(deadline=None, max_examples=30, derandomize=True)
@given(shape=shapes, rows=st.integers(1, 3), data=st.data())
def test_mode_product_is_its_definition_and_its_unfolding(shape, rows, data):
    mode = data.draw(st.integers(0, len(shape) - 1))
    a, x = randn(*shape, seed=1), randn(rows, shape[mode], seed=2)
    b = mode_product(a, x, mode)
    assert_close(b, reference.mode_product(a, x, mode))
    assert_close(unfold(b, mode), x @ unfold(a, mode))
    assert_close(mode_product(a, x, mode - len(shape)), b)


def test_mode_products_along_two_modes_commute_and_along_one_compose():
    a, x, y = randn(3, 4, 5, seed=1), randn(2, 3, seed=2), randn(6, 5, seed=3)
    assert_close(mode_product(mode_product(a, x, 0), y, 2), mode_product(mode_product(a, y, 2), x, 0))
    w = randn(3, 2, seed=4)
    assert_close(mode_product(mode_product(a, x, 0), w, 0), mode_product(a, w @ x, 0))


@pytest.mark.parametrize("mode", [0, 1, 2, -1])
def test_contraction_is_a_mode_product_with_one_row(mode):
    a = randn(3, 4, 5)
    v = randn(a.shape[mode], seed=1)
    assert_close(mode_contract(a, v, mode), mode_product(a, v[None], mode).squeeze(mode))


def test_products_of_real_and_complex_promote():
    assert mode_product(randn(2, 3), randn(3, 3, dtype=torch.complex128), 1).dtype == torch.complex128
    assert mode_contract(randn(2, 3), randn(3, dtype=torch.complex128), 1).dtype == torch.complex128


def test_tensorize_stacks_contiguous_blocks_of_features():
    """X(t, j, k) = x(t, k d_s + j)."""
    x = torch.arange(12).reshape(2, 6)
    folded = tensorize(x, 3)
    assert folded.shape == (2, 2, 3)
    for t in range(2):
        for j in range(2):
            for k in range(3):
                assert folded[t, j, k] == x[t, 2 * k + j]


@settings(deadline=None, max_examples=40, derandomize=True)
@given(p=st.integers(1, 9), d=st.integers(1, 12), batch=st.sampled_from([(), (2,), (2, 1)]))
def test_matricize_undoes_tensorize_with_padding(p, d, batch):
    x = randn(*batch, 3, d)
    folded = tensorize(x, p)
    width = -(-d // p)
    assert folded.shape == (*batch, 3, width, p)
    assert torch.equal(matricize(folded, d), x)
    whole = matricize(folded)
    assert whole.shape == (*batch, 3, width * p)
    assert not whole[..., d:].any()
