"""The masks of dropout must be as good as random ones: in their rate, along rows, between places and between seeds."""

import pytest
import torch
import triton
import triton.language as tl

from lformer.kernels.gpu.dropout import kept

from .cases import DEVICE

COUNT = 1 << 16
SEEDS = [0, 1, 2**31, 2**32, (5 << 32) + 7, 2**62 - 1]


@triton.jit
def mask_kernel(y_ptr, seed_ptr, dropout, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + place, kept(tl.load(seed_ptr), place, dropout))


def mask(seed: int, dropout: float) -> torch.Tensor:
    """Which of the first places are kept."""
    y = torch.empty(COUNT, device=DEVICE)
    mask_kernel[(COUNT // 4096,)](y, torch.tensor([seed], device=DEVICE), dropout, BLOCK=4096)
    assert set(y.unique().tolist()) <= {0.0, torch.tensor(1 / (1 - dropout)).item()}
    return (y != 0).double()


def correlation(a: torch.Tensor, b: torch.Tensor) -> float:
    return torch.corrcoef(torch.stack([a, b]))[0, 1].item()


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_rate_is_as_asked_everywhere(seed, dropout):
    found = mask(seed, dropout)
    deviation = (dropout * (1 - dropout)) ** 0.5
    assert abs(found.mean().item() - (1 - dropout)) < 5 * deviation / COUNT**0.5
    rows = found.view(256, 256)
    spread = deviation / 256**0.5  # of the mean of a row of independent numbers
    for axis in (0, 1):
        means = rows.mean(axis)
        assert 0.8 * spread < means.std().item() < 1.2 * spread
        assert (means - (1 - dropout)).abs().max().item() < 5.5 * spread


@pytest.mark.parametrize("step", [1, 2, 3, 4, 8, 64, 128, 192, 4096])
@pytest.mark.parametrize("seed", SEEDS)
def test_places_are_independent(seed, step):
    found = mask(seed, 0.1)
    assert abs(correlation(found[:-step], found[step:])) < 5 / COUNT**0.5


def test_seeds_are_independent():
    masks = torch.stack([mask(seed, 0.3) for seed in SEEDS])
    others = torch.corrcoef(masks) - torch.eye(len(SEEDS), device=DEVICE, dtype=masks.dtype)
    assert others.abs().max().item() < 5 / COUNT**0.5
