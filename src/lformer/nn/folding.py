"""Between ordinary activations (B, T, D) and slice-first ones (P, B, T, M): fold once on entry, unfold once on exit.

Slice-first is the layout of everything inside a stack: slice-wise linears are one batched product, attention takes the
slices as batch without a copy, norm reduces the contiguous axis, and the tube transform is a P x P product on a view.

Letters: B batch, T tokens, P tube length (slices), M slice width, D = P M hidden size, H heads per slice, E head size,
F feed-forward width of a slice. xh is x in the transform domain.
"""

import torch.nn.functional as F
from torch import Tensor


def slice_width(features: int, tube_length: int) -> int:
    """M = ceil(D / P): where P does not divide D, the features are padded to the next multiple (paper, footnote)."""
    return -(-features // tube_length)


def fold_slices(x: Tensor, tube_length: int) -> Tensor:
    """Ten_p with the tube mode first: (..., T, D) -> (P, ..., T, M), zero-padded where P does not divide D."""
    if tube_length == 1:
        return x.unsqueeze(0)
    padding = -x.shape[-1] % tube_length
    if padding:
        x = F.pad(x, (0, padding))
    return x.unflatten(-1, (tube_length, -1)).movedim(-2, 0).contiguous()


def unfold_slices(x: Tensor, features: int) -> Tensor:
    """Mat_p: (P, ..., T, M) -> (..., T, D), the padding cut off."""
    if len(x) == 1:
        return x.squeeze(0)
    return x.movedim(0, -2).flatten(-2)[..., :features]
