"""What autocast would do to the operands of a product: our operations are not on its list."""

import torch
from torch import Tensor


def autocast_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which a product with x is computed here."""
    if torch.is_autocast_enabled(x.device.type) and x.dtype != torch.float64:
        return torch.get_autocast_dtype(x.device.type)
    return x.dtype


def cast(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return None if tensor is None else tensor.to(dtype)
