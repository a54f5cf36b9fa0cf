"""Make every GPU figure of docs/speed.md again, in one go: on an H200 within ten minutes.

python benchmarks/gpu_figures.py                      # the JSON goes to benchmarks/results, named after the GPU
python benchmarks/gpu_figures.py --only layer,model   # some of it; --list names the parts
python benchmarks/gpu_figures.py --dry-run            # tiny shapes on the CPU into a folder that is thrown away

The parts run one after the other, the most important first, each in a process of its own; one that would run past the
end is stopped, keeps the shapes that it has finished, and is named at the end with those that had no time at all. The
kernels are checked first, by `python -m pytest -m gpu tests/kernels`, which is not part of the ten minutes.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from harness import RESULTS, facts, write

from lformer.studies.bench.loop import bench_loop

SHORT = "128x128x128,128x128x256,64x128x768"
ALL = f"{SHORT},64x512x768,32x512x2048"
TINY = {SHORT: "1x8x64,1x8x128", ALL: "1x8x64,1x16x64"}
LEAST = 20  # seconds that must be left for a part to start
TF32 = {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}
OURS = "--no-peers --backends auto --no-compile --dense-modes default --side-by-side"


@dataclass(frozen=True)
class Part:
    """A benchmark with a file of its own."""

    name: str
    bench: str = ""
    """What follows `lformer bench`; empty for what this file measures itself."""
    shapes: str = ""
    seconds: int = 60
    """About what it takes, from the times that earlier runs noted."""
    environment: dict[str, str] = field(default_factory=dict)

    def file(self, gpu: str) -> str:
        first, _, rest = self.name.partition("-")
        return "-".join(filter(None, (first, gpu, rest))) + (".txt" if self.name == "profile" else ".json")

    def command(self, out: Path, dry_run: bool) -> list[str]:
        if not self.bench:
            return [sys.executable, __file__, "--measure", self.name, "--out", str(out)]
        words = [sys.executable, "-m", "lformer.cli", "bench", *self.bench.split(), "--out", str(out)]
        if not dry_run:
            return [*words, *(["--shapes", self.shapes] if self.shapes else [])]
        words = ["bf16" if word == "fp16" else word.replace("default", "eager") for word in words]  # as a CPU can
        tiny = TINY.get(self.shapes, "1x8x64")
        return [*words, "--shapes", tiny, "--device", "cpu", "--quick", "--no-compile", "--rounds", "1"]


PARTS = [
    Part("layer", "layer --p 4 --backends auto,torch --rounds 12 --side-by-side", ALL, 110),
    Part("model", f"model --p 4 {OURS} --rounds 8", SHORT, 40),
    Part("loop", seconds=35),
    Part("widths", f"layer --sweep d {OURS} --rounds 6", seconds=75),
    Part("tubes", f"layer --sweep p {OURS} --rounds 6", seconds=70),
    Part("profile", seconds=40),
    Part("layer-fp16", f"layer --p 4 {OURS} --dtype fp16 --rounds 6", SHORT, 45),
    Part("layer-tf32", f"layer --p 4 {OURS} --dtype fp32 --rounds 6", SHORT, 50, TF32),
    Part("layer-fp32", f"layer --p 4 {OURS} --dtype fp32 --rounds 6", SHORT, 60),
]


def loop(out: Path) -> None:
    """The training loop, ordinary and captured."""
    on_gpu = torch.cuda.is_available()
    sizes = {"hidden_size": 256, "batch_size": 128, "steps": 32} if on_gpu else {"hidden_size": 16, "batch_size": 4}
    rows = [bench_loop(**sizes, captured=captured) for captured in ((False, True) if on_gpu else (False,))]
    device = torch.cuda.get_device_name() if on_gpu else "cpu"
    write(out, {"facts": {**facts(("torch",)), "device": device}, "rows": rows})


def profile(out: Path) -> None:
    """The kernels of a training step, by time."""
    if not torch.cuda.is_available():
        out.write_text("profile_layer.py needs a GPU\n")
        return
    shapes = ["64x128x768", "64x512x768", "32x512x2048"]
    script = Path(__file__).with_name("profile_layer.py")
    done = subprocess.run([sys.executable, str(script), *shapes], capture_output=True, text=True, check=True)
    out.write_text(
        f"# python benchmarks/profile_layer.py {' '.join(shapes)}\n# {facts(('torch', 'triton'))}\n{done.stdout}"
    )


MEASURE: dict[str, Callable[[Path], None]] = {"loop": loop, "profile": profile}


def run(parts: list[Part], folder: Path, gpu: str, budget: float, dry_run: bool) -> list[str]:
    """What came of every part, a line each."""
    end = time.monotonic() + budget
    lines = []
    for part in parts:
        started = time.monotonic()
        if end - started < LEAST:
            lines.append(f"{part.name}: NO TIME LEFT, about {part.seconds} s")
            continue
        out = folder / part.file(gpu)
        print(f"--- {part.name}, about {part.seconds} s on an H200, to {out}", flush=True)
        try:
            command = part.command(out, dry_run)
            done = subprocess.run(command, env={**os.environ, **part.environment}, timeout=end - started, check=False)
            outcome = "done" if done.returncode == 0 else f"FAILED with exit code {done.returncode}"
        except subprocess.TimeoutExpired:
            outcome = "STOPPED, has the shapes that were finished" if out.exists() else "STOPPED, has nothing"
        lines.append(f"{part.name}: {outcome}, {time.monotonic() - started:.0f} s")
    return lines


def name_of_gpu() -> str:
    """The model alone, "h200" of "NVIDIA H200"."""
    if not torch.cuda.is_available():
        return "cpu"
    found = re.search(r"[A-Z]+\d+", torch.cuda.get_device_name())
    return found.group().lower() if found else "gpu"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--seconds", type=float, default=570)
    parser.add_argument("--only", default=",".join(part.name for part in PARTS))
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--measure", choices=MEASURE, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        MEASURE[arguments.measure](arguments.out)
        return
    parts = [part for part in PARTS if part.name in arguments.only.split(",")]
    if arguments.list:
        print("\n".join(f"{part.name}: about {part.seconds} s" for part in PARTS))
        return
    if not (torch.cuda.is_available() or arguments.dry_run):
        raise SystemExit("there is no CUDA device; --dry-run tries the commands on the CPU")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) if arguments.dry_run else arguments.out
        lines = run(parts, out, name_of_gpu(), arguments.seconds, arguments.dry_run)
    print("\n".join(lines))
    if not all(": done, " in line for line in lines):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
