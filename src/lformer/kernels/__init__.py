"""Fast paths beside their plain-torch references: one operation, one file; the kernels themselves are in gpu/."""

from lformer.kernels.backend import BACKENDS, outside_kernel, require_backend, use_triton
from lformer.kernels.interleave import interleave_slices
from lformer.kernels.slice_attention import slice_attention
from lformer.kernels.slice_ffn import SIGMA, slice_ffn
from lformer.kernels.slice_linear import slice_linear
from lformer.kernels.tube_activation import ACTIVATIONS, tube_activation
from lformer.kernels.tube_mix import tube_mix
from lformer.kernels.tube_norm import tube_norm
from lformer.kernels.tube_rotary import rotate, tube_rotary

__all__ = [
    "ACTIVATIONS",
    "BACKENDS",
    "SIGMA",
    "interleave_slices",
    "outside_kernel",
    "require_backend",
    "rotate",
    "slice_attention",
    "slice_ffn",
    "slice_linear",
    "tube_activation",
    "tube_mix",
    "tube_norm",
    "tube_rotary",
    "use_triton",
]
