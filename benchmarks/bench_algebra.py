"""`lproduct` and `lsvd` against mprod-package, a Python loop over slices, and the bare torch calls they rest on.

    python benchmarks/bench_algebra.py            # about six minutes; the table comes last
    python benchmarks/bench_algebra.py --quick    # small sizes only

"Bare" is what one would write by hand for this one case: a plain product with Z for every tensor that goes in or comes
out, and `torch.matmul` or `torch.linalg.svd` on the contiguous slices between them; no checks, no choice of transform.
All candidates of a row run in turn in one process, in float64 (mprod's dtype); the float32 column is ours alone.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import RESULTS, facts, interleave, median_ratio, milliseconds, write
from mprod import generate_dct, m_prod
from mprod.decompositions import svdm
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor

from lformer.algebra import get_transform, lproduct, lsvd, ltranspose

CASES = [((64, 64, 8), None), ((64, 64, 8), 8), ((256, 256, 16), None), ((256, 256, 16), 4)]
LARGE = [((512, 512, 64), None), ((512, 512, 64), 2)]
MPROD_GOAL, BARE_GOAL = 3.0, 1.1

Candidates = dict[str, Callable[[], object]]


def product_candidates(a: Tensor, b: Tensor) -> Candidates:
    """Every way to compute the L-product of a and b, after a check that they agree."""
    p = a.shape[-1]
    z = get_transform("dct", p).matrix
    fun, inv = generate_dct(p)
    a32, b32 = a.float(), b.float()
    arrays = [(x.numpy(), y.numpy()) for x, y in zip(_matrices(a), _matrices(b), strict=True)]

    def mprod() -> list[np.ndarray]:
        return [m_prod(x, y, fun, inv) for x, y in arrays]

    def loop() -> Tensor:
        results = []
        for x, y in zip(_matrices(a), _matrices(b), strict=True):
            xh, yh = x @ z.T, y @ z.T
            results.append(torch.stack([xh[..., k] @ yh[..., k] for k in range(p)], dim=-1) @ z)
        return torch.stack(results)

    def bare() -> Tensor:
        ah, bh = z @ a.reshape(-1, p).T, z @ b.reshape(-1, p).T
        ch = torch.matmul(ah.view(p, *a.shape[:-1]), bh.view(p, *b.shape[:-1]))
        return (ch.view(p, -1).T @ z).view(a.shape)

    ours = _matrices(lproduct(a, b))
    _agree(ours, torch.from_numpy(np.stack(mprod())), 1e-10, "lproduct")
    _agree(ours, loop(), 1e-10, "lproduct")
    _agree(ours, _matrices(bare()), 1e-10, "lproduct")
    _agree(ours, _matrices(lproduct(a32, b32)).double(), 1e-4, "lproduct in float32")
    return {
        "ours": partial(lproduct, a, b),
        "bare": bare,
        "loop": loop,
        "mprod": mprod,
        "float32": partial(lproduct, a32, b32),
    }


def svd_candidates(a: Tensor) -> Candidates:
    """Every way to compute the reduced L-SVD of a, after a check of its factors and singular tubes."""
    p = a.shape[-1]
    z = get_transform("dct", p).matrix
    fun, inv = generate_dct(p)
    a32 = a.float()
    arrays = [x.numpy() for x in _matrices(a)]

    def mprod() -> list[tuple[np.ndarray, ...]]:
        return [svdm(x, fun, inv) for x in arrays]

    def loop() -> list[Tensor]:
        results = []
        for x in _matrices(a):
            xh = x @ z.T
            parts = [torch.linalg.svd(xh[..., k], full_matrices=False) for k in range(p)]
            u, s, vh = (torch.stack(part, dim=-1) @ z for part in zip(*parts, strict=True))
            results.append((u, s, vh.transpose(-3, -2)))
        return [torch.stack(part) for part in zip(*results, strict=True)]

    def bare() -> tuple[Tensor, ...]:
        ah = (z @ a.reshape(-1, p).T).view(p, *a.shape[:-1])
        u, s, vh = torch.linalg.svd(ah, full_matrices=False)
        return tuple((x.reshape(p, -1).T @ z).view(*x.shape[1:], p) for x in (u, s, vh.mT))

    u, s, v = lsvd(a)
    _agree(lproduct(lproduct(u, s), ltranspose(v)), a, 1e-10, "lsvd")
    tubes = _matrices(s).diagonal(dim1=1, dim2=2).mT
    _agree(tubes, torch.from_numpy(np.stack([found[1] for found in mprod()])), 1e-10, "lsvd")
    _agree(tubes, loop()[1], 1e-10, "lsvd")
    return {"ours": partial(lsvd, a), "bare": bare, "loop": loop, "mprod": mprod, "float32": partial(lsvd, a32)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="leave out (512, 512, 64), three rounds")
    parser.add_argument("--out", type=Path, default=RESULTS / "algebra-cpu.json")
    parser.add_argument("--repeats", type=int, default=None, help="rounds per row (default 9, with --quick 3)")
    arguments = parser.parse_args()
    repeats = arguments.repeats or (3 if arguments.quick else 9)
    cases = CASES if arguments.quick else CASES + LARGE
    machine = facts(("torch", "numpy", "scipy", "mprod-package"))
    torch.manual_seed(0)

    rows: list[dict[str, Any]] = []
    with Progress() as progress:
        task = progress.add_task("timing", total=2 * len(cases))
        for operation in ("lproduct", "lsvd"):
            for shape, batch in cases:
                full = shape if batch is None else (batch, *shape)
                a, b = torch.randn(2, *full, dtype=torch.float64)
                candidates = product_candidates(a, b) if operation == "lproduct" else svd_candidates(a)
                samples = interleave(candidates, repeats)
                rows.append(
                    {
                        "operation": operation,
                        "shape": shape,
                        "batch": batch,
                        "mprod_over_ours": median_ratio(samples, "mprod", "ours"),
                        "loop_over_ours": median_ratio(samples, "loop", "ours"),
                        "ours_over_bare": median_ratio(samples, "ours", "bare"),
                        "seconds": {name: [float(f"{x:.4g}") for x in found] for name, found in samples.items()},
                    }
                )
                progress.advance(task)
    write(arguments.out, {"machine": machine, "goals": {"mprod": MPROD_GOAL, "bare": BARE_GOAL}, "rows": rows})
    report(rows, machine)


def report(rows: list[dict[str, Any]], machine: dict[str, Any]) -> None:
    table = Table(title=f"milliseconds, medians; {machine['cpu']}, {machine['torch_threads']} threads, float64")
    for column in ("", "shape", "batch", "ours", "mprod", "loop", "bare", "float32"):
        table.add_column(column, justify="left" if column in ("", "shape") else "right")
    for column in ("mprod / ours", "loop / ours", "ours / bare"):
        table.add_column(column, justify="right", style="bold")
    for row in rows:
        seconds = row["seconds"]
        times = (milliseconds(seconds[name]) for name in ("ours", "mprod", "loop", "bare", "float32"))
        faster = _judged(row["mprod_over_ours"], row["mprod_over_ours"] >= MPROD_GOAL)
        bound = _judged(row["ours_over_bare"], row["ours_over_bare"] <= BARE_GOAL)
        shape = "x".join(map(str, row["shape"]))
        table.add_row(
            row["operation"], shape, str(row["batch"] or "-"), *times, faster, f"{row['loop_over_ours']:.2f}", bound
        )
    table.caption = f"goals: mprod / ours >= {MPROD_GOAL}, ours / bare <= {BARE_GOAL}; candidates interleaved"
    Console(width=132).print(table)


def _judged(value: float, good: bool) -> str:
    return f"[{'green' if good else 'red'}]{value:.2f}[/]"


def _matrices(a: Tensor) -> Tensor:
    """(m, n, p) or (batch, m, n, p) -> (batch, m, n, p)."""
    return a.reshape(-1, *a.shape[-3:])


def _agree(ours: Tensor, other: Tensor, tolerance: float, operation: str) -> None:
    error = float((ours - other).norm() / ours.norm())
    if not error <= tolerance:
        raise SystemExit(f"{operation}: the candidates disagree, relative error {error:.1e}")


if __name__ == "__main__":
    main()
