"""Interrupts that wait, for a limited time, until work in progress is safe.

A signal in the middle of an iteration finds a state that is neither that before nor that after it. So
while a fit keeps checkpoints, the first signal is only noted; the fit asks at the end of each iteration,
commits, and leaves. A second signal, or a time, ends the wait.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

GRACE_SECONDS = 5.0
"""Seconds that a fit may take to finish its iteration."""

_noted: list[BaseException] = []


@contextmanager
def deferred(
    errors: Mapping[signal.Signals, Callable[[], BaseException]], seconds: float = GRACE_SECONDS
) -> Iterator[None]:
    """Let signals wait for `deliver` within the block, at most for some time.

    Parameters
    ----------
    errors : mapping of signal to callable () -> exception
        What makes that which is raised in the main thread, for each signal.
    seconds : float

    Notes
    -----
    Outside the main thread, which alone hears signals, nothing changes.

    Examples
    --------
    >>> with deferred({signal.SIGTERM: InterruptedError}):
    ...     signal.raise_signal(signal.SIGTERM)
    ...     pending()
    True
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    timers: list[threading.Timer] = []
    main = threading.get_ident()

    def hear(number: int, frame: FrameType | None) -> None:
        error = errors[signal.Signals(number)]()
        if _noted:
            raise error
        _noted.append(error)
        # Send a second signal if the first is not handled in time; to the main thread, which may sleep.
        timers.append(threading.Timer(seconds, signal.pthread_kill, [main, number]))
        timers[-1].daemon = True
        timers[-1].start()

    before = {number: signal.signal(number, hear) for number in errors}
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
        _noted.clear()
        for number, handler in before.items():
            signal.signal(number, handler)


def pending() -> bool:
    """Return True if a signal is pending; False outside the main thread, which alone gets them."""
    return bool(_noted) and threading.current_thread() is threading.main_thread()


def deliver() -> None:
    """Raise what waits, if anything does."""
    if pending():
        raise _noted[0]
