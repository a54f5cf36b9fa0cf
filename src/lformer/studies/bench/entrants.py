"""A candidate made ready: built, warmed up, checked against its twins, its memory measured, captured on a GPU."""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lformer.studies.bench.candidates import Built, Candidate
from lformer.studies.bench.limits import MEASURES
from lformer.studies.bench.machine import Machine
from lformer.studies.bench.timing import WARMUP, Capturer, Ready, reason

SEED = 0
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}
# Rounding moves hidden features across the kink of the relu, and a gradient feels that by the root of their share.
GRADIENT_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.2, torch.float16: 5e-2}
References = dict[tuple[str, int], dict[str, Tensor]]
"""What the first candidate of every family and tube length computes, by name."""


class WrongOutput(ValueError):
    """A candidate computes something else than its twins."""


@dataclass
class Entrant:
    """A candidate at a shape, and what is known of it before it is timed."""

    candidate: Candidate
    parameters: int | None = None
    ready: dict[str, Ready] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    """By measure, why there is none."""
    notes: list[str] = field(default_factory=list)
    peak_bytes: int | None = None
    """Parameters, gradients and activations of one training step, not captured; None on a CPU."""
    output_difference: float | None = None
    """Norm of the difference from the first candidate with the same weights, over the norm of that one's output."""
    gradient_difference: float | None = None
    """The same of the gradients of input and parameters, the largest; None with dropout, which draws anew."""
    prepare_seconds: float = 0.0


def prepare(
    candidate: Candidate,
    machine: Machine,
    capturer: Capturer | None,
    references: References,
    *,
    dropout: float = 0.0,
) -> Entrant:
    """What goes wrong becomes a reason in the row; a forward pass may work where a training step does not.

    `references` collects output and gradients of the first candidate of every family and tube length; the others, which
    start from the same seed, must give the same. A fast wrong kernel would otherwise be a good result.
    """
    started = time.perf_counter()
    entrant = Entrant(candidate, notes=[candidate.note] if candidate.note else [])
    held = _held_bytes(machine)
    try:
        torch.manual_seed(SEED)
        built = candidate.build()
        entrant.parameters = built.parameters
        x, gradient = _tensors(built, machine)
    except Exception as error:  # every failure is a row
        entrant.reasons = dict.fromkeys(MEASURES, reason(error))
        return entrant
    calls: dict[str, Callable[[], Any]] = {"forward": _forward(built, x), "training": _training(built, x, gradient)}
    modes = {"forward": built.module.eval, "training": built.module.train}
    for measure in MEASURES:
        try:
            modes[measure]()
            _warm_up(calls[measure], capturer)
            if measure == "forward":
                output = {"output": calls["forward"]()}
                entrant.output_difference = _compare(candidate, output, TOLERANCE[machine.product_dtype], references)
                continue
            if dropout == 0:
                found, allowed = _gradients(built, x), GRADIENT_TOLERANCE[machine.product_dtype]
                entrant.gradient_difference = _compare(candidate, found, allowed, references)
            if machine.is_cuda:
                entrant.peak_bytes = _peak_bytes(built, x, calls[measure]) - held
        except WrongOutput as error:  # then its speed means nothing, in both passes
            entrant.reasons = dict.fromkeys(MEASURES, str(error))
            break
        except Exception as error:  # every failure is a row
            entrant.reasons[measure] = reason(error)
    for measure in MEASURES:  # last: the memory that a graph keeps would count in the peak
        if measure in entrant.reasons:
            continue
        try:
            _make_ready(entrant, measure, calls[measure], modes[measure], capturer)
        except Exception as error:
            entrant.reasons[measure] = reason(error)
    _drop_gradients(built, x)
    entrant.prepare_seconds = time.perf_counter() - started
    return entrant


def _tensors(built: Built, machine: Machine) -> tuple[Tensor, Tensor]:
    """An input and a gradient of the output. A failed capture spoils the default generator: they have their own."""
    generator = torch.Generator(machine.device).manual_seed(SEED)
    options: dict[str, Any] = {"generator": generator, "device": machine.device, "dtype": machine.dtype}
    x, gradient = (torch.randn(built.input_shape, **options) for _ in range(2))
    return x.requires_grad_(), gradient


def _forward(built: Built, x: Tensor) -> Callable[[], Tensor]:
    @torch.no_grad()
    def forward() -> Tensor:
        return built.call(x)

    return forward


def _training(built: Built, x: Tensor, gradient: Tensor) -> Callable[[], None]:
    def training() -> None:
        _drop_gradients(built, x)  # so that gradients are written and not added to
        built.call(x).backward(gradient)

    return training


def _drop_gradients(built: Built, x: Tensor) -> None:
    x.grad = None
    for parameter in built.module.parameters():
        parameter.grad = None


def _warm_up(call: Callable[[], object], capturer: Capturer | None) -> None:
    for _ in range(1 if capturer is None else WARMUP):
        call()


def _make_ready(
    entrant: Entrant,
    measure: str,
    call: Callable[[], object],
    mode: Callable[[], object],
    capturer: Capturer | None,
) -> None:
    ready = Ready(call, mode)
    if capturer is not None and entrant.candidate.capture:
        ready = capturer.capture(call, mode)
    entrant.ready[measure] = ready
    if ready.not_captured:
        entrant.notes.append(f"{measure} not captured: {ready.not_captured}")


def _gradients(built: Built, x: Tensor) -> dict[str, Tensor]:
    """Those that the last training step left behind."""
    named = {"gradient of the input": x.grad}
    named |= {f"gradient of {name}": parameter.grad for name, parameter in built.module.named_parameters()}
    return {name: gradient for name, gradient in named.items() if gradient is not None}


def _compare(candidate: Candidate, found: dict[str, Tensor], allowed: float, references: References) -> float | None:
    """The largest relative difference from the first candidate with the same weights; peers have none."""
    for name, tensor in found.items():
        if not tensor.isfinite().all():
            raise WrongOutput(f"the {name} is not finite")
    if candidate.family == "peer":
        return None
    known = references.setdefault((candidate.family, candidate.tube_length), {})
    largest = 0.0
    for name, tensor in found.items():
        own = tensor.float().cpu()
        reference = known.setdefault(name, own)
        difference = float((own - reference).norm() / reference.norm().clamp_min(1e-30))
        if difference > allowed:
            raise WrongOutput(f"the {name} differs by {difference:.2g} from that of the first variant")
        largest = max(largest, difference)
    return largest


def _held_bytes(machine: Machine) -> int:
    """What the candidates before this one hold, which is not part of its peak."""
    if not machine.is_cuda:
        return 0
    gc.collect()
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated()


def _peak_bytes(built: Built, x: Tensor, training: Callable[[], object]) -> int:
    _drop_gradients(built, x)
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    training()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()
