"""Stopping a run between two steps."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass
class Stop:
    """Whether a run was asked to stop, and by which signal."""

    name: str = ""

    @property
    def asked(self) -> bool:
        return bool(self.name)


@contextmanager
def stop_on_signal() -> Iterator[Stop]:
    """SIGINT and SIGTERM ask the loop to stop after the step that it is in; a second one stops at once."""
    stop = Stop()
    before: dict[signal.Signals, Any] = {}

    def ask(number: int, frame: Any) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.name = signal.Signals(number).name

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, ask)
    except ValueError:
        pass  # only the main thread may listen for signals
    try:
        yield stop
    finally:
        for number in before:
            signal.signal(number, before[number])
