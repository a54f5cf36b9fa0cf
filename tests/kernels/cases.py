"""How a kernel is compared with its reference: the outputs and every gradient, against float64.

The tests of the kernels run on a GPU where there is one, and are then all marked `gpu` (conftest.py): there
`pytest -m gpu` runs every one of them on CUDA in float32, float16 and bfloat16.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BFLOAT16 = pytest.param(
    torch.bfloat16,
    marks=[
        pytest.mark.gpu,
        pytest.mark.skipif(DEVICE == "cpu", reason="no CUDA device, and Triton's interpreter cannot multiply bfloat16"),
    ],
)
DTYPES = [torch.float32, torch.float16, BFLOAT16]
# Relative error of a whole tensor, as a norm. Half precision rounds operands, hidden activations and results.
TOLERANCE = {torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 1.2e-2}


def draw(*shape: int, dtype: torch.dtype, scale: float = 1.0, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return (torch.randn(*shape, generator=generator) * scale).to(DEVICE, dtype).requires_grad_()


def exact(tensors: dict[str, Any]) -> dict[str, Any]:
    """The same tensors in float64, to differentiate anew."""
    return {
        name: t.detach().double().requires_grad_(t.requires_grad)
        if isinstance(t, Tensor) and t.is_floating_point()
        else t
        for name, t in tensors.items()
    }


def results(call: Callable[..., Any], tensors: dict[str, Any]) -> dict[str, Tensor]:
    """Everything that a call computes: its outputs, and the gradients of its inputs for random gradients of those."""
    outputs = call(**tensors)
    outputs = [y for y in (outputs if isinstance(outputs, tuple) else (outputs,)) if y is not None]
    generator = torch.Generator().manual_seed(1)
    gradients = [torch.randn(y.shape, generator=generator).to(y) for y in outputs]
    inputs = {name: t for name, t in tensors.items() if isinstance(t, Tensor) and t.requires_grad}
    found = torch.autograd.grad(outputs, list(inputs.values()), gradients)
    named = {f"output {i}": y.detach() for i, y in enumerate(outputs)}
    return named | {f"gradient of {name}": g for name, g in zip(inputs, found, strict=True)}


def assert_same(found: dict[str, Tensor], wanted: dict[str, Tensor], tolerance: float) -> None:
    assert found.keys() == wanted.keys()
    for name in found:
        error = (
            (found[name].double() - wanted[name].double()).norm() / wanted[name].double().norm().clamp_min(1e-9)
        ).item()
        assert error < tolerance, f"{name}: relative error {error:.2e}, allowed {tolerance:.0e}"


def assert_parity(
    call: Callable[..., Any], reference: Callable[..., Any], tensors: dict[str, Any], dtype: torch.dtype
) -> None:
    assert_same(results(call, tensors), results(reference, exact(tensors)), TOLERANCE[dtype])


def with_wrong_gradient(tensor: Tensor) -> Tensor:
    """The same numbers to rounding, with a gradient that is too large by a tenth."""
    return 1.1 * tensor - 0.1 * tensor.detach()
