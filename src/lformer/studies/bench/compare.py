"""Dense against tensor at every shape: prepare all candidates, time them in turns, write down what came out.

The result is plain JSON: `environment`, `settings` and, for every shape, the `rows` and the `ceilings` of the
machine, the best that was measured in the run up to then. Times are in seconds and peaks in bytes. A ratio is the
baseline's median over the row's, so above 1 is faster than dense. The baseline is the fastest dense row, and the
headline of a tube length the fastest of its rows with backend="auto"; both are chosen for the forward pass and the
training step apart.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from lformer.studies.bench.candidates import Choice, candidates
from lformer.studies.bench.entrants import Entrant, References, prepare
from lformer.studies.bench.limits import MEASURES, Work, work
from lformer.studies.bench.machine import Ceilings, Machine, facts, measure_ceilings
from lformer.studies.bench.progress import BenchProgress
from lformer.studies.bench.shapes import Case
from lformer.studies.bench.side_by_side import side_by_side
from lformer.studies.bench.timing import Capturer, Plan, Ready, interleave, statistics_of
from lformer.train.files import write_json

FORMAT = "lformer bench 1"


@dataclass(frozen=True)
class Request:
    """Everything that decides what is measured."""

    cases: list[Case]
    machine: Machine
    choice: Choice
    plan: Plan
    quick: bool = False
    sweep: str | None = None
    side_by_side: bool = False
    """Whether all shapes are prepared at once, in a process each."""


def compare(request: Request, out: Path | None, show: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """The result; every shape is shown, and the file written anew, as soon as it is done."""
    machine, first = request.machine, request.cases[0]
    with BenchProgress() as progress:
        result: dict[str, Any] = {
            "format": FORMAT,
            "kind": first.kind,
            "sweep": request.sweep,
            "environment": facts(machine),
            "settings": {
                "device": machine.device.type,
                "dtype": str(machine.dtype).removeprefix("torch."),
                "dropout": first.dropout,
                "layers": first.layers,
                "quick": request.quick,
                "plan": asdict(request.plan),
                "choice": asdict(request.choice),
            },
            "shapes": [],
        }
        for found in _all_cases(request, progress):
            result["shapes"].append(found)
            if out is not None:
                write_json(out, result)
            with progress.paused():
                show(found)
    return result


def _all_cases(request: Request, progress: BenchProgress) -> Iterator[dict[str, Any]]:
    """What was found at every shape, in their order, with the best rates of the machine up to then."""
    machine = request.machine
    if request.side_by_side:
        progress.stage("the machine's ceilings")
        ceilings = measure_ceilings(machine, quick=request.quick)
        _free(machine)
        for found in side_by_side(partial(_in_process, request, ceilings), request.cases, progress):
            yield {**found, "ceilings": ceilings.as_dict()}
        return
    best: Ceilings | None = None
    for case in request.cases:
        progress.stage("the machine's ceilings")
        best = measure_ceilings(machine, quick=request.quick).best(best)
        _free(machine)
        yield {**compare_case(case, request, best, progress), "ceilings": best.as_dict()}


def _in_process(request: Request, ceilings: Ceilings, case: Case, my_turn: Callable[[], None]) -> dict[str, Any]:
    """One shape in a process of its own, which shows nothing."""
    with BenchProgress(Console(quiet=True)) as progress:
        return compare_case(case, request, ceilings, progress, my_turn)


def compare_case(
    case: Case,
    request: Request,
    ceilings: Ceilings,
    progress: BenchProgress,
    my_turn: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """All candidates at one shape. `my_turn` returns when nothing else uses the machine."""
    machine = request.machine
    wanted = candidates(case, machine, request.choice)
    capturer = Capturer() if machine.is_cuda else None
    entrants: list[Entrant] = []
    references: References = {}
    progress.case(case.name, len(wanted) + request.plan.rounds)
    torch._dynamo.reset()
    # One compiled function for every tube length, backend and pass: beyond the limit they would silently run eagerly.
    limit = torch._dynamo.config.patch(recompile_limit=64, fail_on_recompile_limit_hit=True)
    with limit, capturer.active() if capturer else nullcontext():
        for candidate in wanted:
            progress.stage(f"{candidate.name}, {candidate.backend}, {candidate.mode}")
            entrants.append(prepare(candidate, machine, capturer, references, dropout=case.dropout))
            progress.advance()
        my_turn()
        progress.stage("timing")
        calls: dict[tuple[int, str], Ready] = {
            (index, measure): ready
            for index, entrant in enumerate(entrants)
            for measure, ready in entrant.ready.items()
        }
        samples = interleave(calls, machine, request.plan, progress.advance)
    rows = [
        _row(entrant, case, machine, ceilings, {m: samples[index, m] for m in MEASURES if (index, m) in samples})
        for index, entrant in enumerate(entrants)
    ]
    del entrants, calls  # the models and graphs of this shape, before those of the next
    _free(machine)
    return summarise(case, rows)


def _free(machine: Machine) -> None:
    gc.collect()
    if machine.is_cuda:
        torch.cuda.empty_cache()


def summarise(case: Case, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The rows of a shape with their ratios, the baseline and the headlines."""
    dense = [row for row in rows if row["family"] == "dense"]
    baseline = {measure: _fastest(dense, measure) for measure in MEASURES}
    for measure, best in baseline.items():
        for row in rows:
            if best is not None and row[measure]["seconds"] is not None:
                row[measure]["ratio"] = _median(best, measure) / _median(row, measure)
    headlines = {}
    for p in case.tube_lengths:
        tensor = [row for row in rows if row["family"] == "tensor" and row["tube_length"] == p]
        tensor = [row for row in tensor if row["backend"] == "auto"] or tensor
        best_rows = {measure: _fastest(tensor, measure) for measure in MEASURES}
        headlines[str(p)] = {measure: _pointer(rows, best, measure) for measure, best in best_rows.items()}
    return {
        "shape": {**asdict(case), "name": case.name, "intermediate_size": case.intermediate_size},
        "baseline": {measure: _pointer(rows, best, measure) for measure, best in baseline.items()},
        "headlines": headlines,
        "rows": rows,
    }


