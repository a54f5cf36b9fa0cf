"""The machine that is measured: device, number format, names and versions, and what it can do at most."""

import os
import platform
import shutil
import time
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from lformer.kernels.backend import allows_tf32
from lformer.settings import UserError
from lformer.train.run_folder import environment

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
RATES = ("flops_per_second", "bytes_per_second")
REPEATS = 10
CALLS = 4  # in a sample of a ceiling: the launch of one call hides behind the one before


@dataclass(frozen=True)
class Machine:
    """Where, and in which number format, candidates run."""

    device: torch.device
    dtype: torch.dtype

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    @property
    def item_size(self) -> int:
        return self.dtype.itemsize

    @property
    def product_dtype(self) -> torch.dtype:
        """How exact products are: TensorFloat-32 has the digits of float16."""
        rounds = self.is_cuda and self.dtype == torch.float32 and allows_tf32()
        return torch.float16 if rounds else self.dtype

    def synchronize(self) -> None:
        if self.is_cuda:
            torch.cuda.synchronize()

    def require_compiler(self) -> None:
        """torch.compile writes C++ for a CPU. Refused here, where the reason is short."""
        names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++", "cl"]
        if not self.is_cuda and not any(map(shutil.which, names)):
            raise ValueError(f"torch.compile needs a C++ compiler on a CPU, and there is none ({', '.join(names)})")


def make_machine(device: str | None, dtype: str | None) -> Machine:
    """By default the GPU in bfloat16 if there is one, else the CPU in float32."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device not in ("cuda", "cpu"):
        raise UserError(f"--device {device}: there are 'cuda' and 'cpu'")
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch finds no CUDA device here")
    if dtype is None:
        dtype = "bf16" if device == "cuda" else "fp32"
    if dtype not in DTYPES:
        raise UserError(f"--dtype {dtype}: there are {', '.join(DTYPES)}")
    if device == "cpu" and dtype == "fp16":
        raise UserError("--dtype fp16 is for GPUs; on a CPU take fp32 or bf16")
    return Machine(torch.device(device), DTYPES[dtype])


def facts(machine: Machine) -> dict[str, Any]:
    """What a reader needs to judge the figures and to make them again."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        **environment(),
        "device": torch.cuda.get_device_name() if machine.is_cuda else _cpu_name(),
        "cpu": _cpu_name(),
        "tf32": machine.is_cuda and machine.dtype == torch.float32 and allows_tf32(),
        "load_before": round(os.getloadavg()[0], 2),
    }


@dataclass(frozen=True)
class Ceilings:
    """The two rates that bound every candidate, measured here and now."""

    flops_per_second: float
    """Of one large square matrix product in the number format of the run."""
    bytes_per_second: float
    """Of a large copy, reads and writes counted both."""
    matmul_size: int
    copy_bytes: int

    def best(self, other: "Ceilings | None") -> "Ceilings":
        """The higher one of each."""
        if other is None:
            return self
        rates = {name: max(getattr(self, name), getattr(other, name)) for name in RATES}
        return replace(self, **rates)

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def measure_ceilings(machine: Machine, *, quick: bool = False) -> Ceilings:
    """A product of 8192^3 and a copy of 2 GiB on a GPU, 2048^3 and 256 MiB on a CPU; the best of ten samples each.

    The best and not the median: a ceiling that a neighbour's load lowered would flatter every candidate.
    """
    size, count = (8192, 2 << 30) if machine.is_cuda else (2048, 256 << 20)
    if quick:
        size, count = size // 8, count // 16
    left, right = (torch.randn(size, size, device=machine.device, dtype=machine.dtype) for _ in range(2))
    product = torch.empty_like(left)
    matmul = _best(machine, lambda: torch.mm(left, right, out=product))
    source = torch.zeros(count, dtype=torch.uint8, device=machine.device)
    target = torch.ones_like(source)
    copy = _best(machine, lambda: target.copy_(source))
    return Ceilings(2 * size**3 / matmul, 2 * count / copy, size, count)


def _best(machine: Machine, call: Any) -> float:
    """Seconds per call in the fastest sample."""
    times = []
    for _ in range(REPEATS):
        machine.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS if machine.is_cuda else 1):
            call()
        machine.synchronize()
        times.append((time.perf_counter() - start) / (CALLS if machine.is_cuda else 1))
    return min(times)


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
