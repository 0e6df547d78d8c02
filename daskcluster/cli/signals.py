"""Control-C and SIGTERM: end a command at once, or after a final checkpoint."""

from __future__ import annotations

import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import FrameType

from daskcluster.interrupts import deferred

INTERRUPTED = 130
TERMINATED = 143


_MOMENT_SECONDS = 0.05


class Terminated(SystemExit):
    """SIGTERM was received: exit with the same clean-up as after an error."""

    def __init__(self) -> None:
        super().__init__(TERMINATED)


_ERRORS: Mapping[int, type[BaseException]] = {
    signal.SIGINT: KeyboardInterrupt,
    signal.SIGTERM: Terminated,
}


def listen() -> None:
    """Turn SIGTERM into an exception, and Control-C into a quiet one.

    Containers are stopped with SIGTERM; partial outputs must be removed and worker processes stopped.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    signal.signal(signal.SIGTERM, _hear)
    # A shell makes background processes ignore Control-C; leave that as it is.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _hear)


def _hear(number: int, frame: FrameType | None) -> None:
    raise _error_of(number)


def _error_of(number: int) -> BaseException:
    leave_quietly()
    return _ERRORS[number]()


def leave_quietly() -> None:
    """Silence errors of half-constructed objects when they are freed after an interrupt."""
    sys.unraisablehook = _come_again
    warnings.simplefilter("ignore")


def _come_again(lost: sys.UnraisableHookArgs) -> None:
    # It was raised in a finalizer, where Python cannot propagate it: raise it again in a moment.
    main = threading.main_thread().ident
    for number in (one for one, error in _ERRORS.items() if lost.exc_type is error):
        again = threading.Timer(_MOMENT_SECONDS, signal.pthread_kill, [main, number])
        again.daemon = True
        again.start()


@contextmanager
def after_a_commit(*, wanted: bool) -> Iterator[None]:
    """If `wanted`, defer signals to the end of an iteration, where the fit commits its state."""
    if not wanted:
        yield
        return
    with deferred({signal.Signals(one): partial(_error_of, one) for one in _ERRORS}):
        yield


def farewell(error: BaseException) -> str:
    """Return the last message after an interrupt or a termination."""
    what = "Terminated" if isinstance(error, Terminated) else "Interrupted"
    notes = getattr(error, "__notes__", [])
    return " ".join([f"{what}; no half-written output was left.", *notes])