def _row(
    entrant: Entrant, case: Case, machine: Machine, ceilings: Ceilings, samples: dict[str, list[float]]
) -> dict[str, Any]:
    candidate = entrant.candidate
    row: dict[str, Any] = {
        "name": candidate.name,
        "family": candidate.family,
        "tube_length": candidate.tube_length,
        "backend": candidate.backend,
        "mode": candidate.mode,
        "parameters": entrant.parameters,
        "peak_bytes": entrant.peak_bytes,
        "output_difference": entrant.output_difference,
        "gradient_difference": entrant.gradient_difference,
        "prepare_seconds": entrant.prepare_seconds,
        "notes": entrant.notes,
    }
    works: dict[str, Work] = {}
    if entrant.parameters is not None:
        works = work(case, candidate.tube_length, entrant.parameters, machine.item_size)
    for measure in MEASURES:
        row[measure] = {
            "seconds": None,
            "ratio": None,
            "captured": measure in entrant.ready and entrant.ready[measure].captured,
            "reason": entrant.reasons.get(measure),
            **dict.fromkeys(["flops", "bytes", "flops_per_second", "bytes_per_second", "share_of_limit"]),
        }
        if measure in samples:
            row[measure] |= _rates(samples[measure], works[measure], ceilings)
    return row


def _rates(samples: list[float], work: Work, ceilings: Ceilings) -> dict[str, Any]:
    seconds = statistics_of(samples)
    return {
        "seconds": seconds,
        "flops": work.flops,
        "bytes": work.bytes,
        "flops_per_second": work.flops / seconds["median"],
        "bytes_per_second": work.bytes / seconds["median"],
        "share_of_limit": work.seconds(ceilings) / seconds["median"],
    }


def _median(row: dict[str, Any], measure: str) -> float:
    return row[measure]["seconds"]["median"]


def _fastest(rows: list[dict[str, Any]], measure: str) -> dict[str, Any] | None:
    timed = [row for row in rows if row[measure]["seconds"] is not None]
    return min(timed, key=lambda row: _median(row, measure), default=None)


def _pointer(rows: list[dict[str, Any]], row: dict[str, Any] | None, measure: str) -> dict[str, Any] | None:
    """Which row it is, and its ratio."""
    if row is None:
        return None
    index = next(index for index, other in enumerate(rows) if other is row)
    return {"row": index, "backend": row["backend"], "mode": row["mode"], "ratio": row[measure]["ratio"]}
