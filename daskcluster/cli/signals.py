"""What ends a command from outside: Control-C and SIGTERM, at once or after a last commit."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from daskcluster.interrupts import deferred

INTERRUPTED = 130
TERMINATED = 143


class Terminated(SystemExit):
    """SIGTERM came: leave through the same doors as after an error."""

    def __init__(self) -> None:
        super().__init__(TERMINATED)


def listen_for_termination() -> None:
    """Turn SIGTERM into an exception.

    A container is stopped with it: partial outputs are to be removed and worker processes stopped.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminate)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated


@contextmanager
def after_a_commit(*, wanted: bool) -> Iterator[None]:
    """Let signals wait for the end of an iteration, where the fit commits its state, if `wanted`."""
    if not wanted:
        yield
        return
    with deferred({signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}):
        yield


def farewell(error: BaseException) -> str:
    """Return what is said last, of an interrupt or a termination."""
    what = "Terminated" if isinstance(error, Terminated) else "Interrupted"
    notes = getattr(error, "__notes__", [])
    return " ".join([f"{what}; no half-written output was left.", *notes])
