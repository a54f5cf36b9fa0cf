"""The operations of a layer on the CPU: plain torch, in the forms that were measured to be fastest (docs/log.md).

Letters are in nn/folding.py; N = B T tokens. Where no gradient is wanted the results are written in place. Under
torch.compile nothing is: Inductor joins the passes by itself.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lformer.kernels.interleave import interleave_slices

LARGE_HIDDEN = 8 << 20
"""Bytes of hidden activations of a feed-forward network above which its slices go through one by one."""
SCORE_BYTES = 2 << 20
"""Attention scores that are alive at once where they are written out."""
MAX_WRITTEN_LENGTH = 128
FEW_NUMBERS = 1 << 14
"""Up to so many, as when a text is generated token by token, the number of calls matters and not what they do."""
MAX_UNROLLED_TUBE = 8
"""Up to this length Inductor unrolls a sum over slices into the loop around it."""


def slice_linear_cpu(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "none") -> Tensor:
    """y_k = sigma(x_k W_k^T + b_k): x (P, N, K), weight (P, O, K), bias (P, O) -> (P, N, O).

    One batched product that starts from the bias: for small slices a loop over them takes up to three times as long.
    """
    if x.shape[0] == 1:  # len(x) is a call of Python's
        y = F.linear(x, weight[0], None if bias is None else bias[0])
    elif wants_gradient(x, weight, bias) and not torch.compiler.is_compiling():
        y = _SliceLinear.apply(*_autocast(x, weight, bias))
    else:
        y = _product(x, weight, bias)
    return _activate(y, activation)


def slice_ffn_cpu(
    x: Tensor,
    inner_weight: Tensor,
    inner_bias: Tensor | None,
    outer_weight: Tensor,
    outer_bias: Tensor | None = None,
    activation: str = "relu",
    interleaved: bool = False,
) -> Tensor:
    """y_k = sigma(x_k W1_k^T + b1_k) W2_k^T + b2_k: x (P, N, M), W1 (P, F, M), W2 (P, M, F) -> (P, N, M).

    With `interleaved` the hidden activations pass through interleave_slices, which takes all slices at once.

    Where the hidden activations are large, one slice after the other, so that a slice finds the memory of the one
    before in the cache; for small ones the loop would cost more than it saves.
    """
    small = x.shape[0] * x.shape[1] * inner_weight.shape[1] * x.element_size() <= LARGE_HIDDEN
    whole = small or interleaved or torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu")
    if whole or wants_gradient(x, inner_weight, inner_bias, outer_weight, outer_bias):
        hidden = slice_linear_cpu(x, inner_weight, inner_bias, activation)
        if interleaved:
            hidden = interleave_slices(hidden)
        return slice_linear_cpu(hidden, outer_weight, outer_bias)
    y = x.new_empty(*x.shape[:2], outer_weight.shape[1])
    for k in range(len(x)):
        hidden = F.linear(x[k], inner_weight[k], None if inner_bias is None else inner_bias[k])
        hidden = _activate(hidden, activation)
        if outer_bias is None:
            torch.mm(hidden, outer_weight[k].T, out=y[k])
        else:
            torch.addmm(outer_bias[k], hidden, outer_weight[k].T, out=y[k])
    return y


def tube_norm_cpu(
    s: Tensor,
    x: Tensor,
    bias: Tensor | None,
    inverse: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    matrix: Tensor | None,
    eps: float = 1e-5,
    dropout: float = 0.0,
    post: bool = True,
    transformed: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """With r = x + dropout(W (s + b)) and n = LayerNorm(r) gamma + beta: y = n if `post` else r, and yh = Z n.

    Shapes: s and x (P, ..., M); bias (P, M); W and Z (P, P) or None; gamma and beta (P, M) or (1, M). The residual
    sum is part of the product with W. A bias is better given to the product before, which adds it for free.
    """
    r = _residual(s, x, bias, inverse, dropout)
    n = _layer_norm(r, gamma, beta, eps)
    return (n if post else r), (_mix(matrix, n) if transformed else None)


def writes_scores(qkv: Tensor) -> bool:
    """Whether `slice_attention_cpu` is faster here than torch's flash kernel: short sequences, one head in a slice
    (more would have to be copied), more than one thread, and nothing to remember for a backward.
    """
    if torch.compiler.is_compiling():  # first: the number of threads would break the graph
        return False
    p, b, t, _, heads, _ = qkv.shape
    return (
        heads == 1
        and p * b > 1
        and t <= MAX_WRITTEN_LENGTH
        and qkv.dtype == torch.float32
        and torch.get_num_threads() > 1
        and not wants_gradient(qkv)
        and not torch.is_autocast_enabled("cpu")
    )


def slice_attention_cpu(qkv: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(E)) v of slices with one head: qkv (P, B, T, 3, 1, E) -> (P, B, T, 1, E).

    Batched products over as many sequences at a time as keep their scores in the cache, which one buffer holds.
    """
    q, k, v = qkv.flatten(0, 1).squeeze(3).unbind(2)  # (P B, T, E), views
    n, t, width = q.shape
    step = max(1, SCORE_BYTES // max(1, t * t * q.element_size()))
    scores = q.new_empty(min(step, n), t, t)
    y = q.new_empty(n, t, width)
    for start in range(0, n, step):
        part = slice(start, min(start + step, n))
        some = scores[: part.stop - start]
        torch.baddbmm(some, q[part], k[part].mT, beta=0, alpha=width**-0.5, out=some)
        torch.bmm(torch.softmax(some, dim=-1, out=some), v[part], out=y[part])
    return y.view(*qkv.shape[:3], 1, width)


def wants_gradient(*tensors: Tensor | None) -> bool:
    """Whether autograd will ask for the gradient of any of these."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


class _SliceLinear(torch.autograd.Function):
    """x_k W_k^T + b_k, whose backward makes the gradient of W in the layout of W. That of `torch.bmm` makes it
    transposed and then copies it: at one short sequence of width 768 an eighth of a training step.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return _product(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad
        return (
            torch.bmm(grad, weight) if for_x else None,
            torch.bmm(grad.mT, x) if for_weight else None,
            grad.sum(1) if for_bias else None,
        )


def _autocast(*tensors: Tensor | None) -> list[Tensor | None]:
    # A product inside an autograd.Function would be cast behind its back, and its backward would meet two dtypes.
    if not torch.is_autocast_enabled("cpu"):
        return list(tensors)
    dtype = torch.get_autocast_dtype("cpu")
    return [t if t is None else t.to(dtype) for t in tensors]


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.bmm(x, weight.mT) if bias is None else torch.baddbmm(bias.unsqueeze(1), x, weight.mT)


def _activate(y: Tensor, activation: str) -> Tensor:
    """sigma, in place where nothing needs y before it."""
    if activation == "none":
        return y
    if activation == "relu":
        return y.relu_()  # the backward of relu needs its output alone
    if wants_gradient(y) or torch.compiler.is_compiling():
        return F.gelu(y)
    return torch.ops.aten.gelu_(y)


def _residual(s: Tensor, x: Tensor, bias: Tensor | None, inverse: Tensor | None, dropout: float) -> Tensor:
    # Under autocast addmm would round x, the residual stream, to the lower precision.
    joined = s.dtype == x.dtype and not torch.is_autocast_enabled("cpu") and not torch.compiler.is_compiling()
    if inverse is None or dropout > 0 or not joined:
        y = s if bias is None else s + _along(bias, s)
        return x + F.dropout(_mix(inverse, y), dropout, dropout > 0)
    inverse = inverse.to(x.dtype)
    r = torch.addmm(x.flatten(1), inverse, s.flatten(1)).view(x.shape)
    return r if bias is None else r.add_(_along(inverse @ bias.to(x.dtype), r))


def _layer_norm(r: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    width = r.shape[-1:]
    if gamma.shape[0] == 1:
        return F.layer_norm(r, width, gamma[0], beta[0], eps)
    if torch.compiler.is_compiling():
        return torch.addcmul(_along(beta, r), F.layer_norm(r, width, eps=eps), _along(gamma, r))
    if r.numel() <= FEW_NUMBERS:
        n = F.layer_norm(r, width, eps=eps)
        return torch.addcmul(_along(beta, n), n, _along(gamma, n))
    # torch's kernel without a scale and shift is slower than with: 1.6 times for slices of 32 to 192 features.
    n = F.layer_norm(r, width, gamma.new_ones(width), beta.new_zeros(width), eps)
    out = None if wants_gradient(n, gamma, beta) else n
    return torch.addcmul(_along(beta, n), n, _along(gamma, n), out=out)


def _mix(matrix: Tensor | None, x: Tensor) -> Tensor:
    """L along the first axis, (P, ...) -> (P, ...): one product of a small matrix with a long contiguous one."""
    if matrix is None:
        return x
    matrix = matrix.to(x.dtype)
    if torch.compiler.is_compiling() and len(x) <= MAX_UNROLLED_TUBE:
        return (matrix.view(*matrix.shape, *[1] * (x.ndim - 1)) * x).sum(1)
    return torch.matmul(matrix, x.flatten(1)).view(x.shape)


def _along(parameter: Tensor, x: Tensor) -> Tensor:
    """(P, M) -> (P, 1, ..., M), to meet (P, ..., M)."""
    return parameter.view(parameter.shape[0], *[1] * (x.ndim - 2), -1)
