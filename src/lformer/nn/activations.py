"""The feed-forward's sigma by name."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from lformer.kernels import SIGMA

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {**SIGMA, "silu": F.silu}
"""Those of SIGMA are fused with the products around them by `slice_ffn`."""
