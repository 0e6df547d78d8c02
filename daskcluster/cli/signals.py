"""Control-C and SIGTERM: end a command at once, or after a last commit."""

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
    """SIGTERM came: leave through the same doors as after an error."""

    def __init__(self) -> None:
        super().__init__(TERMINATED)


_ERRORS: Mapping[int, type[BaseException]] = {
    signal.SIGINT: KeyboardInterrupt,
    signal.SIGTERM: Terminated,
}


def listen() -> None:
    """Turn SIGTERM into an exception, and Control-C into a quiet one.

    A container is stopped with SIGTERM: partial outputs are to be removed and worker processes stopped.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    signal.signal(signal.SIGTERM, _hear)
    # What a shell has put into the background is deaf to Control-C, and stays so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _hear)


def _hear(number: int, frame: FrameType | None) -> None:
    raise _error_of(number)


def _error_of(number: int) -> BaseException:
    leave_quietly()
    return _ERRORS[number]()


def leave_quietly() -> None:
    """Silence what is half made, and complains when it is freed: an interrupt may meet any constructor."""
    sys.unraisablehook = _come_again
    warnings.simplefilter("ignore")


def _come_again(lost: sys.UnraisableHookArgs) -> None:
    # Raised in a finalizer, where Python cannot deliver it: try again in a moment.
    main = threading.main_thread().ident
    for number in (one for one, error in _ERRORS.items() if lost.exc_type is error):
        again = threading.Timer(_MOMENT_SECONDS, signal.pthread_kill, [main, number])
        again.daemon = True
        again.start()


@contextmanager
def after_a_commit(*, wanted: bool) -> Iterator[None]:
    """Let signals wait for the end of an iteration, where the fit commits its state, if `wanted`."""
    if not wanted:
        yield
        return
    with deferred({signal.Signals(one): partial(_error_of, one) for one in _ERRORS}):
        yield


def farewell(error: BaseException) -> str:
    """Return what is said last, of an interrupt or a termination."""
    what = "Terminated" if isinstance(error, Terminated) else "Interrupted"
    notes = getattr(error, "__notes__", [])
    return " ".join([f"{what}; no half-written output was left.", *notes])
