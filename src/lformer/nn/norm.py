"""Tensor layer normalisation: every token and slice on its own."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lformer.nn.folding import fold_slices, slice_width, unfold_slices


class TensorLayerNorm(nn.Module):
    """Mean and variance along the features of each token and slice, with a scale and a shift per slice.

    paper: Def. tensor LayerNorm; our weight and bias (P, M) are their Gamma and B. Shapes: (P, B, T, M) -> same, or
    (B, T, D) -> same. For P = 1 it is `nn.LayerNorm`. With `shared`, one scale and shift of width M serve all slices.
    """

    def __init__(self, hidden_size: int, tube_length: int = 1, *, eps: float = 1e-5, shared: bool = False) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.tube_length = tube_length
        self.eps = eps
        width = slice_width(hidden_size, tube_length)
        rows = 1 if shared else tube_length
        self.weight = nn.Parameter(torch.ones(rows, width))
        self.bias = nn.Parameter(torch.zeros(rows, width))

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim == 3:
            return unfold_slices(self(fold_slices(x, self.tube_length)), self.hidden_size)
        width = (x.shape[-1],)
        if len(self.weight) == 1:
            return F.layer_norm(x, width, self.weight[0], self.bias[0], self.eps)
        normed = F.layer_norm(x, width, eps=self.eps)
        return torch.addcmul(self.bias[:, None, None], normed, self.weight[:, None, None])

    def extra_repr(self) -> str:
        return f"{self.hidden_size}, tube_length={self.tube_length}, eps={self.eps}"
