"""tube_activation: y = Z sigma(W h) along the first axis, sigma in the original domain between L^-1 and L."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from lformer.kernels.backend import use_triton
from lformer.kernels.slice_ffn import SIGMA
from lformer.kernels.tube_mix import tube_mix_reference

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {**SIGMA, "silu": F.silu}
"""Every sigma that there is; those of SIGMA `slice_ffn` fuses with the products around them."""
MAX_TUBE = 8
"""The kernel keeps a tube and the sums of two P x P gradients in registers."""


def tube_activation(
    h: Tensor,
    inverse: Tensor | None,
    matrix: Tensor | None,
    activation: str,
    *,
    gated: bool = False,
    backend: str = "auto",
) -> Tensor:
    """Shapes: h (P, ..., F); inverse W and matrix Z (P, P), None for the identity -> (P, ..., F).

    With `gated` h is [A, G], (P, ..., 2F), and sigma(W A) W G takes the place of sigma(W h).
    """
    if inverse is None or matrix is None:
        assert inverse is matrix, "L and L^-1 are both the identity, or neither is"
        return _activate(h, activation, gated)
    unsupported = f"tube_activation takes at most {MAX_TUBE} slices" if len(h) > MAX_TUBE else None
    if not use_triton(backend, h, unsupported=unsupported):
        return tube_activation_reference(h, inverse, matrix, activation, gated=gated)
    from lformer.kernels.gpu.tube_activation import tube_activation_op

    return tube_activation_op(h.contiguous(), inverse, matrix, activation, gated)


def tube_activation_reference(
    h: Tensor, inverse: Tensor, matrix: Tensor, activation: str, *, gated: bool = False
) -> Tensor:
    """The same in plain torch, in three passes over memory."""
    return tube_mix_reference(matrix, _activate(tube_mix_reference(inverse, h), activation, gated))


def _activate(h: Tensor, activation: str, gated: bool) -> Tensor:
    if not gated:
        return ACTIVATIONS[activation](h)
    a, g = h.chunk(2, dim=-1)
    return ACTIVATIONS[activation](a) * g
