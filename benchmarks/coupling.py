"""How strongly the slices of freshly initialised models are coupled, by variant: the table of docs/architecture.md.

python benchmarks/coupling.py
"""

import statistics
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from lformer import LFormerConfig, LFormerModel
from lformer.nn import coupling

L_PRODUCTS = {"attention_domain": "original", "activation_domain": "original"}
VARIANTS: dict[str, dict[str, Any]] = {
    "sublayer scope (default)": {},
    "block scope": {"transform_scope": "block"},
    "identity instead of the DCT": {"transform": "identity"},
    "DFT": {"transform": "dft"},
    "sigma in the original domain": {"activation_domain": "original"},
    "pre-norm": {"norm_placement": "pre"},
    "pre-norm, interleave": {"norm_placement": "pre", "interleave": True},
    "pre-norm, interleave, L-products": {"norm_placement": "pre", "interleave": True, **L_PRODUCTS},
    "L-products": L_PRODUCTS,
    "interleave": {"interleave": True},
    "interleave, block scope": {"interleave": True, "transform_scope": "block"},
    "interleave, identity": {"interleave": True, "transform": "identity"},
    "shuffled fold of the feed-forward": {"feed_forward_fold": "shuffled"},
    "learned transforms (at the start)": {"transform": "learned"},
}
SEEDS = (0, 1, 2)


def measure(options: dict[str, Any], seed: int) -> list[float]:
    torch.manual_seed(seed)
    config = LFormerConfig(vocab_size=1000, hidden_size=128, num_attention_heads=4, tube_length=4, **options)
    batch = {"input_ids": torch.randint(1, 1000, (4, 64))}
    return coupling(LFormerModel(config), batch, seed=seed)


def main() -> None:
    table = Table(title="off-diagonal share of the slice Jacobian, d=128, p=4, mean of 3 seeds")
    table.add_column("variant")
    for layer in range(1, 5):
        table.add_column(f"layer {layer}", justify="right")
    for name, options in VARIANTS.items():
        by_layer = zip(*(measure(options, seed) for seed in SEEDS), strict=True)
        table.add_row(name, *(f"{statistics.mean(values):.3f}" for values in by_layer))
    Console().print(table)


if __name__ == "__main__":
    main()
