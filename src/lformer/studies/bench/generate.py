"""`lformer bench generate`: tokens per second of a causal language model, tensor against dense of equal width.

What is timed is `model.generate`, as a user calls it: the prompt at once, then one token after another from the cache,
greedily. The entrants take turns in every round, so that a disturbance of the machine hits all alike. Beside it stands
the decoding step alone, without what transformers does around it.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich import box
from rich.table import Table
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, StaticCache

from lformer.models import LFormerConfig, LFormerForCausalLM
from lformer.settings import UserError
from lformer.studies.bench.machine import Machine, facts, make_machine
from lformer.studies.bench.progress import BenchProgress
from lformer.studies.bench.table import console
from lformer.train.files import write_json
from lformer.train.language_presets import GATED, modern, recommended

HEAD_SIZE = 64


@dataclass(frozen=True, kw_only=True)
class GenerateOptions:
    """What a user said."""

    hidden_size: int = 768
    layers: int = 12
    p: int = 4
    vocab_size: int = 260
    batches: tuple[int, ...] = (1, 32)
    prompt: int = 128
    new: int = 128
    device: str | None = None
    dtype: str | None = None
    peers: bool = True
    compile: bool = False
    """Also the decoding step of both sides with a static cache and torch.compile. Their `generate` is not timed: what
    it compiles is its own choice, and on a CPU that is nothing.
    """
    rounds: int = 3


def bench_generate(out: Path | None, options: GenerateOptions) -> dict[str, Any]:
    """Measure, print a table, and write the JSON if there is an `out`."""
    machine = make_machine(options.device, options.dtype)
    if out is not None and out.exists():
        raise UserError(f"{out} is there already; choose another file")
    if options.compile:
        try:
            machine.require_compiler()
        except ValueError as error:
            raise UserError(str(error)) from None
    result: dict[str, Any] = {
        "format": "lformer-bench-generate",
        "environment": facts(machine),
        "settings": {
            **asdict(options),
            "dtype": str(machine.dtype).removeprefix("torch."),
            "device": str(machine.device),
        },
        "batches": [],
    }
    entrants = _entrants(options, machine)
    with BenchProgress() as progress:
        for size in options.batches:
            result["batches"].append(_measure(entrants, size, options, machine, progress))
    console().print(table(result))
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_json(out, result)
        console().print(f"wrote {out}", soft_wrap=True)
    return result


def table(result: dict[str, Any]) -> Table:
    """Tokens per second and how many times those of the dense twin."""
    settings = result["settings"]
    shape = f"d={settings['hidden_size']}, {settings['layers']} layers, {settings['dtype']}, {settings['device']}"
    title = f"generate: {shape}; prompt {settings['prompt']}, {settings['new']} new tokens"
    found = Table(title=title, box=box.SIMPLE)
    for name in ("batch", "", "layer parameters", "tokens/s", "x dense", "step ms", "x dense"):
        found.add_column(name, justify="left" if not name else "right")
    for batch in result["batches"]:
        rows = batch["rows"]
        for row in rows:
            base = next(other for other in rows if other["name"] == "dense" and other["compiled"] == row["compiled"])
            found.add_row(
                str(batch["batch_size"]),
                row["name"] + (" compiled" if row["compiled"] else ""),
                f"{row['layer_parameters']:,}",
                f"{row['tokens_per_second']:,.1f}" if row["tokens_per_second"] else "-",
                f"{row['tokens_per_second'] / base['tokens_per_second']:.2f}" if row["tokens_per_second"] else "-",
                f"{row['step_seconds'] * 1e3:.2f}",
                f"{base['step_seconds'] / row['step_seconds']:.2f}",
            )
        found.add_section()
    return found


@dataclass(frozen=True)
class _Entrant:
    name: str
    model: Any
    compiled: bool = False

    @property
    def layer_parameters(self) -> int:
        names = ("layers.", "transformer.h.")
        return sum(p.numel() for name, p in self.model.named_parameters() if any(part in name for part in names))


def _entrants(options: GenerateOptions, machine: Machine) -> list[_Entrant]:
    """The tensor model, its dense twin by the same code, and transformers' GPT-2 of the same width."""
    heads = max(options.hidden_size // HEAD_SIZE, 1)
    common: dict[str, Any] = {
        "vocab_size": options.vocab_size,
        "hidden_size": options.hidden_size,
        "num_hidden_layers": options.layers,
        "max_position_embeddings": options.prompt + options.new,
    }
    tensor_heads = -(-heads // options.p) * options.p
    sides = {
        f"T{options.p}": {**recommended(), "tube_length": options.p, "num_attention_heads": tensor_heads},
        "dense": {**modern(), **GATED, "tube_length": 1, "transform": "identity", "num_attention_heads": heads},
    }
    models: dict[str, nn.Module] = {}
    for name, fields in sides.items():
        try:
            models[name] = LFormerForCausalLM(LFormerConfig(**{**common, **fields}))
        except ValueError as error:
            raise UserError(str(error)) from None
    if options.peers:
        models["GPT-2 (transformers)"] = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=options.vocab_size,
                n_embd=options.hidden_size,
                n_layer=options.layers,
                n_head=heads,
                n_positions=options.prompt + options.new,
                bos_token_id=0,
                eos_token_id=0,
            )
        )
    ready = {name: model.to(machine.device, machine.dtype).eval() for name, model in models.items()}
    entrants = [_Entrant(name, model) for name, model in ready.items()]
    if options.compile:
        entrants += [_Entrant(name, model, compiled=True) for name, model in ready.items() if name in sides]
    return entrants


