"""tube_activation: y = Z sigma(W h) along the first axis, sigma in the original domain between L^-1 and L."""

from torch import Tensor

from lformer.kernels.backend import use_triton
from lformer.kernels.slice_ffn import SIGMA
from lformer.kernels.tube_mix import tube_mix_reference

MAX_TUBE = 8
"""The kernel keeps a tube and the sums of two P x P gradients in registers."""


def tube_activation(
    h: Tensor, inverse: Tensor | None, matrix: Tensor | None, activation: str, *, backend: str = "auto"
) -> Tensor:
    """Shapes: h (P, ..., F); inverse W and matrix Z (P, P), None for the identity -> (P, ..., F)."""
    if inverse is None or matrix is None:
        assert inverse is matrix, "L and L^-1 are both the identity, or neither is"
        return SIGMA[activation](h)
    unsupported = f"tube_activation takes at most {MAX_TUBE} slices" if len(h) > MAX_TUBE else None
    if not use_triton(backend, h, unsupported=unsupported):
        return tube_activation_reference(h, inverse, matrix, activation)
    from lformer.kernels.gpu.tube_activation import tube_activation_op

    return tube_activation_op(h.contiguous(), inverse, matrix, activation)


def tube_activation_reference(h: Tensor, inverse: Tensor, matrix: Tensor, activation: str) -> Tensor:
    """The same in plain torch, in three passes over memory."""
    return tube_mix_reference(matrix, SIGMA[activation](tube_mix_reference(inverse, h)))
