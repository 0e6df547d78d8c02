"""Loops of fits: steps until one of them is the last, with records, events, limits and commits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from daskcluster.chunkwise.assign import ScoreStatistics
from daskcluster.engine.scaled import ScaledPlacement, score_rows
from daskcluster.events import Callback, IterationEnded, StopFit, StopReason, publish


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


@dataclass
class Clock:
    """Counts the seconds of some work, after those before an interruption and without pauses."""

    before: float = 0.0

    def __post_init__(self) -> None:
        self._began = time.perf_counter() - self.before

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count the time that the block takes."""
        began = time.perf_counter()
        yield
        self._began += time.perf_counter() - began


@dataclass(frozen=True)
class Limits:
    """The limits of a loop, and the callbacks that hear of its steps.

    Attributes
    ----------
    max_iter : int
        Steps at most, earlier ones included; with 0 there is none.
    max_time : float or None
        Seconds; the step that exceeds this is the last.
    callbacks : sequence of callables, default ()
    clock : Clock
        Counts the seconds: by default from now on.
    """

    max_iter: int = 300
    max_time: float | None = None
    callbacks: Sequence[Callback] = ()
    clock: Clock = field(default_factory=Clock)

    @property
    def time_left(self) -> float | None:
        """Seconds that are left of `max_time`; None if there is no limit."""
        return None if self.max_time is None else max(0.0, self.max_time - self.clock.seconds)


NO_LIMITS = Limits()


@dataclass
class Stepped(Generic[S]):
    """A step that was made.

    Attributes
    ----------
    state : S
        What follows from it; `run_loop` adds its record, and why it was the last one.
    facts : dict
        Fields of its event. Number, time and bytes are added unless they are there.
    weight : float
        Weight of the rows that the inertia is the sum of.
    moved : bool
        False: nothing changed, so that the loop has converged.
    shift, threshold : float
        The loop ends if `shift` is at most `threshold`.
    reason : StopReason or None
        Why the algorithm ends here, if it does.
    unrecorded : sequence of str
        Fields of the event that are not in its record.
    """

    state: S
    facts: dict[str, Any] = field(default_factory=dict)
    weight: float = 0.0
    moved: bool = True
    shift: float = math.inf
    threshold: float = 0.0
    reason: StopReason | None = None
    unrecorded: Sequence[str] = ()


def run_loop(
    step: Callable[[S], Stepped[S]],
    state: S,
    event: Callable[..., IterationEnded],
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
    n_iter = history[-1]["iteration"] if history else 0
    if state.reason and is_final(state.reason, n_iter, limits.max_iter, limits.time_left):
        return state
    at_limit = StopReason.MAX_ITER if limits.max_iter <= n_iter else None
    state = replace(state, history=history, reason=at_limit)
    while state.reason is None:
        began, read = time.perf_counter(), bytes_read()
        made = step(state)
        facts = {
            "iteration": len(history) + 1,
            "seconds": time.perf_counter() - began,
            "bytes_read": bytes_read() - read,
            **made.facts,
        }
        if made.weight > 0.0:
            facts["mean_squared_distance"] = facts["inertia"] / made.weight
        if validate is not None:
            with limits.clock.paused():
                facts["validation"] = validate(made.state)
        record = event(**facts)
        shown = vars(record).items()
        history.append({name: value for name, value in shown if name not in made.unrecorded})
        asked = False
        try:
            publish(limits.callbacks, record)
        except StopFit:
            asked = True
        reason = made.reason or _reason(made, record.iteration, limits, asked)
        state = replace(made.state, history=history, reason=reason)
        if keep is not None:
            keep(state)
    return state


def _reason(made: Stepped[Any], n_iter: int, limits: Limits, asked: bool) -> StopReason | None:
    """Return why a loop ends after a step, or None if it continues."""
    if not made.moved:
        return StopReason.CONVERGED
    if made.shift <= made.threshold:
        return StopReason.TOLERANCE
    if asked:
        return StopReason.CALLBACK
    if n_iter >= limits.max_iter:
        return StopReason.MAX_ITER
    return StopReason.MAX_TIME if limits.time_left == 0.0 else None


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


def mean_distance(rows: ScaledPlacement, centres: np.ndarray) -> float:
    """Return the mean squared distance of rows to their nearest centres. One pass."""
    return mean_cost(score_rows(rows, np.ascontiguousarray(centres, rows.dtype)), rows)


def mean_cost(found: ScoreStatistics, rows: ScaledPlacement) -> float:
    """Return the inertia of rows over their weight."""
    weighted = rows.placement.dataset.weights is not None
    weight = float(found.weights.sum()) if weighted else float(found.sizes.sum())
    return found.inertia / weight
