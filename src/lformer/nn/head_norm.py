"""The norm of queries and keys, which bounds the scores of attention."""

import torch
from torch import Tensor, nn


class HeadNorm(nn.Module):
    """y = g x / sqrt(mean(x^2) + eps) over the features of a head, with a scale per slice, shared by its heads.

    Parameters: weight (P, E), 1 at the start. Shapes: (P, B, T, H, E) -> same. Computed in float32 (float64 stays).
    """

    def __init__(self, tube_length: int, head_size: int, *, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(tube_length, head_size))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (normed * self.weight[:, None, None, None]).to(x.dtype)

    def extra_repr(self) -> str:
        return f"tube_length={self.weight.shape[0]}, head_size={self.weight.shape[1]}, eps={self.eps}"
