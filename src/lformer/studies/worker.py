"""A process that does jobs of a study one after another: JSON lines in, JSON lines out.

Processes, not threads: several trainings share a GPU, none sees the random numbers or the memory of another, and one
that dies takes only its own job along.
"""

import gc
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lformer.data import Prepared
from lformer.settings import UserError
from lformer.studies.measure import measure
from lformer.studies.posthoc import posthoc_sweep
from lformer.train import Diverged, Interrupted, Recipe, RunFolder, train
from lformer.train.files import write_json


def do_train(job: dict[str, Any]) -> None:
    """A run, from where it was if it was begun."""
    out = Path(job["out"])
    train(
        Prepared.open(Path(job["prepared"])),
        out,
        model=job["model"],
        recipe=Recipe(**job["recipe"]),
        resume=RunFolder(out).is_started,
        quiet=True,
    )


def do_measure(job: dict[str, Any]) -> None:
    """The speed of a row, into a file."""
    options = {name: job[name] for name in ("warm_up", "steps")}
    found = measure(Prepared.open(Path(job["prepared"])), job["model"], Recipe(**job["recipe"]), **options)
    write_json(Path(job["out"]), found)


def do_compress(job: dict[str, Any]) -> None:
    """What is left of a trained dense model under compression, into a file."""
    points = posthoc_sweep(Path(job["run"]), Prepared.open(Path(job["prepared"])))
    write_json(Path(job["out"]), points)


JOBS: dict[str, Callable[[dict[str, Any]], None]] = {
    "train": do_train,
    "measure": do_measure,
    "compress": do_compress,
}


def main() -> None:
    """Answer every job with {"error": None} or with what went wrong."""
    sys.argv = sys.argv[1:] or sys.argv  # the command that the study was started with: what its runs note as theirs
    # Whatever prints to standard output must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line))), file=answers, flush=True)


def _answer(job: dict[str, Any]) -> dict[str, Any]:
    try:
        JOBS[job["kind"]](job)
    except (UserError, Diverged) as error:
        return {"error": str(error)}
    except (Interrupted, KeyboardInterrupt):
        return {"error": "it was stopped, and goes on from there when the study is run again"}
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
    finally:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return {"error": None}


if __name__ == "__main__":
    main()
