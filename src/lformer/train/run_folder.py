"""The folder of a run: what was asked for, on what it ran, what was measured, what came out.

run.json          the resolved request: task, model, recipe, data with its hash
environment.json  versions, commit, device
metrics.jsonl     one line for every measurement
result.json       the final scores; its presence says that the run is finished
model/            the trained model and its tokenizer, for from_pretrained
predictions/      what the model said about every example of a split, in the split's order
checkpoints/      to resume from
data/             the token cache, where the run prepared its own
"""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState

from lformer.settings import UserError
from lformer.train.files import write_json, write_text

PACKAGES = ("lformer", "torch", "transformers", "tokenizers", "safetensors", "accelerate", "numpy", "triton")


class RunFolder:
    """Reads and writes the files of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        return self.path / "model"

    @property
    def is_started(self) -> bool:
        return (self.path / "run.json").is_file()

    @property
    def is_finished(self) -> bool:
        return (self.path / "result.json").is_file()

    def require_new(self) -> None:
        """Refuse a folder that holds anything but the token cache that was prepared for this run."""
        if not self.path.exists():
            return
        if not self.path.is_dir() or any(item.name != "data" for item in self.path.iterdir()):
            hint = "go on with --resume, or choose another --out" if self.is_started else "choose another --out"
            raise UserError(f"{self.path} exists and is not empty; {hint}")

    def start(self, request: dict[str, Any]) -> None:
        """Claim the folder for a new run."""
        self.require_new()
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(self.path / "environment.json", environment())
        write_json(self.path / "run.json", request)

    def request(self) -> dict[str, Any]:
        """What the run was asked for."""
        if not self.is_started:
            raise UserError(f"{self.path} is not the folder of a run: it has no run.json")
        try:
            found: dict[str, Any] = json.loads((self.path / "run.json").read_text())
        except ValueError as error:
            raise UserError(f"{self.path / 'run.json'} is damaged: {error}") from None
        return found

    def environment(self) -> dict[str, Any]:
        """On what the run was started."""
        path = self.path / "environment.json"
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be read: {error}") from None
        return found

    def log(self, **measurement: Any) -> None:
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(measurement) + "\n")

    def metrics(self) -> Iterator[dict[str, Any]]:
        """The measurements; a last line that a kill cut short is left out."""
        path = self.path / "metrics.jsonl"
        if not path.is_file():
            return
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                return

    def keep_metrics(self, count: int) -> None:
        """Keep the first `count` measurements; the others are of steps that will be taken again."""
        kept = [json.dumps(line) + "\n" for line in list(self.metrics())[:count]]
        write_text(self.path / "metrics.jsonl", "".join(kept))

    def finish(self, result: dict[str, Any]) -> None:
        write_json(self.path / "result.json", result)

    def result(self) -> dict[str, Any]:
        if not self.is_finished:
            raise UserError(
                f"the run {self.path} is not finished; go on with: lformer train --resume --out {self.path}"
            )
        found: dict[str, Any] = json.loads((self.path / "result.json").read_text())
        return found


def environment() -> dict[str, Any]:
    """Versions, commit and device: what a figure depends on beside the request."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    return {
        "command": " ".join([_program(), *sys.argv[1:]]),
        "commit": _commit(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "device": device,
        "processes": PartialState().num_processes,
        "distributed": PartialState().distributed_type.value,
        "cuda": torch.version.cuda,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "platform": platform.platform(),
    }


def _program() -> str:
    name = Path(sys.argv[0]).name
    return "lformer" if name == "cli.py" else name  # python -m lformer.cli


def _commit() -> str | None:
    """The commit of the source tree that this code runs from, if it is one; "+changes" where files differ from it."""
    commit = _git("rev-parse", "HEAD")
    return commit and commit + ("+changes" if _git("status", "--porcelain", "--untracked-files=no") else "")


def _git(*arguments: str) -> str | None:
    here = Path(__file__).parent
    try:
        run = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return run.stdout.strip() or None if run.returncode == 0 else None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
