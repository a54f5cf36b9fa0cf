"""What the benchmarks share: interleaved timing, the facts of the machine, and where results go."""

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"
SETTLE = 0.1  # seconds: idle threads of OpenBLAS and OpenMP spin on for a while, and would slow the next candidate
BLOCK = 0.05  # seconds: calls shorter than this are repeated inside one sample
SLOW = 1.0  # seconds: a call longer than this gets no warm-up in each round, and at most three rounds


def interleave(
    candidates: Mapping[str, Callable[[], object]], repeats: int, settle: float = SETTLE
) -> dict[str, list[float]]:
    """Seconds per call of every candidate, one sample a round; all candidates take turns in every round.

    A slow disturbance of the machine then hits all of them alike, and ratios of medians stay fair.
    """
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    first = {name: _time(call, 1) for name, call in candidates.items()}  # also loads and caches whatever is lazy
    for index in range(repeats):
        for name, call in candidates.items():
            if first[name] > SLOW and index >= 3:
                continue
            time.sleep(settle)
            if first[name] > SLOW:
                samples[name].append(_time(call, 1))
                continue
            calls = max(1, round(BLOCK / max(_time(call, 1), 1e-7)))
            samples[name].append(_time(call, calls))
    return samples


def median_ratio(samples: Mapping[str, list[float]], above: str, below: str) -> float:
    """How many times longer `above` took than `below`: the ratio of their medians."""
    return statistics.median(samples[above]) / statistics.median(samples[below])


def facts(packages: tuple[str, ...]) -> dict[str, Any]:
    """What a reader needs to judge the figures and to make them again."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "commit": _commit(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
    }


def write(path: Path, result: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")


def milliseconds(samples: list[float]) -> str:
    return f"{1e3 * statistics.median(samples):.3g}"


def _time(call: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def _commit() -> str:
    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
        )
        return done.stdout.strip() if done.returncode == 0 else ""

    commit = git("rev-parse", "--short", "HEAD")
    return (commit or "none") + ("+changes" if git("status", "--porcelain") else "")


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
