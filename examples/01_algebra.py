"""Compress a short video with the truncated L-SVD, and see what the choice of transform does.

The video is a camera panning slowly over a photograph that scikit-learn ships: a tensor (rows, columns, frames) whose
tubes are the history of one pixel. The L-SVD is cut to k singular tubes under three transforms; lsvd_energy lets every
slice of the transform domain choose its own rank; the baseline is the matrix SVD of the frames, one frame per column.

    python examples/01_algebra.py --out compression.png
"""

import argparse
from pathlib import Path

import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_sample_image
from torch import Tensor

from lformer import algebra as la

ROWS, COLUMNS, FRAMES, STEP = 120, 160, 32, 2  # pixels after reduction by two, frames, and pixels the camera moves
SHOWN, RANK = 16, 6  # the frame and the tubal rank of the pictures
STYLE = {"dct": ("#0072B2", "o"), "dft": ("#D55E00", "s"), "identity": ("#7F7F7F", "^")}


def panning_video() -> Tensor:
    """Frames of a window that moves to the right over china.jpg, in grey from 0 to 1."""
    photo = torch.tensor(load_sample_image("china.jpg"), dtype=torch.float64).mean(-1) / 255
    small = torch.nn.functional.avg_pool2d(photo[None], 2)[0]
    return torch.stack([small[40 : 40 + ROWS, STEP * t : STEP * t + COLUMNS] for t in range(FRAMES)], dim=-1)


def rebuild(factors: tuple[Tensor, Tensor, Tensor], transform: str) -> Tensor:
    u, s, v = factors
    return la.lproduct(la.lproduct(u, s, transform), la.ltranspose(v, transform), transform)


def error(video: Tensor, other: Tensor) -> float:
    return float(la.frobenius_norm(video - other) / la.frobenius_norm(video))


def tail(energy: Tensor) -> Tensor:
    # The relative error after keeping the first 1, 2, ... of the energies.
    return ((energy.sum() - energy.cumsum(0)).clamp_min(0) / energy.sum()).sqrt()


def energy_curve(video: Tensor, transform: str) -> tuple[list[float], list[float]]:
    """Storage and error of lsvd_energy: slice k keeps rho_k columns of U and V (S is scaled into them)."""
    storage, errors = [], []
    for fraction in (0.98, 0.99, 0.995, 0.998, 0.999, 0.9995):
        factors = la.lsvd_energy(video, fraction, transform)
        storage.append(int(la.multi_rank(factors[1], transform, rtol=1e-9).sum()) * (ROWS + COLUMNS) / video.numel())
        errors.append(error(video, rebuild(factors, transform)))
    return storage, errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("algebra-compression.png"))
    out, video, ranks = parser.parse_args().out, panning_video(), torch.arange(1, 31)
    per_rank = (ROWS + COLUMNS) / (ROWS * COLUMNS)  # k tubes: k (m + n) p numbers, of m n p
    figure = Figure(figsize=(11, 6.8), layout="constrained")
    axes = figure.subplot_mosaic([["curve"] * 4, ["original", "dct", "dft", "identity"]], height_ratios=[1.6, 1])
    curve = axes["curve"]
    axes["original"].set_title(f"original, frame {SHOWN}", fontsize=10)
    axes["original"].imshow(video[..., SHOWN], cmap="gray", vmin=0, vmax=1)
    print(f"video {tuple(video.shape)}, relative error after truncation to k singular tubes\n")
    print(f"{'k':>3} {'storage':>8}" + "".join(f"{name:>10}" for name in STYLE))
    errors = {}
    for name, (color, marker) in STYLE.items():
        # Eckart-Young: the squared error is the energy of the tubes left out, so one decomposition gives the curve.
        errors[name] = tail(la.singular_tubes(video, name).square().sum(-1))[:30]
        curve.plot(ranks * per_rank, errors[name], color=color, marker=marker, ms=4, label=f"L-SVD, {name}")
        cut = rebuild(la.lsvd_truncated(video, RANK, name), name)
        assert abs(error(video, cut) - float(errors[name][RANK - 1])) < 1e-9
        axes[name].set_title(f"{name}, k = {RANK}: error {error(video, cut):.1%}", fontsize=10, color=color)
        axes[name].imshow(cut[..., SHOWN], cmap="gray", vmin=0, vmax=1)
    for k in (1, 2, 4, 6, 10, 20, 30):
        print(f"{k:>3} {k * per_rank:>8.1%}" + "".join(f"{float(errors[name][k - 1]):>10.2%}" for name in STYLE))
    for name in ("dct", "dft"):
        curve.plot(*energy_curve(video, name), color=STYLE[name][0], ls="--", label=f"lsvd_energy, {name}")
    flat = tail(torch.linalg.svdvals(video.flatten(0, 1)).square())[:12]
    stored = ranks[:12] * (ROWS * COLUMNS + FRAMES) / video.numel()
    curve.plot(stored, flat, color="#009E73", marker="D", ms=4, ls=":", label="matrix SVD, frames as columns")
    curve.set(xlabel="numbers stored, as a share of the video", ylabel="relative error", yscale="log")
    curve.minorticks_off()
    curve.set(xlim=(0, 0.4), ylim=(0.018, 0.4), title=f"A panning camera, {ROWS} x {COLUMNS} x {FRAMES}, compressed")
    curve.set_xticks(steps := [0, 0.1, 0.2, 0.3, 0.4], [f"{x:.0%}" for x in steps])
    curve.set_yticks(steps := [0.02, 0.05, 0.1, 0.2, 0.4], [f"{x:.0%}" for x in steps])
    curve.axvline(RANK * per_rank, color="black", lw=0.8, alpha=0.5)
    curve.text(RANK * per_rank + 0.002, 0.02, f"k = {RANK}: the pictures below", fontsize=9)
    curve.grid(alpha=0.3)
    curve.legend(frameon=False, ncols=2)
    for name in ("original", *STYLE):
        axes[name].axis("off")
    figure.savefig(out, dpi=100)


if __name__ == "__main__":
    main()
