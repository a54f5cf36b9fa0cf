"""A helper that compares must be able to fail: each gets an input that is wrong on purpose."""

import pytest
import torch

from lformer.nn import LEncoderLayer, reference

from .cases import assert_close, assert_differs, assert_parity, leaf, make_config, randn, randomize


def test_assert_close_refuses_values_shapes_dtypes_nan_and_nothing():
    a = randn(3, 4)
    assert_close(a, a.clone())
    for wrong, why in (
        (a + 1e-8, "differs by"),
        (a * torch.nan, "differs by"),
        (a[:2], "shape"),
        (a.float(), "dtype"),
    ):
        with pytest.raises(AssertionError, match=why):
            assert_close(wrong, a)
    with pytest.raises(AssertionError, match="nothing"):
        assert_close(a[:0], a[:0])


def test_assert_differs_refuses_equal():
    with pytest.raises(AssertionError, match="only"):
        assert_differs(randn(3), randn(3))


def test_assert_parity_sees_outputs_and_gradients():
    x = leaf(3)
    assert_parity(x**2, x * x, [x])
    with pytest.raises(AssertionError, match="differs by"):
        assert_parity(x**2, x**2 + 1, [x])
    with pytest.raises(AssertionError, match="differs by"):
        assert_parity(x**2, x.detach() * x, [x])  # the same value, another gradient
    with pytest.raises(AssertionError, match="all gradients vanish"):
        assert_parity(0 * x, 0 * x, [x])


@pytest.mark.parametrize("name", ["dct", "dft"])
@pytest.mark.parametrize("part", ["attention.output.weight", "feed_forward.inner.bias", "attention_norm.weight"])
def test_the_reference_depends_on_every_kind_of_weight(name, part):
    layer = randomize(LEncoderLayer(make_config(name, 4)))
    x = randn(5, 16)
    before = reference.encoder_layer(layer, x)
    assert_close(layer(x[None])[0][0], before)
    with torch.no_grad():
        layer.get_parameter(part)[1] += 0.1 * randn(*layer.get_parameter(part)[1].shape)
    with pytest.raises(AssertionError, match="differs by"):
        assert_close(layer(x[None])[0][0], before)


def test_the_reference_depends_on_the_transform():
    layer, other = (randomize(LEncoderLayer(make_config(name, 4))) for name in ("dct", "hartley"))
    x = randn(5, 16)
    with pytest.raises(AssertionError, match="differs by"):
        assert_close(reference.encoder_layer(layer, x), reference.encoder_layer(other, x))


def test_the_reference_refuses_slices_that_are_not_conjugate_symmetric():
    layer = randomize(LEncoderLayer(make_config("dft", 3)))
    xh = [torch.complex(randn(5, 4, seed=k), randn(5, 4, seed=k + 9)) for k in range(3)]
    with pytest.raises(ValueError, match="not real"):
        reference.feed_forward_slices(layer.feed_forward, xh)
