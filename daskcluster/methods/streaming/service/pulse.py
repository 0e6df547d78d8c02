"""Whether the loop of a stream still gets on, for those who would start it again if it did not."""

from __future__ import annotations

import time
from collections.abc import Callable

from daskcluster.events import Event


class Pulse:
    """A callback to which every event is a sign of work.

    A fold may take long, but it tells of its pieces; a loop that rests tells nothing until its next look.

    Parameters
    ----------
    patience : float
        Seconds without a sign after which the loop is stuck.
    rest : float
        Seconds between two looks, in which no sign is due.
    clock : callable () -> float
        Seconds.

    Examples
    --------
    >>> seconds = iter([0.0, 40.0, 90.0, 200.0])
    >>> pulse = Pulse(60, rest=30, clock=lambda: next(seconds))
    >>> pulse(Event())
    >>> pulse.complaint() is None
    True
    >>> pulse.complaint()
    'no sign of work for 160 s; 90 s are allowed'
    """

    def __init__(
        self, patience: float, rest: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._allowed = patience + rest
        self._clock = clock
        self._last = clock()

    def __call__(self, event: Event) -> None:
        self._last = self._clock()

    def complaint(self) -> str | None:
        """Return what is wrong; None of a loop that gets on."""
        silence = self._clock() - self._last
        if silence <= self._allowed:
            return None
        return f"no sign of work for {silence:.0f} s; {self._allowed:.0f} s are allowed"
