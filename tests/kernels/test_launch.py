"""What stands around the launch of a kernel: the number format of products, and the device."""

from contextlib import contextmanager
from functools import partial

import pytest
import torch
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from lformer.kernels import slice_attention, slice_ffn, slice_linear, tube_mix, tube_norm
from lformer.kernels.gpu import slice_matmul
from lformer.kernels.gpu.launch import dot_precision

from .cases import DEVICE, draw, results


@pytest.fixture
def precision():
    """What torch was told of float32 products, put back afterwards."""
    yield
    torch.set_float32_matmul_precision("highest")
    if hasattr(torch.backends, "fp32_precision"):
        torch.backends.cuda.matmul.fp32_precision = torch.backends.fp32_precision = "none"


def tell_old(wanted):
    torch.set_float32_matmul_precision("high" if wanted == "tf32" else "highest")


def tell_new(wanted):
    torch.backends.cuda.matmul.fp32_precision = wanted


def tell_all_backends(wanted):
    torch.backends.fp32_precision = wanted


@pytest.mark.parametrize("tell", [tell_old, tell_new, tell_all_backends])
@pytest.mark.parametrize("wanted", ["tf32", "ieee"])
def test_precision_of_products(precision, tell, wanted):
    """Both ways of allowing TensorFloat-32, of which torch refuses to read the older once the newer was used."""
    if tell is not tell_old and not hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        pytest.skip("this torch has the older way alone")
    assert dot_precision(torch.float32) == "ieee"
    tell(wanted)
    assert dot_precision(torch.float32) == wanted
    assert dot_precision(torch.float16) == "ieee"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_kernels_run_under_the_newer_way(precision, dtype):
    if not hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        pytest.skip("this torch has the older way alone")
    x, weight, bias = draw(2, 3, 16, dtype=dtype), draw(2, 8, 16, dtype=dtype), draw(2, 8, dtype=dtype)
    wanted = slice_linear(x[:, None], weight, bias, backend="triton")
    tell_new("tf32")
    assert torch.allclose(slice_linear(x[:, None], weight, bias, backend="triton"), wanted, atol=1e-2)


VECTOR, SQUARE, X = (2, 72), (2, 72, 72), (2, 1, 9, 72)
FEED = {"b2": None, "activation": "relu"}
NO_TRANSFORM = {"bias": None, "inverse": None, "matrix": None}
# Sizes at which all kernels have their turn, forward and backward.
OPERATIONS = {
    "slice_linear": (slice_linear, {"x": X, "weight": SQUARE, "bias": VECTOR}, {}),
    "interleaved": (slice_linear, {"x": X, "weight": SQUARE, "bias": VECTOR}, {"interleaved": True}),
    "tube_mix": (tube_mix, {"matrix": (2, 2), "x": X}, {}),
    "narrow slice_ffn": (slice_ffn, {"x": (2, 1, 9, 16), "w1": (2, 32, 16), "b1": (2, 32), "w2": (2, 16, 32)}, FEED),
    "slice_ffn": (slice_ffn, {"x": X, "w1": (2, 64, 72), "b1": (2, 64), "w2": (2, 72, 64)}, FEED),
    "slice_attention": (slice_attention, {"qkv": (2, 1, 9, 3, 1, 8)}, {}),
    "tube_norm": (tube_norm, {"s": X, "x": X, "gamma": VECTOR, "beta": VECTOR}, NO_TRANSFORM),
}


@pytest.fixture
def guarded(monkeypatch):
    """The device that is current according to the guard at every launch, None where there was none."""
    current, launched = [], []

    @contextmanager
    def device_of(tensor):
        current.append(tensor.device)
        yield
        current.pop()

    def recorded(run):
        def launch(self, *arguments, **options):
            launched.append((self.__name__, current[-1] if current else None))
            return run(self, *arguments, **options)

        return launch

    monkeypatch.setattr(torch.cuda, "device_of", device_of)
    for kind in (JITFunction, InterpretedFunction):
        monkeypatch.setattr(kind, "run", recorded(kind.run))
    return launched


@pytest.mark.parametrize("name", OPERATIONS)
def test_launches_are_on_the_device_of_the_tensors(name, guarded):
    operation, shapes, options = OPERATIONS[name]
    tensors = {argument: draw(*shape, dtype=torch.float16) for argument, shape in shapes.items()}
    results(partial(operation, **options, backend="triton"), tensors)
    assert len(guarded) > 1, "forward and backward"
    for kernel, device in guarded:
        assert device is not None, f"{kernel} would be launched on whichever device is current"
        assert device.type == DEVICE


def test_a_launch_without_the_guard_is_noticed(guarded):
    slice_matmul.slice_matmul(draw(1, 4, 16, dtype=torch.float32), draw(1, 16, 16, dtype=torch.float32))
    assert guarded == [("slice_matmul_kernel", None)]
