"""tube_norm: from the output of one sublayer to the input of the next, in one pass over memory.

    r_j  = x_j + dropout(sum_k W[j, k] (s_k + b_k))        inverse transform of s + b, residual
    n_j  = LayerNorm(r_j) gamma_j + beta_j                 every token and slice on its own
    yh_k = sum_j Z[k, j] n_j                               forward transform for the next sublayer

paper: tensor encoder layer; L and L^-1 then cost no traffic of their own. s and yh are in the transform domain, x and y
in the original one. Letters are in nn/folding.py; N = B T tokens.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from lformer.kernels.backend import MAX_FEATURES, MAX_TUBE, use_triton
from lformer.kernels.cpu import tube_norm_cpu, wants_gradient
from lformer.kernels.tube_mix import tube_mix_reference


def tube_norm(
    s: Tensor,
    x: Tensor,
    bias: Tensor | None,
    inverse: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    matrix: Tensor | None,
    *,
    eps: float = 1e-5,
    dropout: float = 0.0,
    post: bool = True,
    transformed: bool = True,
    backend: str = "auto",
) -> tuple[Tensor, Tensor | None]:
    """Gives y and yh as above: y = n where `post`, else y = r. Without `transformed` yh is None.

    Shapes: s and x (P, B, T, M); bias (P, M); inverse W and matrix Z (P, P), None for the identity; gamma and beta
    (P, M), or (1, M) for all slices. y has the dtype of x, yh that of s.
    """
    p, width = s.shape[0], s.shape[-1]
    unsupported = None
    if p > MAX_TUBE or p * width > MAX_FEATURES or s.numel() // p >= 2**31:
        unsupported = f"tube_norm keeps a token in registers, at most {MAX_TUBE} slices and {MAX_FEATURES} features"
    if not use_triton(backend, s, unsupported=unsupported):
        arguments = (s, x, bias, inverse, gamma, beta, matrix, eps, dropout, post, transformed)
        return (tube_norm_cpu if s.device.type == "cpu" else tube_norm_reference)(*arguments)
    from lformer.kernels.gpu.tube_norm import tube_norm_op

    seed = torch.randint(2**62, (1,), device=s.device) if dropout > 0 else None
    keep = wants_gradient(s, x, bias, inverse, gamma, beta, matrix)
    inputs = (s.contiguous(), x.contiguous(), bias, inverse, gamma, beta, matrix, seed)
    same = post and matrix is None  # yh is y; an operation may not return one tensor twice
    y, yh, _, _, _ = tube_norm_op(*inputs, eps, dropout, post, transformed and not same, keep)
    if not transformed:
        return y, None
    return y, y.to(s.dtype) if same else yh


def tube_norm_reference(
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
    """The same in plain torch."""
    if bias is not None:
        s = s + bias[:, None, None]
    r = x + F.dropout(tube_mix_reference(inverse, s), dropout, dropout > 0)
    width = (r.shape[-1],)
    if gamma.shape[0] == 1:
        n = F.layer_norm(r, width, gamma[0], beta[0], eps)
    else:
        n = torch.addcmul(beta[:, None, None], F.layer_norm(r, width, eps=eps), gamma[:, None, None])
    return (n if post else r), (tube_mix_reference(matrix, n) if transformed else None)
