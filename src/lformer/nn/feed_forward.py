"""The L-feed-forward network: an ordinary one in every slice of the transform domain."""

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from lformer.nn.config import LayerConfig
from lformer.nn.folding import fold_slices, unfold_slices
from lformer.nn.interleave import interleave_slices
from lformer.nn.linear import LLinear
from lformer.nn.tube_transform import TubeTransform

SIGMA: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


class LFeedForward(nn.Module):
    """TFFN(X) = sigma(X * W_1 + B_1) * W_2 + B_2 under the L-product.

    paper: Eq. (TFFN) and Thm. L-FFN, which are two models, since sigma does not commute with L: with
    activation_domain="transform" sigma acts on the slices (the theorem), with "original" between L^-1 and L (the
    equation). Under the DFT sigma in the transform domain acts on real and imaginary parts.
    Shapes: (P, B, T, M) -> same, or (B, T, D) -> same. `slices` is the part inside the transform domain.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        config = LayerConfig.of(config)
        self.config = config
        self.sigma = SIGMA[config.hidden_act]
        in_sublayer = config.transform_scope == "sublayer"
        in_hidden = config.activation_domain == "original"
        self.transform = TubeTransform(config.tube_length, config.transform) if in_sublayer or in_hidden else None
        size, inner = config.padded_size, config.slice_intermediate_size * config.tube_length
        options: dict[str, Any] = {"transform": None, "num_complex": config.num_complex}
        self.inner = LLinear(size, inner, config.tube_length, **options)
        self.outer = LLinear(inner, size, config.tube_length, **options)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim == 3:
            return unfold_slices(self(fold_slices(x, self.config.tube_length)), self.config.hidden_size)
        if self.config.transform_scope == "block":
            raise ValueError("LFeedForward with transform_scope='block' has no transform of its own; call .slices")
        assert self.transform is not None
        return self.transform.inverse(self.slices(self.transform(x)))

    def slices(self, xh: Tensor) -> Tensor:
        """The network in the transform domain: (P, B, T, M) -> (P, B, T, M)."""
        h = self.inner.slices(xh)
        if self.config.activation_domain == "original":
            assert self.transform is not None
            h = self.transform(self.sigma(self.transform.inverse(h)))
        else:
            h = self.sigma(h)
        if self.config.interleave:
            h = interleave_slices(h)
        return self.outer.slices(h)
