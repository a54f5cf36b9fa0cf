"""The parity check can fail: for every operation a wrong input, and a wrong gradient of every input, are noticed."""

import pytest

from lformer.kernels.slice_attention import slice_attention, slice_attention_reference
from lformer.kernels.slice_ffn import slice_ffn, slice_ffn_reference
from lformer.kernels.slice_linear import slice_linear, slice_linear_reference
from lformer.kernels.tube_mix import tube_mix, tube_mix_reference
from lformer.kernels.tube_norm import tube_norm, tube_norm_reference

from .cases import DTYPES, assert_parity, draw, with_wrong_gradient

X, VECTOR, SQUARE = (3, 1, 7, 16), (3, 16), (3, 3)
OPERATIONS = {
    "slice_linear": (slice_linear, slice_linear_reference, {"x": X, "weight": (3, 8, 16), "bias": (3, 8)}, {}),
    "slice_ffn": (
        slice_ffn,
        slice_ffn_reference,
        {"x": X, "w1": (3, 24, 16), "b1": (3, 24), "w2": (3, 16, 24), "b2": VECTOR},
        {"activation": "gelu"},
    ),
    "slice_attention": (slice_attention, slice_attention_reference, {"qkv": (3, 1, 7, 3, 2, 8)}, {}),
    "tube_mix": (tube_mix, tube_mix_reference, {"matrix": SQUARE, "x": X}, {}),
    "tube_norm": (
        tube_norm,
        tube_norm_reference,
        {"s": X, "x": X, "bias": VECTOR, "inverse": SQUARE, "gamma": VECTOR, "beta": VECTOR, "matrix": SQUARE},
        {},
    ),
}
ARGUMENTS = [(name, argument) for name, (_, _, shapes, _) in OPERATIONS.items() for argument in shapes]


def check(name, dtype, change=None, argument=""):
    """Parity, where the operation is given one argument that was changed."""
    operation, reference, shapes, options = OPERATIONS[name]
    tensors = {each: draw(*shape, dtype=dtype, seed=i) for i, (each, shape) in enumerate(shapes.items())}

    def call(**given):
        if change is not None:
            given[argument] = change(given[argument])
        return operation(**given, **options, backend="triton")

    assert_parity(call, lambda **given: reference(**given, **options), tensors, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_right_ones_pass(name, dtype):
    check(name, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_a_wrong_input_is_noticed(name, argument, dtype):
    """Wrong by a half: the last bias of the feed-forward is a small part of its output, and bfloat16 is coarse."""
    with pytest.raises(AssertionError, match=r"output [01]: relative error"):
        check(name, dtype, lambda tensor: tensor + 0.5 * tensor.roll(1, -1), argument)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_a_wrong_gradient_is_noticed(name, argument, dtype):
    with pytest.raises(AssertionError, match=f"gradient of {argument}: relative error"):
        check(name, dtype, with_wrong_gradient, argument)
