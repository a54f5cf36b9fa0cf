"""p that does not divide d, odd p, and p = d are ordinary cases."""

import pytest
import torch

from lformer.nn import LDecoderLayer, LEncoderLayer

from .cases import make_config, randn, randomize

SIZES = [(10, 4), (7, 3), (13, 4), (9, 3), (15, 5), (5, 5), (8, 8), (1, 1), (6, 5)]


@pytest.mark.parametrize(("d", "p"), SIZES)
@pytest.mark.parametrize("name", ["dct", "dft", "learned-orthogonal"])
@pytest.mark.parametrize("scope", ["sublayer", "block"])
def test_forward_and_backward(d, p, name, scope):
    # Pre-norm: with one feature per slice a post-norm layer is constant, as layer norm is there.
    sizes = {"hidden_size": d, "num_attention_heads": p, "intermediate_size": 2 * d + 1, "norm_placement": "pre"}
    config = make_config(name, p, transform_scope=scope, **sizes)
    encoder, decoder = randomize(LEncoderLayer(config)), randomize(LDecoderLayer(config, cross_attention=True))
    x, memory = randn(2, 3, d).requires_grad_(), randn(2, 4, d, seed=1)
    for y in (encoder(x)[0], decoder(x, encoder(memory)[0])[0]):
        assert y.shape == (2, 3, d)
        (grad,) = torch.autograd.grad((y * randn(*y.shape, seed=2)).sum(), x)
        assert grad.shape == x.shape
        assert torch.isfinite(y).all()
        assert torch.isfinite(grad).all()
        assert grad.abs().max() > 0


@pytest.mark.parametrize(("d", "p"), SIZES)
def test_parameter_count(d, p):
    """p (12 M^2 + 13 M) for F = 4 M, which is 12 d^2 + 13 d for p = 1."""
    m = -(-d // p)
    layer = LEncoderLayer(make_config("dct", p, hidden_size=d, num_attention_heads=p, intermediate_size=4 * m * p))
    assert sum(parameter.numel() for parameter in layer.parameters()) == p * (12 * m * m + 13 * m)
