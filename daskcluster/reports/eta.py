"""How long a fit may still take, from its events."""

from __future__ import annotations

from collections import deque

from daskcluster.events import Event, FitStarted, IterationEnded

_REMEMBERED = 5


class Remaining:
    """An upper bound of the time to the end: iterations left times what the last ones took.

    A fit that converges ends earlier; nobody knows when, so nothing is promised.

    Examples
    --------
    >>> remaining = Remaining()
    >>> remaining(FitStarted("lloyd", 10, 2, 3, max_iter=11, engine="local"))
    >>> remaining(IterationEnded(1, inertia=1.0, shift=1.0, seconds=2.0))
    >>> remaining.at_most
    22.0
    """

    def __init__(self) -> None:
        self._max_iter = 0
        self._iteration = 0
        self._seconds: deque[float] = deque(maxlen=_REMEMBERED)

    def __call__(self, event: Event) -> None:
        if isinstance(event, FitStarted):
            self._max_iter, self._iteration = event.max_iter, 0
            self._seconds.clear()
        elif isinstance(event, IterationEnded):
            self._iteration = event.iteration
            self._seconds.append(event.seconds)

    @property
    def at_most(self) -> float | None:
        """Seconds left at most, the final pass included; None before the first iteration."""
        if not self._seconds:
            return None
        mean = sum(self._seconds) / len(self._seconds)
        return mean * (max(0, self._max_iter - self._iteration) + 1)
