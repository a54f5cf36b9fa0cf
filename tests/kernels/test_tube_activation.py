from functools import partial

import pytest
import torch

from lformer.kernels.tube_activation import MAX_TUBE, tube_activation, tube_activation_reference

from .cases import DTYPES, assert_parity, draw, with_wrong_gradient

# P, B, T, F: odd and prime sizes, 2^k - 1, one more than a block.
SIZES = [(2, 1, 7, 16), (3, 2, 5, 13), (4, 2, 9, 31), (4, 1, 1, 513), (5, 1, 3, 8), (8, 1, 3, 7)]


def case(p, b, t, f, dtype, learned=True):
    tensors = {
        "h": draw(p, b, t, f, dtype=dtype),
        "inverse": draw(p, p, dtype=dtype, scale=p**-0.5, seed=1),
        "matrix": draw(p, p, dtype=dtype, scale=p**-0.5, seed=2),
    }
    if not learned:
        tensors["inverse"].requires_grad_(False)
        tensors["matrix"].requires_grad_(False)
    return tensors


def both(activation, gated=False):
    return (
        partial(tube_activation, activation=activation, gated=gated, backend="triton"),
        partial(tube_activation_reference, activation=activation, gated=gated),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("size", SIZES)
def test_outputs_and_gradients(size, activation, dtype):
    assert_parity(*both(activation), case(*size, dtype), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ["silu", "gelu"])
@pytest.mark.parametrize("size", [(2, 1, 7, 16), (3, 2, 5, 26), (4, 2, 9, 62), (4, 1, 2, 1026), (8, 1, 3, 14)])
def test_a_gate(size, activation, dtype):
    assert_parity(*both(activation, gated=True), case(*size, dtype), dtype)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_matrices_that_are_not_learned(activation):
    assert_parity(*both(activation), case(4, 2, 5, 13, torch.float32, learned=False), torch.float32)


def test_one_of_the_matrices_is_learned():
    tensors = case(3, 2, 5, 13, torch.float32)
    tensors["matrix"].requires_grad_(False)
    assert_parity(*both("gelu"), tensors, torch.float32)


@pytest.mark.parametrize(("t", "f"), [(67, 34), (37, 64)])
def test_many_blocks_in_one_program(t, f, monkeypatch):
    from lformer.kernels.gpu import tube_activation as gpu

    monkeypatch.setattr(gpu, "BACKWARD_PROGRAMS", 3)
    for gated in (False, True):
        assert_parity(*both("gelu", gated), case(4, 3, t, f, torch.float32), torch.float32)


def test_strides_are_taken_care_of():
    tensors = case(4, 6, 5, 16, torch.float32)
    call, reference = both("gelu")

    def turned(f):
        return lambda h, inverse, matrix: f(h.transpose(1, 2), inverse.T, matrix.T)

    assert_parity(turned(call), turned(reference), tensors, torch.float32)


def test_nothing_to_do():
    tensors = case(4, 1, 3, 8, torch.float32)
    tensors["h"] = tensors["h"].detach()[:, :, :0].requires_grad_()
    y = both("gelu")[0](**tensors)
    y.sum().backward()
    assert y.shape == (4, 1, 0, 8)
    assert not tensors["matrix"].grad.any()


def test_the_identity_is_the_activation_alone():
    h = draw(4, 1, 3, 8, dtype=torch.float32)
    assert torch.equal(tube_activation(h, None, None, "gelu"), torch.nn.functional.gelu(h))


def test_more_slices_than_registers():
    with pytest.raises(ValueError, match="at most 8 slices"):
        both("relu")[0](**case(MAX_TUBE + 1, 1, 2, 3, torch.float32))


@pytest.mark.parametrize("wrong", ["inverse", "matrix"])
def test_what_is_wrong_is_noticed(wrong):
    def call(**tensors):
        tensors[wrong] = tensors[wrong].T
        return both("gelu")[0](**tensors)

    with pytest.raises(AssertionError, match="output 0: relative error"):
        assert_parity(call, both("gelu")[1], case(3, 2, 5, 13, torch.float32), torch.float32)


@pytest.mark.parametrize("wrong", ["h", "inverse", "matrix"])
def test_a_wrong_gradient_is_noticed(wrong):
    """Not by a change of the kernel: on a GPU it would be the compiled one, from before the change."""

    def call(**tensors):
        tensors[wrong] = with_wrong_gradient(tensors[wrong])
        return both("gelu")[0](**tensors)

    with pytest.raises(AssertionError, match=f"gradient of {wrong}: relative error"):
        assert_parity(call, both("gelu")[1], case(3, 2, 5, 13, torch.float32), torch.float32)
