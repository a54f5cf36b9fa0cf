"""The off-diagonal share of the slice Jacobian: zero for independent slices, and equal to the exact one elsewhere."""

import pytest
import torch
from torch import nn

from lformer.nn import LDecoderLayer, LEncoderLayer, coupling, fold_slices

from .cases import make_config, matrix_pair, randn, randomize

B, T = 2, 3


def shares(name="dct", p=4, kind=LEncoderLayer, depth=2, seed=0, **changes):
    layers = [randomize(kind(make_config(name, p, **changes)), seed + index) for index in range(depth)]
    model = Stack(layers)
    x = randn(B, T, layers[0].config.hidden_size)
    return coupling(model, {"x": x}, probes=2)


class Stack(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)[0]
        return x


@pytest.mark.parametrize("kind", [LEncoderLayer, LDecoderLayer])
@pytest.mark.parametrize("name", ["dct", "hartley", "dft", "learned-orthogonal", "identity"])
@pytest.mark.parametrize("p", [3, 4])
def test_block_scope_has_none(name, p, kind):
    assert max(shares(name, p, kind, transform_scope="block")) < 1e-10


@pytest.mark.parametrize("scope", ["sublayer", "block"])
def test_one_slice_has_none(scope):
    assert max(shares("dct", 1, transform_scope=scope)) < 1e-10


@pytest.mark.parametrize("kind", [LEncoderLayer, LDecoderLayer])
@pytest.mark.parametrize("name", ["dct", "random", "dft"])
@pytest.mark.parametrize("p", [3, 4])
def test_sublayer_scope_has_some_in_every_layer(name, p, kind):
    values = shares(name, p, kind)
    assert len(values) == 2
    assert all(0.02 < value < 0.9 for value in values)


def test_the_identity_couples_nothing_even_so():
    assert max(shares("identity", 4)) < 1e-10


def test_sigma_in_the_original_domain_couples_blocks():
    assert min(shares(transform_scope="block", activation_domain="original")) > 0.01


@pytest.mark.parametrize("name", ["dct", "dft"])
@pytest.mark.parametrize("scope", ["sublayer", "block"])
def test_interleave_couples_more(name, scope):
    sizes = {"hidden_size": 32, "num_attention_heads": 8, "intermediate_size": 64, "transform_scope": scope}
    plain, mixed = shares(name, 4, **sizes), shares(name, 4, interleave=True, **sizes)
    for less, more in zip(plain, mixed, strict=True):
        assert more > less + 0.05


def exact_share(layer, x, slice_of, **options):
    """The share from the whole Jacobian of the layer in the transform domain."""
    transform = layer.transform or layer.attention.transform
    xh = transform(fold_slices(x, layer.config.tube_length))
    jacobian = torch.autograd.functional.jacobian(
        lambda point: transform(layer(transform.inverse(point), **options)[0]), xh
    )
    energy = jacobian.square().sum(dim=(1, 2, 3, 5, 6, 7))
    own = slice_of[:, None] == slice_of[None, :]
    return float(energy[~own].sum() / energy.sum())


@pytest.mark.parametrize(
    ("name", "p", "slice_of"),
    [("dct", 2, [0, 1]), ("haar", 3, [0, 1, 2]), ("dft", 3, [0, 1, 1]), ("dft", 4, [0, 1, 2, 2])],
)
def test_the_estimate_is_the_share_of_the_exact_jacobian(name, p, slice_of):
    sizes = {"hidden_size": 2 * p, "num_attention_heads": p, "intermediate_size": 3 * p}
    layer = randomize(LEncoderLayer(make_config(name, p, **sizes)))
    x = randn(1, 2, 2 * p)
    exact = exact_share(layer, x, torch.tensor(slice_of))
    assert exact > 0.02
    (estimate,) = coupling(layer, {"x": x}, probes=1500)
    assert abs(estimate - exact) < 0.08 * exact
    wrong = exact_share(layer, x, torch.zeros(p, dtype=torch.long))  # all in one slice: no coupling at all
    assert wrong == 0.0


def test_cross_attention_counts_its_memory_as_given():
    p = 3
    layer = randomize(LDecoderLayer(make_config("dct", p), cross_attention=True))
    x, memory = randn(p, T, 12), randn(p, 2, 12, seed=1)  # as many texts as slices: an axis mistaken would not be seen
    (estimate,) = coupling(layer, {"x": x, "memory": memory}, probes=30)
    exact = exact_share(layer, x, torch.arange(p), memory=fold_slices(memory, p))
    assert abs(estimate - exact) < 0.1 * exact


def test_it_leaves_the_model_as_it_was_and_repeats_itself():
    model = Stack([randomize(LEncoderLayer(make_config(hidden_dropout_prob=0.5)))]).train()
    x = randn(B, T, 16)
    first, second = coupling(model, {"x": x}), coupling(model, {"x": x})
    assert first == second
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not model.layers[0]._forward_pre_hooks


def test_a_model_without_layers_is_refused():
    with pytest.raises(ValueError, match="no LEncoderLayer"):
        coupling(nn.Linear(2, 2), {"input": torch.zeros(1, 2)})


def test_the_helper_matrices_are_what_the_module_uses():
    z, z_inverse = matrix_pair("dct", 4)
    layer = randomize(LEncoderLayer(make_config()))
    assert torch.equal(layer.attention.transform.matrix, z)
    assert torch.equal(layer.attention.transform.inverse_matrix, z_inverse)
