"""Where the fast algorithm of a transform overtakes the p x p product: forward and inverse along the last dimension.

    python benchmarks/bench_transforms.py         # about three minutes; the table comes last

Every row transforms the same number of entries, so that only p changes. The crossover is the smallest power of two
from which on the fast algorithm wins at every larger p; `fast.FAST_FROM` holds it.
"""

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from harness import RESULTS, facts, interleave, write
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor

from lformer.algebra import fast, get_transform

SIZES = [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096]
NAMES = ["dct", "dst", "hartley", "hadamard", "dft", "dft, real input"]


def pairs(name: str, x: Tensor) -> dict[str, Callable[[], object]]:
    """There and back, by the matrix and by the fast algorithm."""
    z = get_transform(name.split(",")[0], x.shape[-1])
    if name == "dft, real input":  # what the slice-wise operations use: half of the spectrum, in real arithmetic
        forward = z.cast("half_forward", x.dtype, x.device)
        inverse = z.cast("half_inverse", x.dtype, x.device)
        half = partial(_half_spectrum_fast, size=x.shape[-1])
        return {"matrix": lambda: (x @ forward.T) @ inverse.T, "fast": partial(half, x)}
    if z.is_complex:
        x = torch.complex(x, x.flip(0))
    there, back = z.cast("forward", x.dtype, x.device), z.cast("inverse", x.dtype, x.device)
    fast_there, fast_back = fast.ALGORITHMS[name]
    return {"matrix": lambda: (x @ there.T) @ back.T, "fast": lambda: fast_back(fast_there(x))}


def crossover(ratios: dict[int, float]) -> int | None:
    """The smallest p from which on the fast algorithm never loses."""
    found = None
    for p in sorted(ratios, reverse=True):
        if ratios[p] < 1:
            break
        found = p
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer entries, three rounds")
    parser.add_argument("--out", type=Path, default=RESULTS / "transforms-cpu.json")
    parser.add_argument("--repeats", type=int, default=None, help="rounds per row (default 7, with --quick 3)")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    arguments = parser.parse_args()
    repeats = arguments.repeats or (3 if arguments.quick else 7)
    entries = 2**18 if arguments.quick else 2**20
    machine = facts(("torch",))
    torch.manual_seed(0)

    rows: list[dict[str, Any]] = []
    with Progress() as progress:
        task = progress.add_task("timing", total=len(NAMES) * len(SIZES))
        for name in NAMES:
            for p in SIZES:
                x = torch.randn(entries // p, p, dtype=getattr(torch, arguments.dtype))
                samples = interleave(pairs(name, x), repeats, settle=0.01)
                medians = {key: statistics.median(found) for key, found in samples.items()}
                rows.append({"transform": name, "p": p, "ratio": medians["matrix"] / medians["fast"], **medians})
                progress.advance(task)
    crossovers = {n: crossover({r["p"]: r["ratio"] for r in rows if r["transform"] == n}) for n in NAMES}
    result = {"machine": machine, "dtype": arguments.dtype, "entries": entries, "crossovers": crossovers, "rows": rows}
    write(arguments.out, result)

    title = f"time of the p x p product / time of the fast algorithm; {entries} entries, {arguments.dtype}"
    table = Table(
        title=title, caption=f"{machine['cpu']}, {machine['torch_threads']} threads; above 1 the fast one wins"
    )
    table.add_column("p", justify="right")
    for name in NAMES:
        table.add_column(name, justify="right")
    for p in SIZES:
        table.add_row(str(p), *(f"{row['ratio']:.2f}" for row in rows if row["p"] == p))
    table.add_section()
    table.add_row("crossover", *(str(crossovers[name]) for name in NAMES), style="bold")
    table.add_row("FAST_FROM", *(str(fast.FAST_FROM[name.split(",")[0]]) for name in NAMES))
    Console(width=110).print(table)


def _half_spectrum_fast(x: Tensor, size: int) -> Tensor:
    return torch.fft.irfft(torch.fft.rfft(x, norm="ortho"), n=size, norm="ortho")


if __name__ == "__main__":
    main()
