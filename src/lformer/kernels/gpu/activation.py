"""The feed-forward's sigma and its derivative, in float32 registers."""

import triton
import triton.language as tl


@triton.jit
def activate(z, ACTIVATION: tl.constexpr):
    if ACTIVATION == "relu":
        return tl.maximum(z, 0.0)
    if ACTIVATION == "gelu":
        return 0.5 * z * (1.0 + tl.erf(z * 0.7071067811865476))
    if ACTIVATION == "silu":
        return z * tl.sigmoid(z)
    return z


@triton.jit
def activation_slope(z, ACTIVATION: tl.constexpr):
    """sigma'(z); for the ReLU it may be given sigma(z) instead."""
    if ACTIVATION == "relu":
        return tl.where(z > 0.0, 1.0, 0.0)
    if ACTIVATION == "gelu":
        cdf = 0.5 * (1.0 + tl.erf(z * 0.7071067811865476))
        return cdf + z * tl.exp(-0.5 * z * z) * 0.3989422804014327
    if ACTIVATION == "silu":
        share = tl.sigmoid(z)
        return share * (1.0 + z * (1.0 - share))
    return tl.full(z.shape, 1.0, tl.float32)
