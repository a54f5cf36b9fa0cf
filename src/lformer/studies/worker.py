"""A process that does jobs of a study one after another: JSON lines in, JSON lines out.

Processes, not threads: several trainings share a GPU, none sees the random numbers or the memory of another, and one
that dies takes only its own job along.
"""

import gc
import json
import os
import queue
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast

from lformer.data import Prepared
from lformer.settings import UserError
from lformer.studies.measure import measure
from lformer.studies.pool import STOPPED
from lformer.studies.posthoc import posthoc_sweep
from lformer.train import Diverged, Interrupted, Recipe, RunFolder, train
from lformer.train.files import write_json


class OpenData(Prepared):
    """Data that stay open from one job to the next: to read the tokenizer is most of what a run does before its steps,
    and hundreds of runs of seconds share it.
    """

    def tokenizer(self) -> PreTrainedTokenizerFast:
        return self._tokenizer

    @cached_property
    def _tokenizer(self) -> PreTrainedTokenizerFast:
        return super().tokenizer()


@cache
def open_data(path: str) -> Prepared:
    """The prepared folder, opened once by this process."""
    return OpenData.open(Path(path))


def do_train(job: dict[str, Any]) -> None:
    """A run, from where it was if it was begun. Hundreds of finished runs need no place for checkpoints."""
    out = Path(job["out"])
    train(
        open_data(job["prepared"]),
        out,
        model=job["model"],
        recipe=Recipe(**job["recipe"]),
        resume=RunFolder(out).is_started,
        quiet=True,
    )
    shutil.rmtree(RunFolder(out).checkpoints, ignore_errors=True)


def do_measure(job: dict[str, Any]) -> None:
    """The speed of a row, into a file."""
    options = {name: job[name] for name in ("warm_up", "steps")}
    found = measure(open_data(job["prepared"]), job["model"], Recipe(**job["recipe"]), **options)
    write_json(Path(job["out"]), found)


def do_compress(job: dict[str, Any]) -> None:
    """What is left of a trained dense model under compression, into a file."""
    points = posthoc_sweep(Path(job["run"]), open_data(job["prepared"]))
    write_json(Path(job["out"]), points)


PATIENCE = 60.0  # seconds that a job has to stop in when its study is gone

JOBS: dict[str, Callable[[dict[str, Any]], None]] = {
    "train": do_train,
    "measure": do_measure,
    "compress": do_compress,
}


class Jobs:
    """The jobs that come in, one a line, until the study closes the pipe.

    The pipe also closes when the study is killed. A job that is on then is stopped, as by SIGTERM: with a checkpoint,
    if it trains. Otherwise it would go on in a folder that the study, started again, gives to another worker.
    """

    def __init__(self) -> None:
        self.lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.taken = self.answered = 0
        threading.Thread(target=self._read, daemon=True).start()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while (line := self.lines.get()) is not None:
            yield json.loads(line)

    def _read(self) -> None:
        with os.fdopen(0, "rb", buffering=0, closefd=False) as pipe:
            for line in pipe:
                self.taken += 1
                self.lines.put(line)
        self.lines.put(None)
        if self.taken > self.answered:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(PATIENCE)
            os._exit(1)  # it does not come to the end of its step


def main() -> None:
    """Answer every job with {"error": None} or with what went wrong."""
    # Work that does not listen for SIGTERM unwinds: under NVIDIA's multi-process service a process that is cut off in a
    # kernel can take the others along, and those of the next call.
    signal.signal(signal.SIGTERM, _interrupt)
    sys.argv = sys.argv[1:] or sys.argv  # the command that the study was started with: what its runs note as theirs
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever prints to standard output must not get between the answers
    jobs = Jobs()
    with suppress(KeyboardInterrupt):  # between two jobs
        for job in jobs:
            answer = _answer(job)
            jobs.answered += 1
            with suppress(BrokenPipeError):  # the study was killed
                os.write(answers, (json.dumps(answer) + "\n").encode())


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _answer(job: dict[str, Any]) -> dict[str, Any]:
    try:
        JOBS[job["kind"]](job)
    except (UserError, Diverged) as error:
        return {"error": str(error)}
    except (Interrupted, KeyboardInterrupt):
        return {"error": STOPPED}
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
