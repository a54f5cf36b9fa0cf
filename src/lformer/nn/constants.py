"""Buffers that are known numbers, such as the matrix of the DCT, and keep their digits when a module is cast."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class Constants(nn.Module):
    """A module that can say what its buffers hold, so that a cast starts again from float64 and not from the old dtype:
    `.double()` has all of its digits, and going to bfloat16 and back loses none.
    """

    def initial_values(self) -> dict[str, Tensor]:
        """What every parameter and buffer that is not random holds at first, by name, in float64."""
        raise NotImplementedError

    @torch.no_grad()
    def reset_parameters(self) -> None:
        for name, value in self.initial_values().items():
            getattr(self, name).copy_(value)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> "Constants":
        before = {name: buffer.dtype for name, buffer in self.named_buffers(recurse=False)}
        super()._apply(fn, recurse)
        changed = [name for name, buffer in self.named_buffers(recurse=False) if buffer.dtype != before[name]]
        if changed:
            values = self.initial_values()
            for name in changed:
                getattr(self, name).copy_(values[name])
        return self
