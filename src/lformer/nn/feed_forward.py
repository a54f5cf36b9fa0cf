"""The L-feed-forward network: an ordinary one in every slice of the transform domain."""

from typing import Any

from torch import Tensor, nn

from lformer.kernels import ACTIVATIONS, SIGMA, interleave_slices, outside_kernel, slice_ffn, tube_activation
from lformer.nn.config import LayerConfig
from lformer.nn.folding import fold_slices, unfold_slices
from lformer.nn.linear import LLinear
from lformer.nn.low_rank import projection
from lformer.nn.tube_transform import TubeTransform


class LFeedForward(nn.Module):
    """TFFN(X) = sigma(X * W_1 + B_1) * W_2 + B_2 under the L-product.

    paper: Eq. (TFFN) and Thm. L-FFN, which are two models, since sigma does not commute with L: with
    activation_domain="transform" sigma acts on the slices (the theorem), with "original" between L^-1 and L (the
    equation). Under the DFT sigma in the transform domain acts on real and imaginary parts.

    With `gated` (ours) the inner projection has twice the width and [A, G] in place of one H: sigma(A) G, entry by
    entry, takes the place of sigma(H), in the domain where sigma acts.

    With feed_forward_fold="shuffled" (ours) its slices hold other features than those of the attention: a shuffle S of
    P x P chunks (interleave_slices, its own inverse) stands around the whole, L(S(X)) on entry and S(L^-1(Y)) on exit.
    Shapes: (P, B, T, M) -> same, or (B, T, D) -> same. `slices` is the part inside the transform domain.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        config = LayerConfig.of(config)
        self.config = config
        self.shuffled = config.feed_forward_fold == "shuffled"
        self.sigma = ACTIVATIONS[config.hidden_act]
        in_sublayer = config.transform_scope == "sublayer"
        in_hidden = config.activation_domain == "original"
        self.transform = (
            TubeTransform(config.tube_length, config.transform, config.backend) if in_sublayer or in_hidden else None
        )
        size, inner = config.padded_size, config.slice_intermediate_size * config.tube_length
        self.inner = projection(config, size, 2 * inner if config.gated else inner)
        self.outer = projection(config, inner, size)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim == 3:
            return unfold_slices(self(fold_slices(x, self.config.tube_length)), self.config.hidden_size)
        if self.config.transform_scope == "block":
            raise ValueError("LFeedForward with transform_scope='block' has no transform of its own; call .slices")
        assert self.transform is not None
        if self.shuffled:
            x = interleave_slices(x)
        return self.leave(self.slices(self.transform(x)))

    def leave(self, yh: Tensor) -> Tensor:
        """Back to the original domain and to the fold of the residual stream: (P, B, T, M) -> (P, B, T, M)."""
        assert self.transform is not None
        y = self.transform.inverse(yh)
        return interleave_slices(y) if self.shuffled else y

    def slices(self, xh: Tensor, *, bias: bool = True) -> Tensor:
        """The network in the transform domain: (P, B, T, M) -> (P, B, T, M). bias=False leaves the outer one out."""
        config = self.config
        reason = self._why_not_fused()
        if reason is None:
            assert self.inner.bias is not None
            return slice_ffn(
                xh,
                self.inner.weight,
                self.inner.bias,
                self.outer.weight,
                self.outer.bias if bias else None,
                config.hidden_act,
                interleaved=config.interleave,
                backend=config.backend,
            )
        h = self.inner.slices(xh)
        if self._acts_on_slices():
            outside_kernel(config.backend, xh, "the activation of the feed-forward network", reason)
            h = self._activate(h)
        else:
            assert self.transform is not None
            matrix, inverse = self.transform.matrices()
            act, gated = config.hidden_act, config.gated
            h = tube_activation(h, inverse, matrix, act, gated=gated, backend=config.backend)
        return self.outer.slices(h, bias=bias, interleaved=config.interleave)

    def _acts_on_slices(self) -> bool:
        identity = self.transform is not None and self.transform.is_identity
        return self.config.activation_domain == "transform" or identity

    def _why_not_fused(self) -> str | None:
        """What `slice_ffn` has no form for, if there is anything."""
        config = self.config
        reasons = (
            (config.num_complex > 0, "slices of the DFT are complex"),
            (not self._acts_on_slices(), f"activation_domain={config.activation_domain!r}"),
            (config.gated, "gated=True"),
            (config.hidden_act not in SIGMA, f"hidden_act={config.hidden_act!r}"),
            (not type(self.inner) is type(self.outer) is LLinear, "its weights are quantised or of low rank"),
        )
        return next((reason for applies, reason in reasons if applies), None)

    def _activate(self, h: Tensor) -> Tensor:
        """sigma(H), (P, B, T, F) -> same; or of [A, G] side by side sigma(A) G, (P, B, T, 2F) -> (P, B, T, F)."""
        if not self.config.gated:
            return self.sigma(h)
        a, g = h.chunk(2, dim=-1)
        return self.sigma(a) * g
