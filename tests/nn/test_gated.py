"""The gated feed-forward network, and silu: written by hand, slice by slice."""

import pytest
import torch
from torch import nn

from lformer.nn import LayerConfig, LEncoderLayer, LFeedForward

from .cases import (
    FEW_CASES,
    INNER,
    WIDTH,
    assert_block_diagonal,
    assert_close,
    assert_differs,
    assert_parity,
    by_kernels,
    case_ids,
    from_slices,
    leaf,
    make_config,
    matrix_pair,
    randn,
    randomize,
    to_slices,
)

B, T = 2, 3
SIGMA = {"relu": nn.ReLU(), "gelu": nn.GELU(), "silu": lambda x: x / (1 + torch.exp(-x))}


def inner(layer, xh):
    """A and G of every slice: the two halves of the inner projection, (P, B, T, F) each."""
    hidden = torch.einsum("kbtm,kfm->kbtf", xh, layer.inner.weight) + layer.inner.bias[:, None, None]
    return hidden[..., :INNER], hidden[..., INNER:]


def outer(layer, hidden):
    return torch.einsum("kbtf,kmf->kbtm", hidden, layer.outer.weight) + layer.outer.bias[:, None, None]


@pytest.mark.parametrize("p", [1, 4])
@pytest.mark.parametrize("activation", SIGMA)
def test_gated(p, activation):
    layer = randomize(LFeedForward(make_config("dct", p, gated=True, hidden_act=activation)))
    z, z_inverse = matrix_pair("dct", p)
    x = leaf(B, T, p * WIDTH)
    a, g = inner(layer, to_slices(z, x, p))
    expected = from_slices(z_inverse, outer(layer, SIGMA[activation](a) * g))
    assert_parity(layer(x), expected, [x, *layer.parameters()])


@pytest.mark.parametrize("p", [1, 4])
def test_silu_without_a_gate(p):
    layer = randomize(LFeedForward(make_config("dct", p, hidden_act="silu")))
    z, z_inverse = matrix_pair("dct", p)
    x = leaf(B, T, p * WIDTH)
    hidden, _ = inner(layer, to_slices(z, x, p))
    expected = from_slices(z_inverse, outer(layer, SIGMA["silu"](hidden)))
    assert_parity(layer(x), expected, [x, *layer.parameters()])


@pytest.mark.parametrize("p", [1, 4])
def test_the_gate_acts_in_the_domain_of_sigma(p):
    layer = randomize(LFeedForward(make_config("dct", p, gated=True, activation_domain="original", hidden_act="silu")))
    z, z_inverse = matrix_pair("dct", p)
    x = leaf(B, T, p * WIDTH)
    a, g = (from_slices(z_inverse, part) for part in inner(layer, to_slices(z, x, p)))
    expected = from_slices(z_inverse, outer(layer, to_slices(z, SIGMA["silu"](a) * g, p)))
    assert_parity(layer(x), expected, [x, *layer.parameters()])


@pytest.mark.parametrize(("name", "p"), FEW_CASES, ids=case_ids(FEW_CASES))
@pytest.mark.parametrize("domain", ["transform", "original"])
def test_a_gate_of_one_leaves_the_ungated_network(name, p, domain):
    options = {"activation_domain": domain, "transform_scope": "block"}
    gated = randomize(LFeedForward(make_config(name, p, gated=True, **options)))
    plain = randomize(LFeedForward(make_config(name, p, **options)))
    with torch.no_grad():
        plain.inner.weight.copy_(gated.inner.weight[:, :INNER])
        plain.inner.bias.copy_(gated.inner.bias[:, :INNER])
        plain.outer.load_state_dict(gated.outer.state_dict())
        gated.inner.weight[:, INNER:] = 0
        ones = torch.ones(p, INNER, dtype=torch.float64)
        gated.inner.bias[:, INNER:] = ones if domain == "transform" else gated.transform(ones)
        if domain == "original":
            plain.transform.load_state_dict(gated.transform.state_dict())
            if name == "learned":  # its inverse is not that of its matrix: give the gate what comes back as 1
                gated.inner.bias[:, INNER:] = torch.linalg.solve(gated.transform.inverse_matrix, ones)
    xh = randn(p, B, T, WIDTH)
    assert_close(gated.slices(xh), plain.slices(xh))


def test_the_gated_features_are_interleaved():
    p = 2
    sizes = {"intermediate_size": p * INNER, "gated": True}
    mixed, apart = (randomize(LFeedForward(make_config("dct", p, interleave=i, **sizes))) for i in (True, False))
    xh = randn(p, B, T, WIDTH)
    a, g = inner(mixed, xh)
    first, second = (a.relu() * g).chunk(2, dim=-1)
    hidden = torch.stack([torch.cat([first[0], first[1]], -1), torch.cat([second[0], second[1]], -1)])
    assert_close(mixed.slices(xh), outer(mixed, hidden))
    assert_differs(mixed.slices(xh), apart.slices(xh))


def test_parameters():
    layer = LFeedForward(make_config("dct", 4, gated=True))
    count = sum(value.numel() for value in layer.parameters())
    assert count == 4 * (3 * WIDTH * INNER + 2 * INNER + WIDTH)


@pytest.mark.parametrize("kernels", ["torch", "triton"])
@pytest.mark.parametrize("changes", [{"gated": True}, {"hidden_act": "silu"}, {"gated": True, "hidden_act": "gelu"}])
def test_every_backend(changes, kernels):
    expected = randomize(LEncoderLayer(make_config(**changes)))
    layer = LEncoderLayer(make_config(backend=kernels, **changes))
    layer.load_state_dict(expected.state_dict())
    x = randn(B, T, 16)
    assert_close(by_kernels(layer, x), expected(x)[0], 1e-5)


@pytest.mark.parametrize("gated", [False, True])
def test_slices_stay_apart(gated):
    assert_block_diagonal(randomize(LEncoderLayer(make_config("identity", 4, gated=gated, hidden_act="silu"))))


@pytest.mark.parametrize(("width", "p"), [(128, 1), (256, 4), (252, 3), (1024, 8)])
def test_a_gate_costs_no_parameters_unless_a_width_is_given(width, p):
    sizes = {"hidden_size": width, "tube_length": p, "num_attention_heads": p, "interleave": True}
    plain, gated = (LFeedForward(LayerConfig(**sizes, gated=gate)) for gate in (False, True))
    count, wanted = (sum(parameter.numel() for parameter in layer.parameters()) for layer in (gated, plain))
    assert 0.94 * wanted < count <= wanted
    assert LayerConfig(**sizes, gated=True, intermediate_size=4 * width).intermediate_size == 4 * width
    with pytest.raises(ValueError, match="gated=1 must be True or False"):
        LayerConfig(**sizes, gated=1)
