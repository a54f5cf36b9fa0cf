"""The baseline of the benchmark is a right dense layer: it equals ours with one slice, output and gradients."""

import pytest
import torch
from torch import Tensor, nn

from lformer.nn import LayerConfig, LEncoderLayer
from lformer.studies.bench.dense import DenseLayer, DenseStack

B, T, D, HEADS, INNER = 3, 7, 12, 4, 20


def pair() -> tuple[DenseLayer, LEncoderLayer, list[tuple[nn.Parameter, nn.Parameter]]]:
    """Both layers in float64 with the same random weights, and their parameters side by side."""
    torch.manual_seed(0)
    theirs = DenseLayer(D, HEADS, INNER).double()
    config = LayerConfig(hidden_size=D, num_attention_heads=HEADS, intermediate_size=INNER, tube_length=1)
    ours = LEncoderLayer(config).double().eval()
    modules = [
        (theirs.query_key_value, ours.attention.query_key_value),
        (theirs.output, ours.attention.output),
        (theirs.attention_norm, ours.attention_norm),
        (theirs.inner, ours.feed_forward.inner),
        (theirs.outer, ours.feed_forward.outer),
        (theirs.feed_forward_norm, ours.feed_forward_norm),
    ]
    parameters = [(getattr(a, name), getattr(b, name)) for a, b in modules for name in ("weight", "bias")]
    with torch.no_grad():
        for dense, tensor in parameters:
            dense.add_(0.3 * torch.randn_like(dense))
            tensor.copy_(dense[None])
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
    return theirs, ours, parameters


def gradients(output: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    torch.manual_seed(2)
    return list(torch.autograd.grad(output, inputs, torch.randn_like(output)))


def check(theirs: DenseLayer, ours: LEncoderLayer, parameters: list[tuple[nn.Parameter, nn.Parameter]]) -> None:
    torch.manual_seed(1)
    x = torch.randn(B, T, D, dtype=torch.float64, requires_grad=True)
    expected, found = ours(x)[0], theirs(x)
    torch.testing.assert_close(found, expected)
    wanted = gradients(expected, [x, *[tensor for _, tensor in parameters]])
    for mine, gradient in zip(gradients(found, [x, *[dense for dense, _ in parameters]]), wanted, strict=True):
        torch.testing.assert_close(mine, gradient.reshape(mine.shape))


def test_it_equals_our_layer_with_one_slice() -> None:
    check(*pair())


def test_a_wrong_weight_or_activation_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, ours, parameters = pair()
    monkeypatch.setattr(torch.nn.functional, "relu", torch.nn.functional.gelu)
    with pytest.raises(AssertionError, match="not close"):
        check(theirs, ours, parameters)
    monkeypatch.undo()
    with torch.no_grad():
        theirs.outer.bias[0] += 1e-4  # of one feature: the norm removes what is added to all
    with pytest.raises(AssertionError, match="not close"):
        check(theirs, ours, parameters)


def test_a_stack_is_its_layers_one_after_the_other() -> None:
    torch.manual_seed(0)
    stack = DenseStack(2, D, HEADS, INNER)
    x = torch.randn(B, T, D)
    torch.testing.assert_close(stack(x), stack.layers[1](stack.layers[0](x)))
    assert not torch.allclose(stack(x), stack.layers[0](x))


def test_dropout_acts_in_training_alone() -> None:
    torch.manual_seed(0)
    layer = DenseLayer(D, HEADS, INNER, dropout=0.5)
    x = torch.randn(B, T, D)
    assert not torch.allclose(layer(x), layer(x))
    layer.eval()
    torch.testing.assert_close(layer(x), layer(x))