def _measure(
    entrants: list[_Entrant], size: int, options: GenerateOptions, machine: Machine, progress: BenchProgress
) -> dict[str, Any]:
    progress.case(f"batch {size}", len(entrants) * (options.rounds + 1))
    torch.manual_seed(0)
    ids = torch.randint(4, options.vocab_size, (size, options.prompt), device=machine.device)
    calls: list[Callable[[], tuple[float | None, float]]] = []
    for entrant in entrants:
        call = _call(entrant, ids, options, machine)
        progress.stage(f"{entrant.name}: first call")
        call()
        progress.advance()
        calls.append(call)
    samples: list[list[tuple[float | None, float]]] = [[] for _ in entrants]
    for _ in range(options.rounds):
        for index, call in enumerate(calls):
            samples[index].append(call())
            progress.advance()
    rows = []
    for entrant, found in zip(entrants, samples, strict=True):
        seconds = [whole for whole, _ in found if whole is not None]
        steps = [step for _, step in found]
        rows.append(
            {
                "name": entrant.name,
                "compiled": entrant.compiled,
                "layer_parameters": entrant.layer_parameters,
                "seconds": seconds,
                "tokens_per_second": size * options.new / statistics.median(seconds) if seconds else None,
                "step_seconds": statistics.median(steps),
                "step_samples": steps,
            }
        )
    return {"batch_size": size, "rows": rows}


def _call(
    entrant: _Entrant, ids: Tensor, options: GenerateOptions, machine: Machine
) -> Callable[[], tuple[float | None, float]]:
    """Seconds of a whole generate (None if compiled), and the median of the decoding steps alone."""
    step_model = torch.compile(entrant.model) if entrant.compiled else entrant.model
    settings: dict[str, Any] = {"max_new_tokens": options.new, "do_sample": False, "eos_token_id": None}

    @torch.inference_mode()
    def call() -> tuple[float | None, float]:
        if entrant.compiled:
            return None, _step_seconds(step_model, entrant, ids, options, machine)
        machine.synchronize()
        started = time.perf_counter()
        found = entrant.model.generate(ids, attention_mask=torch.ones_like(ids), pad_token_id=0, **settings)
        machine.synchronize()
        seconds = time.perf_counter() - started
        assert found.shape[1] == options.prompt + options.new
        return seconds, _step_seconds(step_model, entrant, ids, options, machine)

    return call


def _step_seconds(model: Any, entrant: _Entrant, ids: Tensor, options: GenerateOptions, machine: Machine) -> float:
    cache = None
    if entrant.compiled:
        cache = StaticCache(config=entrant.model.config, max_cache_len=options.prompt + options.new)
    outputs = entrant.model(input_ids=ids, past_key_values=cache, use_cache=True)
    token, cache = outputs.logits[:, -1:].argmax(-1), outputs.past_key_values
    times = []
    for _ in range(options.new - 1):
        machine.synchronize()
        started = time.perf_counter()
        token = model(input_ids=token, past_key_values=cache, use_cache=True).logits[:, -1:].argmax(-1)
        machine.synchronize()
        times.append(time.perf_counter() - started)
    return statistics.median(times)
