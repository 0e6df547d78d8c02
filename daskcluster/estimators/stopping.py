"""Stopping rules of loops: convergence, iterations, time, or a callback."""

from __future__ import annotations

import time
from collections.abc import Sequence

from daskcluster.events import Callback, Event, StopFit, StopReason, publish


class Stopping:
    """The stopping rules of one fit.

    Parameters
    ----------
    max_iter : int
    max_time : float or None
        Seconds; the iteration that exceeds this is the last.
    callbacks : sequence of callables
    """

    def __init__(
        self, max_iter: int, max_time: float | None = None, callbacks: Sequence[Callback] = ()
    ) -> None:
        self._max_iter = max_iter
        self._deadline = None if max_time is None else time.monotonic() + max_time
        self._callbacks = callbacks
        self._asked = False

    def tell(self, event: Event) -> None:
        """Publish `event`; a callback may raise `StopFit`."""
        try:
            publish(self._callbacks, event)
        except StopFit:
            self._asked = True

    def reason(
        self, n_iter: int, *, moved: bool, shift: float, threshold: float
    ) -> StopReason | None:
        """Return the reason to stop after `n_iter` iterations, or None to continue."""
        if not moved:
            return StopReason.CONVERGED
        if shift <= threshold:
            return StopReason.TOLERANCE
        if self._asked:
            return StopReason.CALLBACK
        if n_iter >= self._max_iter:
            return StopReason.MAX_ITER
        if self._deadline is not None and time.monotonic() >= self._deadline:
            return StopReason.MAX_TIME
        return None


def is_final(
    reason: StopReason, n_iter: int, max_iter: int, time_left: float | None = None
) -> bool:
    """Return True if a loop that ended would also end at once under the limits of the resuming call.

    Parameters
    ----------
    reason : StopReason
        The reason for which it ended.
    n_iter : int
        Iterations made.
    max_iter : int
    time_left : float or None
        Seconds that are left; None if there is no limit.

    Examples
    --------
    >>> is_final(StopReason.MAX_ITER, 10, 10), is_final(StopReason.MAX_ITER, 10, 20)
    (True, False)
    """
    if reason is StopReason.MAX_ITER:
        return n_iter >= max_iter
    if reason is StopReason.MAX_TIME:
        return time_left == 0.0
    return reason is not StopReason.CALLBACK
