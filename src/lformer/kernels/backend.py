"""Which implementation of an operation runs: plain torch, or the Triton kernel beside it."""

import importlib.util
import logging
import os

import torch
from torch import Tensor

BACKENDS = ("auto", "torch", "triton")

MAX_TUBE = 16
MAX_FEATURES = 8192
"""The kernels keep all slices of a token in registers."""

SHARED_MEMORY = 232_448
"""Bytes that a program may have on an H100 or H200, for which the tiles were chosen; other GPUs have half of that."""

HAS_TRITON = importlib.util.find_spec("triton") is not None

logger = logging.getLogger(__name__)


def is_interpreted() -> bool:
    """Whether Triton's interpreter runs the kernels, on tensors of the CPU: slow, and meant for tests."""
    return os.environ.get("TRITON_INTERPRET", "0") not in ("", "0")


def why_no_triton() -> str | None:
    """The reason for which this machine cannot run the kernels, or None."""
    if not HAS_TRITON:
        return "Triton is not installed (pip install 'lformer[triton]')"
    if is_interpreted() or torch.cuda.is_available():
        return None
    return "there is no CUDA device (TRITON_INTERPRET=1 runs the kernels on the CPU, slowly, for tests)"


def require_backend(backend: str) -> None:
    """An explicit request that this machine cannot meet is an error, not a slow surprise."""
    if backend not in BACKENDS:
        raise ValueError(f"backend={backend!r} is not one of {', '.join(map(repr, BACKENDS))}")
    reason = why_no_triton() if backend == "triton" else None
    if reason:
        raise ValueError(f"backend='triton': {reason}; use backend='auto' or 'torch'")


def use_triton(backend: str, x: Tensor, *, unsupported: str | None = None) -> bool:
    """Whether the kernels take an operation on x. `unsupported` says what they cannot do in this case, if anything.

    "auto" falls back to torch and says once why; "triton" raises. Where only some operations of a layer have no kernel,
    that is no error: see `outside_kernel`.
    """
    if backend == "torch" or (backend == "auto" and not x.is_cuda):
        return False
    reason = unsupported or _why_not_here(x, backend)
    if reason is None:
        return True
    if backend == "triton":
        raise ValueError(f"backend='triton': {reason}; use backend='auto' or 'torch'")
    if x.is_cuda:
        _say_once(f"lformer runs without its Triton kernels: {reason}")
    return False


def outside_kernel(backend: str, x: Tensor, operation: str, reason: str) -> None:
    """Say once that torch computes one operation, among others that the kernels take."""
    if use_triton(backend, x):
        _say_once(f"lformer computes {operation} outside its Triton kernel: {reason}")


def allows_tf32() -> bool:
    """Whether torch was told that TensorFloat-32 will do for products of float32 operands.

    There is an older way of telling it, whose getter raises once the newer one was used; the newer one knows of both.
    """
    told = getattr(torch.backends.cuda.matmul, "fp32_precision", None)
    if told is None:  # before torch 2.9
        return torch.get_float32_matmul_precision() != "highest"
    return bool(told == "tf32")


def _why_not_here(x: Tensor, backend: str) -> str | None:
    if not x.is_cuda and not (is_interpreted() and backend == "triton"):
        return f"the tensor is on the {x.device.type}, and the kernels are for CUDA"
    if not HAS_TRITON:
        return why_no_triton()
    if is_interpreted() and x.dtype == torch.bfloat16:
        return "Triton's interpreter cannot multiply bfloat16"
    if x.dtype not in (torch.bfloat16, torch.float16, torch.float32):
        return f"the kernels have no {x.dtype}"
    found = _shared_memory(x.device.index) if x.is_cuda else SHARED_MEMORY
    if found < SHARED_MEMORY:
        return (
            f"a program has {found:,} bytes of shared memory on this GPU, and the kernels are laid out for "
            f"{SHARED_MEMORY:,}, as an H100 has"
        )
    return None


@torch.compiler.assume_constant_result
def _shared_memory(device: int) -> int:
    properties = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "shared_memory_per_block_optin", 0))


_said: set[str] = set()


@torch.compiler.assume_constant_result  # so that the compiler calls it while it traces, and a graph stays whole
def _say_once(message: str) -> bool:
    if message not in _said:
        _said.add(message)
        logger.warning(message)
    return True
