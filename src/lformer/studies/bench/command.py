"""`lformer bench layer` and `lformer bench model`: from the words of the command line to table, JSON and plots."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lformer.settings import UserError
from lformer.studies.bench.candidates import Choice
from lformer.studies.bench.compare import Request, compare
from lformer.studies.bench.machine import make_machine
from lformer.studies.bench.plots import read_result, write_plots
from lformer.studies.bench.shapes import make_cases
from lformer.studies.bench.table import console, shape_table
from lformer.studies.bench.timing import make_plan


@dataclass(frozen=True)
class BenchOptions:
    """What a user said."""

    shapes: str | None = None
    p: str | None = None
    layers: int = 1
    heads: int | None = None
    dropout: float = 0.0
    dtype: str | None = None
    device: str | None = None
    backends: str | None = None
    compile_tensor: bool | None = None
    dense_modes: str = "eager,default"
    peers: bool = True
    sweep: str | None = None
    rounds: int | None = None
    quick: bool = False
    side_by_side: bool = False


def run(kind: str, out: Path | None, options: BenchOptions) -> dict[str, Any]:
    """Compare, print a table for every shape, and write the JSON and the plots if there is an `out`."""
    request = make_request(kind, options)
    if options.sweep and out is None:
        raise UserError(f"--sweep {options.sweep} makes a plot: give --out FILE.json")
    if out is not None:
        _check_out(out)
    printer = console()
    settings = {"dtype": str(request.machine.dtype).removeprefix("torch."), "dropout": options.dropout}
    result = compare(request, out, lambda found: printer.print(shape_table(found, settings)))
    if out is not None:
        for path in (out, *write_plots(out)):
            printer.print(f"wrote {path}", soft_wrap=True)
    return result


def make_request(kind: str, options: BenchOptions) -> Request:
    """The options, checked."""
    machine = make_machine(options.device, options.dtype)
    cases = make_cases(
        kind,
        machine.device.type,
        shapes=options.shapes,
        tubes=options.p,
        heads=options.heads,
        layers=options.layers,
        dropout=options.dropout,
        sweep=options.sweep,
        quick=options.quick,
    )
    choice = Choice(
        dense_modes=_words(options.dense_modes),
        backends=None if options.backends is None else _words(options.backends),
        compile=options.compile_tensor,
        peers=options.peers,
    )
    plan = make_plan(machine, options.rounds, options.quick)
    return Request(cases, machine, choice, plan, options.quick, options.sweep, options.side_by_side)


def _words(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.strip() for word in text.split(",")))


def _check_out(out: Path) -> None:
    """Before minutes of measuring: a place that can be written, and no file of another kind in it."""
    if out.suffix != ".json":
        raise UserError(f"--out {out}: give the name of a file that ends in .json")
    if out.exists():
        read_result(out)  # an older result is replaced, anything else is not
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out}: cannot make the folder {out.parent}: {error.strerror}") from None
