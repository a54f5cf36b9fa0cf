"""Checkpoints: everything that a run needs to go on as if it had never stopped. Arrays and JSON, nothing pickled.

A checkpoint is a folder `step-00000120` with the weights, the optimizer's moments and torch's random states as
safetensors, and `state.json`, which is written last and holds the hashes of the others. A folder appears only when it
is complete. Batches and masks are drawn from the seed, the epoch and the step, and the learning rate follows from the
step, so neither has a state to keep.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from lformer.train.files import new_folder, sha256, write_json

FORMAT = 1
WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)  # one file, however many processes share the model


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the message says why."""


class Checkpoints:
    """The checkpoints of one run, the newest `keep` of them."""

    def __init__(self, folder: Path, accelerator: Accelerator, keep: int = 2) -> None:
        self.folder = folder
        self.accelerator = accelerator
        self.keep = keep

    def save(
        self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, progress: dict[str, Any], ema: Any = None
    ) -> Path:
        """Write a checkpoint, then delete the oldest; `progress` is what the loop itself has to remember."""
        # All processes take part in gathering; the first alone receives, the others get nothing.
        weights = get_model_state_dict(model, options=WHOLE)
        gathered: Any = get_optimizer_state_dict(model, optimizer, options=WHOLE)
        moments = _flat(gathered.get("state", {}))
        path = self.folder / f"step-{step:08d}"
        # The random state differs between processes: each writes its own, the first one the rest.
        states = self._gathered_random_states()
        if self.accelerator.is_main_process:
            self.folder.mkdir(parents=True, exist_ok=True)
            with new_folder(path) as draft:
                save_file(_owned(weights), draft / "model.safetensors")
                save_file(_owned(moments), draft / "optimizer.safetensors")
                save_file(_owned(states), draft / "random.safetensors")
                if ema is not None:
                    save_file(_owned(ema.state_dict()), draft / "ema.safetensors")
                hashes = {file.name: sha256(file) for file in sorted(draft.glob("*.safetensors"))}
                write_json(
                    draft / "state.json",
                    {
                        "format": FORMAT,
                        "step": step,
                        "progress": progress,
                        "hashes": hashes,
                    },
                )
            for old in self.found()[: -self.keep]:
                shutil.rmtree(old)
        self.accelerator.wait_for_everyone()
        return path

    def found(self) -> list[Path]:
        """The complete checkpoints, oldest first."""
        return sorted(path for path in self.folder.glob("step-*") if path.is_dir())

    def newest(self) -> tuple[Path | None, list[str]]:
        """The newest checkpoint that is sound, and what is wrong with any newer one."""
        problems = []
        for path in reversed(self.found()):
            try:
                check(path)
            except CheckpointError as error:
                problems.append(str(error))
            else:
                return path, problems
        return None, problems

    def load(self, path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, ema: Any = None) -> dict[str, Any]:
        """Put a run back to where the checkpoint was written; returns the loop's progress."""
        state: dict[str, Any] = json.loads((path / "state.json").read_text())
        weights: dict[str, Any] = dict(load_file(path / "model.safetensors"))
        set_model_state_dict(model, weights, options=WHOLE)
        groups = get_optimizer_state_dict(model, optimizer)["param_groups"]
        moments: dict[str, Any] = {"state": _nested(load_file(path / "optimizer.safetensors")), "param_groups": groups}
        set_optimizer_state_dict(model, optimizer, moments, options=WHOLE)
        if ema is not None:
            ema.load_state_dict(load_file(path / "ema.safetensors"))
        self._restore_random_states(load_file(path / "random.safetensors"))
        progress: dict[str, Any] = state["progress"]
        return progress

    def _gathered_random_states(self) -> dict[str, Tensor]:
        own = torch.get_rng_state().to(self.accelerator.device)
        states = self.accelerator.gather(own[None]).cpu()
        found = {f"cpu.{process}": state for process, state in enumerate(states)}
        if torch.cuda.is_available():
            cuda = self.accelerator.gather(torch.cuda.get_rng_state().to(self.accelerator.device)[None]).cpu()
            found |= {f"cuda.{process}": state for process, state in enumerate(cuda)}
        return found

    def _restore_random_states(self, states: dict[str, Tensor]) -> None:
        process = self.accelerator.process_index
        if f"cpu.{process}" in states:
            torch.set_rng_state(states[f"cpu.{process}"])
        if torch.cuda.is_available() and f"cuda.{process}" in states:
            torch.cuda.set_rng_state(states[f"cuda.{process}"])


def check(path: Path) -> None:
    """Refuse a checkpoint whose files are not those that were written."""
    try:
        state = json.loads((path / "state.json").read_text())
        hashes = state["hashes"]
        known = state["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"checkpoint {path} is damaged: state.json cannot be read ({error})") from None
    if known != FORMAT:
        raise CheckpointError(f"checkpoint {path} has format {known}; this version reads format {FORMAT}")
    for name, expected in hashes.items():
        if not (path / name).is_file() or sha256(path / name) != expected:
            raise CheckpointError(f"checkpoint {path} is damaged: {name} is not what was written")


def _owned(tensors: dict[str, Any]) -> dict[str, Tensor]:
    """Tensors that share no memory (a tied head and its embedding do), as safetensors wants them."""
    return {name: torch.as_tensor(value).detach().cpu().clone().contiguous() for name, value in tensors.items()}


def _flat(state: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {f"{parameter}|{name}": value for parameter, values in state.items() for name, value in values.items()}


def _nested(flat: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    state: dict[str, dict[str, Tensor]] = {}
    for key, value in flat.items():
        parameter, name = key.rsplit("|", 1)
        state.setdefault(parameter, {})[name] = value
    return state
