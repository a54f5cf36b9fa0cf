"""Fourier mixing of tokens (FNet), in the place of an encoder's self-attention: nothing is learned."""

from typing import Any

import torch
from torch import Tensor, nn

FOR_ENCODERS = (
    "token_mixing='fourier' mixes every token with all others, later ones too: it is for encoders; "
    "use token_mixing='attention' for a decoder"
)


class FourierMixing(nn.Module):
    """Y_k = Re(F_T X_k F_M) for every slice k: the DFT over its M features, then over the T tokens, not normalised.

    Y_k(t, j) = sum_{s, i} X_k(s, i) cos(2 pi (t s / T + j i / M)). It does the same to every slice, so it commutes with
    L, and L^-1 after it would undo L before it: there is no transform here, and slices stay apart.
    Padding is set to zero first and so has no content, but T counts it: the same text in a longer batch is mixed with
    other frequencies. Shapes: (P, B, T, M) -> same.
    """

    transform = None
    output = None
    """An attention's last projection, which a layer asks for its bias."""

    def slices(
        self, x: Tensor, *, mask: Tensor | None = None, is_causal: bool = False, cache: Any = None, **options: Any
    ) -> tuple[Tensor, None]:
        """The place of `LAttention.slices`. mask: (B or 1, 1, 1, T), True for tokens and False for padding.

        The other options (rotary, bias, output_attentions) have nothing to act on. There are no maps to return.
        """
        if is_causal or cache is not None:
            raise ValueError("token_mixing='fourier' mixes every token with every other: it cannot be causal or cached")
        if mask is not None:
            x = x.masked_fill(~_token_mask(mask), 0.0)
        # In float32: an entry sums T M numbers, too many digits for bfloat16 and too large a number for float16.
        y = torch.fft.fft2(x.to(torch.promote_types(x.dtype, torch.float32))).real
        return y if torch.is_autocast_enabled(x.device.type) else y.to(x.dtype), None


def _token_mask(mask: Tensor) -> Tensor:
    """Which tokens are no padding, as slices (P, B, T, M) have them: (B, 1, 1, T) -> (B, T, 1)."""
    if mask.dtype != torch.bool or mask.ndim != 4 or mask.shape[1:3] != (1, 1):
        raise ValueError(
            "token_mixing='fourier' takes a mask that says which tokens are padding, (batch, length), "
            f"and not one for pairs of tokens, got {tuple(mask.shape)} of {mask.dtype}"
        )
    return mask[:, 0, 0, :, None]
