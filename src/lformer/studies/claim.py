"""Whose folder it is: of one study, and of one process at a time, as two would train the same runs over each other."""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from lformer.settings import UserError
from lformer.studies.study import Study
from lformer.train.files import write_json

PATIENCE = 90.0  # seconds: more than the workers of a study that was killed need to end


def check_claim(out: Path, study: Study) -> None:
    """Refuse a folder that holds something else than this study; nothing is written."""
    path = out / "study.json"
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file; choose another --out")
    if path.is_file():
        found = json.loads(path.read_text(encoding="utf-8"))
        if found != _description(study):
            raise UserError(
                f"{out} holds the study {found.get('study')} at scale {found.get('scale')}, not "
                f"{study.name} at scale {study.scale}; choose another --out"
            )
    elif out.exists() and any(item.name != "data" for item in out.iterdir()):
        raise UserError(f"{out} exists and holds no study; choose another --out")


def claim(out: Path, study: Study) -> None:
    """Make the folder the study's."""
    check_claim(out, study)
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "study.json", _description(study))
    except OSError as error:
        raise UserError(f"{out} cannot be made: {error.strerror}") from None


@contextmanager
def only_one(out: Path, say: Callable[[str], None]) -> Iterator[int]:
    """Hold the folder; yields the descriptor of the lock, for the workers to hold it too.

    The system frees the lock when the last process that has it open is gone, however it ended. A study that is at work
    there is the user's mistake; workers that outlive a killed one are waited for.
    """
    with (out / "lock").open("a+", encoding="utf-8") as file:
        deadline = time.monotonic() + PATIENCE
        is_said = False
        while not _is_taken_by_us(file):
            file.seek(0)
            holder = file.read().strip()
            if _is_alive(holder):
                raise UserError(
                    f"a study is at work in {out} (process {holder}): let it finish, stop it, or choose another --out"
                )
            if time.monotonic() > deadline:
                raise UserError(f"workers of a study that was killed are still at work in {out}; stop them first")
            if not is_said:
                say(f"waiting for the workers of a study that was killed to leave {out}")
                is_said = True
            time.sleep(0.2)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield file.fileno()


def _description(study: Study) -> dict[str, str]:
    return {"study": study.name, "scale": study.scale}


def _is_taken_by_us(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise UserError(f"{file.name} cannot be locked ({error.strerror}): choose an --out on another disk") from None
    return True


def _is_alive(process: str) -> bool:
    if not process.isdigit():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is another user's
        pass
    return True
