"""A guard against silent change: a few numbers of seeded tiny models, as they start."""

import pytest
import torch

from .cases import BASE, CAUSAL, CLASSIFIER, SEQ2SEQ, VARIANTS, assert_close, make_config, make_inputs, output_of

PINNED = {
    (BASE, "dct"): [-1.524646, 1.159894, -0.180622, 0.545375],
    (BASE, "standard"): [-0.548909, 1.049198, 1.709248, -0.304443],
    (BASE, "dft-odd"): [-1.290058, 1.000584, -0.659205, 0.948679],
    (BASE, "learned"): [-0.970815, -0.882313, 0.396487, 1.45664],
    (CLASSIFIER, "interleave-original"): [-0.083228, -0.043503, 0.076585, 0.045541],
    (CLASSIFIER, "dct"): [-0.066938, -0.118662, -0.011451, -0.290515],
    (CAUSAL, "orthogonal-rope"): [-0.466337, -0.254724, -0.449103, -0.178966],
    (CAUSAL, "block-pre"): [0.11555, -0.864556, -0.680304, -1.001482],
    (SEQ2SEQ, "dct"): [-0.044781, 0.938352, -0.755333, -0.284421],
}


def values(kind, variant):
    torch.manual_seed(0)
    model = kind(make_config(**VARIANTS[variant])).eval()
    with torch.no_grad():
        return output_of(model, **make_inputs(kind)).flatten()[-4:]


@pytest.mark.parametrize(("kind", "variant"), PINNED)
def test_pinned(kind, variant):
    """If this fails and was meant to, the change breaks trained models or their seeds: say so in the changelog."""
    assert_close(values(kind, variant), torch.tensor(PINNED[kind, variant]), 1e-5)


def test_a_small_change_is_seen():
    with pytest.raises(AssertionError, match="differs by"):
        assert_close(values(BASE, "dct") + 3e-5, values(BASE, "dct"), 1e-5)
