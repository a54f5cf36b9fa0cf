"""Shapes prepared side by side, a process each, and timed one after the other.

Most of a benchmark's time goes into compilers, which use one core each. Nothing is timed before every process is ready
and waits, so that a shape that is timed has the machine for itself.
"""

import multiprocessing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from lformer.settings import UserError
from lformer.studies.bench.progress import BenchProgress
from lformer.studies.bench.shapes import Case

PATIENCE = 10  # seconds that a process may take to end

Work = Callable[[Case, Callable[[], None]], dict[str, Any]]
"""From a shape, and a function that returns when it may be timed, to what was found."""


@dataclass(frozen=True)
class _Child:
    case: Case
    process: BaseProcess
    pipe: Connection

    def answer(self) -> Any:
        """What it sends; None if it died."""
        try:
            return self.pipe.recv()
        except EOFError:
            self.process.join()
            return None


def side_by_side(work: Work, cases: list[Case], progress: BenchProgress) -> Iterator[dict[str, Any]]:
    """What `work` found at every shape, in their order. Shapes whose process died are named after all the others."""
    children = [_start(work, case) for case in cases]
    try:
        progress.case(f"preparing {len(cases)} shapes", 2 * len(cases))
        ready: list[_Child] = []
        lost: list[_Child] = []
        for child in children:
            (ready if child.answer() else lost).append(child)
            progress.advance()
        for child in ready:
            progress.stage(f"timing {child.case.name}")
            child.pipe.send(True)
            found = child.answer()
            if found is None:
                lost.append(child)
            else:
                yield found
            progress.advance()
    finally:
        for child in children:
            child.pipe.close()  # one that still waits for its turn ends
            child.process.join(PATIENCE)
            child.process.kill()  # what it had to say is here
    if lost:
        dead = [f"{child.case.name} (exit code {child.process.exitcode})" for child in lost]
        raise UserError(f"the process of {', '.join(dead)} died (see above); try it without --side-by-side")


def _start(work: Work, case: Case) -> _Child:
    context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    ours, its = context.Pipe()
    process = context.Process(target=_run, args=(work, case, its))
    process.start()
    its.close()  # or its end would not be seen when it dies
    return _Child(case, process, ours)


def _run(work: Work, case: Case, pipe: Connection) -> None:
    def my_turn() -> None:
        pipe.send(True)
        try:
            pipe.recv()
        except EOFError:  # whoever asked is gone
            raise SystemExit(1) from None

    pipe.send(work(case, my_turn))
