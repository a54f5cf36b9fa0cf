"""slice_ffn as an operation: which kernels run, by the width M of a slice and the number N of rows.

| width                 | forward                            | backward                                               |
|-----------------------|------------------------------------|--------------------------------------------------------|
| up to 64              | one fused kernel                   | two fused kernels, hidden activations computed again   |
| up to 256             | one fused kernel; two if many rows | the same, in parts and into memory, then cuBLAS        |
| wider, or interleaved | two products, sigma fused          | from the kept hidden activations, in parts             |

Measured on an H200 by benchmarks/tune_kernels.py. Parts keep the memory below that of a dense layer.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lformer.kernels.gpu.launch import add_parts, on_device_of_tensors
from lformer.kernels.gpu.slice_ffn import slice_ffn_forward, slice_ffn_input_gradient, slice_ffn_weight_gradients
from lformer.kernels.gpu.slice_gemm import copy_engine_takes, slice_gemm_backward, slice_product
from lformer.kernels.gpu.slice_matmul import column_sums, slice_matmul, slice_outer

RECOMPUTED = 256  # widths up to which hidden activations are not kept
FUSED = 64  # widths up to which the backward pass is fused
MANY_ROWS = 16384  # from which on two products are faster than the fused kernel, for widths above FUSED
PART_ROWS = 4096  # at least, in a part of the backward pass
PARTS = 4


@torch.library.custom_op(
    "lformer::slice_ffn",
    mutates_args=(),
    schema="(Tensor x, Tensor w1, Tensor b1, Tensor w2, str activation, bool interleaved) -> (Tensor, Tensor)",
)
@on_device_of_tensors
def slice_ffn_op(
    x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, activation: str, interleaved: bool
) -> tuple[Tensor, Tensor]:
    """y, and what the backward pass keeps of the hidden features: sigma(z) for the ReLU, z for the GELU, or nothing."""
    keeps = _keeps(x, interleaved)
    if not keeps and (x.shape[-1] <= FUSED or x.shape[1] < MANY_ROWS):
        return slice_ffn_forward(x, w1, b1, w2, activation), x.new_empty(0)
    before, after = ("relu", "none") if activation == "relu" else ("none", activation)
    if not keeps:
        before, after = activation, "none"
    hidden = slice_product(x, w1, b1, before)
    if after == "none" and not interleaved:
        y = torch.bmm(hidden, w2.mT)
    else:
        y = slice_matmul(hidden, w2.mT, prologue=after, a_chunked=interleaved)
    return y, hidden if keeps else x.new_empty(0)


@slice_ffn_op.register_fake
def _outputs(
    x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, activation: str, interleaved: bool
) -> tuple[Tensor, Tensor]:
    kept = (*x.shape[:2], w1.shape[1]) if _keeps(x, interleaved) else 0
    return torch.empty_like(x), x.new_empty(kept)


@torch.library.custom_op(
    "lformer::slice_ffn_backward",
    mutates_args=(),
    schema="(Tensor g, Tensor x, Tensor hidden, Tensor w1, Tensor b1, Tensor w2, str activation, bool interleaved) "
    "-> (Tensor, Tensor)",
)
@on_device_of_tensors
def slice_ffn_backward_op(
    g: Tensor, x: Tensor, hidden: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, activation: str, interleaved: bool
) -> tuple[Tensor, Tensor]:
    """The gradient of x, and those of w1, w2 and b1 one after the other in one flat tensor."""
    g = g.contiguous()
    if not _keeps(x, interleaved) and x.shape[-1] <= FUSED:
        weights = slice_ffn_weight_gradients(g, x, w1, b1, w2, activation)
        return slice_ffn_input_gradient(g, x, w1, b1, w2, activation), weights
    flat = _flat(w1, b1)
    if interleaved:
        return _interleaved_backward(g, x, hidden, w1, w2, activation, flat), flat
    return _parts_backward(g, x, hidden, w1, b1, w2, activation, flat), flat


@slice_ffn_backward_op.register_fake
def _gradients(
    g: Tensor, x: Tensor, hidden: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, *_: Any
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), _flat(w1, b1)


def _flat(w1: Tensor, b1: Tensor) -> Tensor:
    return w1.new_empty(2 * w1.numel() + b1.numel())


def _views(flat: Tensor, w1: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of w1, w2 and b1 in the flat tensor of them."""
    p, hidden, m = w1.shape
    dw1, dw2, db1 = flat.split([w1.numel(), w1.numel(), p * hidden])
    return dw1.view(p, hidden, m), dw2.view(p, m, hidden), db1.view(p, hidden)


