"""Mixing of slices that costs no parameters (ours, not the paper's)."""

from torch import Tensor


def interleave_slices(x: Tensor) -> Tensor:
    """A perfect shuffle of P x P chunks: slice k takes chunk k of every slice's features. Its own inverse.

    Before the second projection of a sublayer it lets every slice read from every other. Shapes: (P, ..., F) -> same,
    F a multiple of P; y_k = [x_1 chunk k, ..., x_P chunk k].
    """
    tube_length = x.shape[0]
    if tube_length == 1:
        return x
    chunk = x.shape[-1] // tube_length  # and not -1, which means nothing to a tensor without elements
    return x.view(*x.shape[:-1], tube_length, chunk).transpose(0, -2).reshape(x.shape)
