from functools import partial

import pytest
import torch

from lformer.kernels.slice_linear import slice_linear, slice_linear_reference
from lformer.kernels.tube_mix import tube_mix, tube_mix_reference

from .cases import DEVICE, DTYPES, assert_parity, draw, results

# P, B, T, K, O. The last three are wide enough for the copy engine, and aligned to 16 bytes; the results of the last
# are not.
SIZES = [
    (1, 1, 5, 16, 16),
    (2, 2, 7, 17, 31),
    (3, 1, 37, 13, 50),
    (4, 2, 9, 64, 96),
    (5, 1, 130, 72, 40),
    (2, 1, 9, 64, 50),
]


def case(p, b, t, k, o, dtype, bias=True):
    return {
        "x": draw(p, b, t, k, dtype=dtype),
        "weight": draw(p, o, k, dtype=dtype, scale=k**-0.5, seed=1),
        "bias": draw(p, o, dtype=dtype, seed=2) if bias else None,
    }


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_outputs_and_gradients(size, dtype, bias):
    assert_parity(partial(slice_linear, backend="triton"), slice_linear_reference, case(*size, dtype, bias), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("p", "k"), [(2, 34), (3, 33), (4, 64), (4, 256)])
def test_interleaved_input(p, k, dtype):
    options = {"interleaved": True}
    assert_parity(
        partial(slice_linear, backend="triton", **options),
        partial(slice_linear_reference, **options),
        case(p, 2, 9, k, 24, dtype),
        dtype,
    )


def test_parts_of_a_long_sum():
    """The gradient of a weight is summed in parts where it has few elements."""
    from lformer.kernels.gpu import launch

    assert launch.split_rows(4096, 1, 32)[0] > 1
    assert_parity(
        partial(slice_linear, backend="triton"),
        slice_linear_reference,
        case(1, 1, 700, 16, 16, torch.float32),
        torch.float32,
    )


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("k", [16, 64])
@pytest.mark.parametrize("dtype", DTYPES)
def test_no_rows(dtype, k, interleaved, bias):
    tensors = case(2, 1, 0, k, 8, dtype, bias)
    found = results(partial(slice_linear, interleaved=interleaved, backend="triton"), tensors)
    assert found["output 0"].shape == (2, 1, 0, 8)
    assert not any(g.any() for g in found.values())


@pytest.mark.parametrize("k", [16, 64])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_bias_of_any_strides(dtype, k):
    tensors = case(3, 1, 5, k, 8, dtype)
    tensors["bias"] = draw(8, 3, dtype=dtype).detach().T.requires_grad_()
    assert_parity(partial(slice_linear, backend="triton"), slice_linear_reference, tensors, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [1, 2, 3, 5, 8, 16])
def test_tube_mix(p, dtype):
    tensors = {"matrix": draw(p, p, dtype=dtype), "x": draw(p, 2, 3, 11, dtype=dtype, seed=1)}
    assert_parity(partial(tube_mix, backend="triton"), tube_mix_reference, tensors, dtype)


def test_autocast_multiplies_in_its_dtype():
    tensors = case(2, 1, 5, 16, 8, torch.float32)
    dtype = torch.float16 if DEVICE == "cpu" else torch.bfloat16
    with torch.autocast(DEVICE, dtype=dtype):
        y = slice_linear(**tensors, backend="triton")
    assert y.dtype == dtype
    y.sum().backward()
    assert tensors["weight"].grad.dtype == torch.float32


@pytest.mark.parametrize("parts", [1, 16, 50])
def test_parts_are_added(parts):
    from lformer.kernels.gpu.launch import add_parts

    numbers = draw(parts, 70, dtype=torch.float32).detach()
    assert torch.allclose(add_parts(numbers, numbers.new_empty(70)), numbers.sum(0), atol=1e-5)
