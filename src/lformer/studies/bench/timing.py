"""Calls that are ready to be timed, and timing in turns.

On a GPU a call is the replay of a CUDA graph, so that what is compared is the device's work and not Python's; where a
capture fails the call stays an ordinary one and says so. All calls take turns in every round: a slow disturbance of
the machine then hits all alike, and ratios of medians stay fair.
"""

import statistics
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.nn.functional as F

from lformer.studies.bench.machine import Machine

WARMUP = 3  # calls before a capture
MOST_CALLS = 1000
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Plan:
    """How long to measure."""

    rounds: int
    block: float
    """Seconds: shorter calls are repeated inside one sample."""


def make_plan(machine: Machine, rounds: int | None, quick: bool) -> Plan:
    if quick:
        return Plan(rounds or 2, 1e-3)
    return Plan(rounds or 20, 0.01) if machine.is_cuda else Plan(rounds or 10, 0.05)


@dataclass(frozen=True)
class Ready:
    """Something that can be called again and again."""

    call: Callable[[], object]
    before: Callable[[], object] = lambda: None
    """Called before every sample, not timed: puts the module into its mode."""
    captured: bool = False
    not_captured: str = ""
    """Why not, where a capture was tried."""
    keeps: object = None
    """What must stay alive: a graph reads the weights and the input where they were when it was captured."""


class Capturer:
    """Captures calls in CUDA graphs that share a stream and a memory pool.

    Sharing is safe because replays never overlap and nobody reads what they leave behind; with it, the candidates of
    a shape need as much memory as the largest of them and not their sum.
    """

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()
        self.pool = torch.cuda.graph_pool_handle()
        with self.active():
            _allocate_workspaces()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Everything of a shape runs on one side stream: building, warm-up, capture and timing. Gradients then stay
        on the stream that they were first made on; the default stream, which cannot be captured, is not involved.
        """
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            yield
        torch.cuda.synchronize()

    def capture(self, call: Callable[[], object], before: Callable[[], object]) -> Ready:
        """A call that has been warmed up (which compiles, tunes and allocates) as the replay of a graph."""
        before()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream):
                call()
        except Exception as error:  # whatever a candidate does that a graph cannot hold
            torch.cuda.synchronize()
            self.pool = torch.cuda.graph_pool_handle()
            return Ready(call, before, not_captured=reason(error))
        return Ready(graph.replay, captured=True, keeps=call)


def _allocate_workspaces() -> None:
    """At its first call on a stream and thread cuBLAS allocates: now, and not in the peak of the first candidate."""
    for dtype in (torch.bfloat16, torch.float32):
        x = torch.zeros(2, 64, 64, device="cuda", dtype=dtype, requires_grad=True)
        (F.linear(x, x[0], x[0, 0]) @ x).sum().backward()


def interleave(
    calls: Mapping[Key, Ready], machine: Machine, plan: Plan, on_round: Callable[[], None] = lambda: None
) -> dict[Key, list[float]]:
    """Seconds per call, one sample of every call a round."""
    samples: dict[Key, list[float]] = {key: [] for key in calls}
    counts: dict[Key, int] = {}
    for key, ready in calls.items():
        ready.before()
        ready.call()
        counts[key] = min(MOST_CALLS, max(1, round(plan.block / max(_sample(ready, machine, 2), 1e-7))))
    for _ in range(plan.rounds):
        for key, ready in calls.items():
            ready.before()
            samples[key].append(_sample(ready, machine, counts[key]))
        on_round()
    return samples


def statistics_of(samples: list[float]) -> dict[str, float]:
    return {
        "median": statistics.median(samples),
        "min": min(samples),
        "max": max(samples),
        "count": len(samples),
    }


def reason(error: BaseException) -> str:
    """The first line of an error, for a row of a table."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


def _sample(ready: Ready, machine: Machine, calls: int) -> float:
    """Seconds per call. On a GPU one call more stands in front: while it runs, launches get ahead of the device."""
    if not machine.is_cuda:
        start = time.perf_counter()
        for _ in range(calls):
            ready.call()
        return (time.perf_counter() - start) / calls
    events: list[Any] = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    ready.call()
    events[0].record()
    for _ in range(calls):
        ready.call()
    events[1].record()
    events[1].synchronize()
    return events[0].elapsed_time(events[1]) / 1e3 / calls
