"""Where the time of a study goes: wall clock by phase, over all the times that it was started."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lformer.train.files import write_json

SECONDS_BETWEEN_WRITES = 5.0  # of which a study that is killed loses as many at most
BEFORE_TOKENS = "prepare"


class Clock:
    """Seconds by phase, in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def spent(self) -> dict[str, float]:
        """Seconds by phase, in the order in which they came first."""
        found: dict[str, float] = json.loads(self.path.read_text(encoding="utf-8")) if self.path.is_file() else {}
        return found

    def from_tokens(self) -> float:
        """Seconds of everything that follows when the tokens are prepared."""
        return sum(seconds for phase, seconds in self.spent().items() if phase != BEFORE_TOKENS)

    @contextmanager
    def phase(self, name: str, *, starts_over: bool = False) -> Iterator[None]:
        """Count what is done here. What starts over every time counts once: the last time."""
        before = 0.0 if starts_over else self.spent().get(name, 0.0)
        started = time.perf_counter()
        ended = threading.Event()

        def write() -> None:
            write_json(self.path, {**self.spent(), name: before + time.perf_counter() - started})

        def write_often() -> None:
            while not ended.wait(SECONDS_BETWEEN_WRITES):
                write()

        writer = threading.Thread(target=write_often, daemon=True)
        writer.start()
        try:
            yield
        finally:
            ended.set()
            writer.join()
            write()
