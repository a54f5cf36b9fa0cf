"""Folding into slices is Ten_p of the algebra, tube mode first; interleaving is a shuffle that undoes itself."""

import pytest
import torch

from lformer.algebra import matricize, tensorize
from lformer.nn import fold_slices, interleave_slices, unfold_slices

from .cases import randn

over_sizes = pytest.mark.parametrize(("d", "p"), [(12, 1), (12, 3), (10, 4), (5, 5), (7, 2)])


@over_sizes
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_folding_is_tensorize(d, p, batch):
    x = randn(*batch, 4, d)
    folded = fold_slices(x, p)
    assert torch.equal(folded, tensorize(x, p).movedim(-1, 0))
    assert folded.is_contiguous()
    assert torch.equal(unfold_slices(folded, d), x)
    full = randn(*folded.shape, seed=1)
    assert torch.equal(unfold_slices(full, d), matricize(full.movedim(0, -1), d))


@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_interleaving_undoes_itself(p):
    x = randn(p, 2, 3, 2 * p)
    assert torch.equal(interleave_slices(interleave_slices(x)), x)


def test_slice_k_takes_chunk_k_of_every_slice():
    p, chunk = 3, 2
    x = randn(p, 2, 4, p * chunk)
    y = interleave_slices(x)
    for k in range(p):
        expected = torch.cat([x[i][..., k * chunk : (k + 1) * chunk] for i in range(p)], dim=-1)
        assert torch.equal(y[k], expected)
    assert not torch.equal(y, x)


def test_one_slice_has_nothing_to_interleave():
    x = randn(1, 2, 3, 5)
    assert interleave_slices(x) is x
