"""Loops of fits: steps until one of them is the last, with records, events, limits and commits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

from daskcluster.events import Callback, Event, StopFit, StopReason, publish


class LoopState(Protocol):
    """State of a loop between two steps: a dataclass with fields of its own, and these.

    Attributes
    ----------
    history : sequence of dict
        A record per step.
    reason : StopReason or None
        Why the last step was the last one, if it was.
    """

    @property
    def history(self) -> Sequence[dict[str, Any]]: ...
    @property
    def reason(self) -> StopReason | None: ...


S = TypeVar("S", bound=Any)


@dataclass(frozen=True)
class Limits:
    """Where a loop ends in any case, and who hears of its steps.

    Attributes
    ----------
    max_iter : int
        Steps at most, earlier ones included; with 0 there is none.
    max_time : float or None
        Seconds; the step that exceeds this is the last.
    callbacks : sequence of callables
    """

    max_iter: int = 300
    max_time: float | None = None
    callbacks: Sequence[Callback] = ()


NO_LIMITS = Limits()


@dataclass
class Stepped(Generic[S]):
    """A step that was made.

    Attributes
    ----------
    state : S
        What follows from it; `run_loop` adds its record, and why it was the last one.
    facts : dict
        Fields of its event, without its number, time and bytes.
    moved : bool
        False: nothing changed, so that the loop has converged.
    shift, threshold : float
        The loop ends if `shift` is at most `threshold`.
    reason : StopReason or None
        Why the algorithm ends here, if it does.
    """

    state: S
    facts: dict[str, Any] = field(default_factory=dict)
    moved: bool = True
    shift: float = math.inf
    threshold: float = 0.0
    reason: StopReason | None = None


def run_loop(
    step: Callable[[S], Stepped[S]],
    state: S,
    event: Callable[..., Event],
    limits: Limits,
    *,
    keep: Callable[[S], None] | None = None,
    bytes_read: Callable[[], int] = lambda: 0,
    validate: Callable[[S], float] | None = None,
) -> S:
    """Make steps until one of them is the last; return the state after it.

    Parameters
    ----------
    step : callable (state) -> Stepped
    state : LoopState
        Where to start, or the end of an earlier loop, which continues if `limits` let it.
    event : callable
        Class of the event of a step.
    limits : Limits
    keep : callable (state) -> None, optional
        Called with the state after each step.
    bytes_read : callable () -> int
        Bytes that steps have read so far.
    validate : callable (state) -> float, optional
        Evaluates the state after a step; its time does not count.
    """
    history = list(state.history)
    if state.reason and is_final(state.reason, len(history), limits.max_iter, limits.max_time):
        return state
    stopping = Stopping(limits.max_iter, limits.max_time, limits.callbacks)
    at_limit = StopReason.MAX_ITER if limits.max_iter <= len(history) else None
    state = replace(state, history=history, reason=at_limit)
    while state.reason is None:
        began, read = time.perf_counter(), bytes_read()
        made = step(state)
        made.facts |= {"seconds": time.perf_counter() - began, "bytes_read": bytes_read() - read}
        if validate is not None:
            made.facts["validation"] = validate(made.state)
        record = event(iteration=len(history) + 1, **made.facts)
        history.append(vars(record).copy())
        stopping.tell(record)
        reason = made.reason or stopping.reason(
            len(history), moved=made.moved, shift=made.shift, threshold=made.threshold
        )
        state = replace(made.state, history=history, reason=reason)
        if keep is not None:
            keep(state)
    return state


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
