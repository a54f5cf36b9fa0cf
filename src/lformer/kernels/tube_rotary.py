"""tube_rotary: queries, keys and values in the domain of the heads, queries and keys rotated by their positions (RoPE).

Letters are in nn/folding.py.
"""

import torch
from torch import Tensor

from lformer.kernels.backend import use_triton
from lformer.kernels.tube_mix import tube_mix, tube_mix_reference

MAX_TUBE = 8
"""The kernel keeps a tube and the sums of a P x P gradient in registers; more slices are mixed in a pass before it."""


def tube_rotary(
    qkv: Tensor,
    matrix: Tensor | None,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    *,
    backend: str = "auto",
) -> tuple[Tensor, Tensor, Tensor]:
    """y_j = sum_k W[j, k] x_k for x = q, k, v, and of these q and k rotated: y cos + roll(y, E / 2) sin.

    Shapes: qkv (P, B, T, 3, H, E); matrix W (P, P), None for the identity; cos, sin (B or 1, T, E) as RotaryPositions
    gives them, [c, c] and [-s, s], None for no rotation -> q, k, v, each (P, B, T, H, E).

    The kernel writes three tensors, so that three gradients need not be joined. cos and sin have none.
    """
    if cos is None or sin is None:
        assert cos is sin, "cosines and sines come together"
        q, k, v = tube_mix(matrix, qkv, backend=backend).unbind(3)
        return q, k, v
    if not use_triton(backend, qkv):
        return tube_rotary_reference(qkv, matrix, cos, sin)
    from lformer.kernels.gpu.tube_rotary import tube_rotary_op

    if matrix is not None and len(qkv) > MAX_TUBE:
        qkv, matrix = tube_mix(matrix, qkv, backend=backend), None
    p = len(qkv)
    if matrix is None:  # every slice for itself, any number of them: more of a batch
        qkv = qkv.flatten(0, 1)[None]
    q, k, v = tube_rotary_op(qkv.contiguous(), matrix, cos.float().contiguous(), sin.float().contiguous())
    if matrix is None:
        q, k, v = (part[0].unflatten(0, (p, -1)) for part in (q, k, v))
    return q, k, v


def tube_rotary_reference(
    qkv: Tensor, matrix: Tensor | None, cos: Tensor, sin: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The same in plain torch, in four passes over memory."""
    q, k, v = tube_mix_reference(matrix, qkv).unbind(3)
    return rotate(q, (cos, sin)), rotate(k, (cos, sin)), v


def rotate(x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate the feature pairs (j, j + E/2) of queries or keys (P, B, T, H, E) by their angles, in three passes."""
    cos, sin = (part[:, :, None].to(x.dtype) for part in rotary)
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)
