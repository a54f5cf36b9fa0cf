"""Layers of the tensor Transformer. They take ordinary activations (B, T, D), or slice-first ones (P, B, T, M) inside a
stack; see folding.py for the letters.
"""

from lformer.kernels import interleave_slices
from lformer.nn.attention import LAttention
from lformer.nn.config import LayerConfig
from lformer.nn.coupling import coupling
from lformer.nn.feed_forward import LFeedForward
from lformer.nn.folding import fold_slices, unfold_slices
from lformer.nn.fourier import FourierMixing
from lformer.nn.head_norm import HeadNorm
from lformer.nn.layers import Entry, LDecoderLayer, LEncoderLayer
from lformer.nn.linear import LLinear
from lformer.nn.low_rank import LowRankLLinear
from lformer.nn.norm import TensorLayerNorm
from lformer.nn.positions import RotaryPositions, TubePositionalEncoding
from lformer.nn.tube_transform import TubeTransform

__all__ = [
    "Entry",
    "FourierMixing",
    "HeadNorm",
    "LAttention",
    "LDecoderLayer",
    "LEncoderLayer",
    "LFeedForward",
    "LLinear",
    "LayerConfig",
    "LowRankLLinear",
    "RotaryPositions",
    "TensorLayerNorm",
    "TubePositionalEncoding",
    "TubeTransform",
    "coupling",
    "fold_slices",
    "interleave_slices",
    "unfold_slices",
]