def _parts_backward(
    g: Tensor, x: Tensor, hidden: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, activation: str, flat: Tensor
) -> Tensor:
    """Some rows at a time, so that little memory is taken up by hidden activations and their gradients at once."""
    n = x.shape[1]
    count = max(1, min(PARTS, n // PART_ROWS))
    dx = torch.empty_like(x)
    dw1, dw2, db1 = _views(flat, w1)
    sums = []
    for part in range(count):
        rows = slice(n * part // count, n * (part + 1) // count)
        sums.append(_part_backward(g[:, rows], x[:, rows], hidden, rows, w1, b1, w2, activation, dw1, dw2, dx[:, rows]))
    add_parts(sums[0] if count == 1 else torch.cat(sums), db1)
    return dx


def _part_backward(
    g: Tensor,
    x: Tensor,
    hidden: Tensor,
    rows: slice,
    w1: Tensor,
    b1: Tensor,
    w2: Tensor,
    activation: str,
    dw1: Tensor,
    dw2: Tensor,
    dx: Tensor,
) -> Tensor:
    """Write dx, write or add to dw1 and dw2, and return parts of the gradient of b1."""
    kept = hidden.numel() > 0
    first = activation if activation == "relu" else "none"
    z = hidden[:, rows] if kept else slice_product(x, w1, b1, first)  # its sign is all that the ReLU's slope needs
    h = z if activation == "relu" else F.gelu(z)
    _add_outer(dw2, g, h, rows)
    del h
    if copy_engine_takes(g, w2, z):
        dz, sums = slice_gemm_backward(g, w2, z, activation, in_place=not kept)
    else:
        dz = slice_matmul(g.contiguous(), w2, epilogue=activation, aux=z.contiguous())
        sums = column_sums(dz, dz.new_empty(b1.shape, dtype=torch.float32))[None]
    _add_outer(dw1, dz, x, rows)
    torch.bmm(dz, w1, out=dx)
    return sums


def _add_outer(out: Tensor, left: Tensor, right: Tensor, rows: slice) -> None:
    """left^T right of some rows; the first ones write, the others add."""
    if rows.start == 0:
        torch.bmm(left.mT, right, out=out)
    else:
        torch.baddbmm(out, left.mT, right, out=out)


def _interleaved_backward(
    g: Tensor, x: Tensor, hidden: Tensor, w1: Tensor, w2: Tensor, activation: str, flat: Tensor
) -> Tensor:
    dw1, dw2, db1 = _views(flat, w1)
    dz = slice_matmul(g, w2, epilogue=activation, aux=hidden, c_chunked=True)
    after = "none" if activation == "relu" else activation
    dw2.copy_(slice_outer(g, hidden, prologue=after, a_chunked=True)[0])
    torch.bmm(dz.mT, x, out=dw1)
    column_sums(dz, db1)
    return torch.bmm(dz, w1)


def _keeps(x: Tensor, interleaved: bool) -> bool:
    """Whether the hidden activations are kept for the backward pass."""
    return interleaved or x.shape[-1] > RECOMPUTED


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, w1, b1, w2, ctx.activation, ctx.interleaved = inputs
    ctx.set_materialize_grads(False)  # or zeros would be written for what nobody differentiates
    ctx.save_for_backward(x, output[1], w1, b1, w2)


def _backward(ctx: Any, g: Tensor, _: Any) -> tuple[Any, ...]:
    x, hidden, w1, b1, w2 = ctx.saved_tensors
    dx, flat = torch.ops.lformer.slice_ffn_backward(g, x, hidden, w1, b1, w2, ctx.activation, ctx.interleaved)
    dw1, dw2, db1 = _views(flat, w1)
    return dx, dw1, db1, dw2, None, None


slice_ffn_op.register_autograd(_backward, setup_context=_remember)
