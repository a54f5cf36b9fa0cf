"""Where a token stands: the paper's tensor positional encodings, and rotary positions inside the heads of slices."""

import torch
from torch import Tensor, nn

from lformer.nn.constants import Constants
from lformer.nn.folding import fold_slices, slice_width, unfold_slices

SINUSOIDAL = ("standard", "linear", "exponential", "harmonic", "learned-alpha")
UNLIMITED = ("rope", "none")  # need no table, so that texts may be of any length
STRATEGIES = (*SINUSOIDAL, "learned", *UNLIMITED)


def alphas(strategy: str, tube_length: int) -> Tensor:
    """The frequency scale alpha_k of each slice, k = 1..P, in float64. paper: Remark on frequency scaling strategies.

    standard: 1; linear: k / P; exponential: 2^((k - 1) / (P - 1)), 1 if P = 1; harmonic: k; learned-alpha starts at 1.
    """
    k = torch.arange(1, tube_length + 1, dtype=torch.float64)
    if strategy == "linear":
        return k / tube_length
    if strategy == "exponential":
        return 2 ** ((k - 1) / max(tube_length - 1, 1))
    if strategy == "harmonic":
        return k
    return torch.ones_like(k)


class TubePositionalEncoding(Constants):
    """Adds P(t, j, k) to the input: sin or cos of t alpha_k / 10000^(2 floor((j - 1) / 2) / M), by odd or even j.

    paper: Def. slice-aware sinusoidal positional encoding; t, j and k count from 1 as there: the first token has t = 1.
    "learned" is a whole learned tensor (P, max_positions, M); "learned-alpha" learns the P scales; "rope" and "none"
    add nothing here. Shapes: (P, B, T, M) -> same, or (B, T, D) -> same.
    """

    def __init__(self, hidden_size: int, tube_length: int, max_positions: int, strategy: str = "standard") -> None:
        super().__init__()
        if strategy not in STRATEGIES:
            raise ValueError(f"positional={strategy!r} is not one of {', '.join(map(repr, STRATEGIES))}")
        self.hidden_size = hidden_size
        self.tube_length = tube_length
        self.max_positions = max_positions
        self.strategy = strategy
        self.width = slice_width(hidden_size, tube_length)
        if strategy == "learned":
            self.table = nn.Parameter(torch.empty(tube_length, max_positions, self.width))
        elif strategy == "learned-alpha":
            self.alpha = nn.Parameter(torch.empty(tube_length))
        elif strategy in SINUSOIDAL:
            self.register_buffer("table", torch.empty(tube_length, max_positions, self.width), persistent=False)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.strategy == "learned":
            self.table.normal_(std=0.02)

    def initial_values(self) -> dict[str, Tensor]:
        if self.strategy == "learned-alpha":
            return {"alpha": alphas(self.strategy, self.tube_length)}
        if self.strategy in SINUSOIDAL:
            positions = torch.arange(self.max_positions, dtype=torch.float64)
            return {"table": sinusoids(positions, self.width, alphas(self.strategy, self.tube_length))}
        return {}

    def encoding(self, length: int, position_ids: Tensor | None = None) -> Tensor:
        """P for positions 0..length-1, (P, 1, T, M), or for the given ones (B, T), (P, B, T, M)."""
        if position_ids is None and length > self.max_positions:
            raise ValueError(
                f"the input has {length} tokens, but max_position_embeddings={self.max_positions}; "
                "truncate the input or make the model with a larger max_position_embeddings"
            )
        if self.strategy == "learned-alpha":
            positions = torch.arange(length, device=self.alpha.device)[None] if position_ids is None else position_ids
            dtype = torch.promote_types(self.alpha.dtype, torch.float32)  # positions need more digits than bf16 has
            return sinusoids(positions.to(dtype), self.width, self.alpha.to(dtype))
        if position_ids is None:
            return self.table[:, None, :length]
        return self.table[:, position_ids]

    def forward(self, x: Tensor, position_ids: Tensor | None = None) -> Tensor:
        if self.strategy in UNLIMITED:
            return x
        if x.ndim == 3:
            return unfold_slices(self(fold_slices(x, self.tube_length), position_ids), self.hidden_size)
        return x + self.encoding(x.shape[-2], position_ids).to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.strategy!r}, tube_length={self.tube_length}, max_positions={self.max_positions}"


def sinusoids(positions: Tensor, width: int, alpha: Tensor) -> Tensor:
    """The formula of the class above for positions (...) counted from 0: (...) -> (P, ..., width)."""
    pair = torch.div(torch.arange(width, device=positions.device), 2, rounding_mode="floor")
    frequency = 10000.0 ** (-2.0 * pair.to(positions.dtype) / width)
    angle = (positions + 1)[..., None] * frequency
    angle = alpha.reshape(-1, *(1,) * angle.ndim) * angle
    odd = torch.arange(width, device=positions.device) % 2 == 0  # j counts from 1: its first value is odd
    return torch.where(odd, angle.sin(), angle.cos())


class RotaryPositions(nn.Module):
    """Cosines and sines that rotate queries and keys by their position (RoPE), the same in the heads of every slice."""

    def __init__(self, head_size: int, theta: float = 10000.0) -> None:
        super().__init__()
        if head_size % 2:
            raise ValueError(f"positional='rope' rotates pairs of features: the head size {head_size} must be even")
        self.head_size = head_size
        self.theta = theta

    def forward(self, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T) -> cos = [c, c], and sin = [-s, s] with the signs that `rotate` needs, (B, T, E) each, in float32:
        positions need more digits than bf16 has.
        """
        exponent = torch.arange(0, self.head_size, 2, device=position_ids.device, dtype=torch.float32) / self.head_size
        angle = position_ids[..., None].float() * self.theta**-exponent
        cos, sin = angle.cos(), angle.sin()
        return torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)
