"""A linear layer of the L-product whose weight matrices are products of two thin factors, trained from scratch."""

import math

import torch
from torch import Tensor, nn

from lformer.nn.config import LayerConfig
from lformer.nn.folding import slice_width
from lformer.nn.linear import LLinear


class LowRankLLinear(LLinear):
    """`LLinear` with W_k = A_k B_k of rank at most R in every slice k: yh_k = (xh_k B_k^T) A_k^T + b_k.

    Parameters: left A (P, N, R), right B (P, R, M) and bias (P, N); R (M + N) weights a slice in place of M N.
    It has no `weight`; `product` multiplies the factors out. Under the DFT the factors are complex, as the weight was.
    It is part of a larger layer and acts on slices of the transform domain: (P, ..., M) -> (P, ..., N).
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        tube_length: int,
        rank: int,
        *,
        num_complex: int = 0,
        backend: str = "auto",
    ) -> None:
        nn.Module.__init__(self)
        self.in_features = in_features
        self.out_features = out_features
        self.tube_length = tube_length
        self.rank = rank
        self.num_complex = num_complex
        self.backend = backend
        self.transform = None
        width_in, width_out = slice_width(in_features, tube_length), slice_width(out_features, tube_length)
        self.left = nn.Parameter(torch.empty(tube_length, width_out, rank))
        self.right = nn.Parameter(torch.empty(tube_length, rank, width_in))
        self.bias = nn.Parameter(torch.empty(tube_length, width_out))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """The product has the mean and variance of `LLinear`'s weight: B starts as that does, A has variance 1 / R."""
        bound = 1 / math.sqrt(self.right.shape[-1])
        self.right.uniform_(-bound, bound)
        self.left.normal_(std=1 / math.sqrt(self.rank))
        for factor in (self.left, self.right):
            factor[self.tube_length - 2 * self.num_complex :] /= math.sqrt(2)  # |Re + i Im| as large as a real one
        assert self.bias is not None
        self.bias.uniform_(-bound, bound)

    def slices(self, xh: Tensor, *, bias: bool = True, interleaved: bool = False) -> Tensor:
        thin = self._product(xh, self.right, None, interleaved)
        return self._product(thin, self.left, self.bias if bias else None)

    def product(self) -> Tensor:
        """The weight that an `LLinear` would have in this one's place: (P, N, M)."""
        columns = self._product(self.right.mT, self.left, None)  # the slices' (M, R) as M tokens of R features
        return columns.mT

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, tube_length={self.tube_length}, rank={self.rank}"


def projection(config: LayerConfig, in_features: int, out_features: int) -> LLinear:
    """A linear map of a sublayer, between its L and L^-1: whole matrices, or factors of config.linear_rank."""
    if config.linear_rank is None:
        return LLinear(
            in_features,
            out_features,
            config.tube_length,
            transform=None,
            num_complex=config.num_complex,
            backend=config.backend,
        )
    return LowRankLLinear(
        in_features,
        out_features,
        config.tube_length,
        config.linear_rank,
        num_complex=config.num_complex,
        backend=config.backend,
    )
