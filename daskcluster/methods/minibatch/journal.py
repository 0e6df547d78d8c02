"""The history of a mini-batch fit: records of a few of its many steps, and its clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np

from daskcluster.events import (
    Callback,
    PassEnded,
    PassProgress,
    PassStarted,
    StepsEnded,
    StopFit,
    publish,
)
from daskcluster.methods.minibatch.chunkwise import MovingCentres, StepOutcome

_GROWTH = 1.1
_PROGRESS_SECONDS = 0.1
_PASS = "mini-batches"


@dataclass(frozen=True)
class JournalState:
    """A journal between two steps.

    Attributes
    ----------
    records : sequence of dict
    seconds : float
        The same as in `Journal`.
    n_rows, n_reassigned : int
        Rows seen so far, and centres reassigned since the last record that was not forced.
    next_step : float
        Step from which on the next record is due.
    recorded_seconds, recorded_rows, recorded_bytes : float and int
        At that record.
    bytes_read : int
    forced : bool
        The last record exists only because the loop ended.
    """

    records: Sequence[dict[str, Any]]
    seconds: float
    n_rows: int
    n_reassigned: int
    next_step: float
    recorded_seconds: float
    recorded_rows: int
    recorded_bytes: int
    bytes_read: int
    forced: bool


class Journal:
    """Records of steps: kept, published to callbacks, and timed without the validation.

    The first steps and the last one have a record each, others when there are a tenth more of them:
    a hundred records cover 100,000 steps.

    Parameters
    ----------
    state : MovingCentres
    n_rows : int
        Number of rows of the dataset.
    callbacks : sequence of callables
        Called with a `StepsEnded` for each record, and with the passes.
    validate : callable (centres) -> float, optional
        Called for each record; its time does not count.
    resumed : JournalState, optional
        State of steps made before.

    Attributes
    ----------
    records : list of dict
    """

    def __init__(
        self,
        state: MovingCentres,
        n_rows: int,
        callbacks: Sequence[Callback] = (),
        validate: Callable[[np.ndarray], float] | None = None,
        resumed: JournalState | None = None,
    ) -> None:
        self._state = state
        self._n_rows = n_rows
        self._callbacks = callbacks
        self._validate = validate
        before = resumed or JournalState((), 0.0, 0, 0, 1.0, 0.0, 0, 0, 0, forced=False)
        # A forced record exists only because the loop ended.
        self.records = list(before.records[:-1] if before.forced else before.records)
        self._seen, self._reassigned, self._next = (
            before.n_rows,
            before.n_reassigned,
            before.next_step,
        )
        self._recorded = before.recorded_seconds, before.recorded_rows, before.recorded_bytes
        self._seconds_before, self._bytes_before = before.seconds, before.bytes_read
        self._forced = False
        self._passes = _PassEvents(n_rows, callbacks, before)

    def __enter__(self) -> Self:
        self._began, self._paused = time.perf_counter(), 0.0
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self._passes.end()

    @property
    def seconds(self) -> float:
        """Time since the loop began, without validation and without interruptions."""
        return self._seconds_before + time.perf_counter() - self._began - self._paused

    def add(self, n_rows: int, n_reassigned: int) -> None:
        """Add one step."""
        self._seen += n_rows
        self._reassigned += n_reassigned
        if self._callbacks:
            self._passes.add(n_rows)

    def due(self, step: int) -> bool:
        """Return True if `step` should have a record."""
        return step >= self._next

    def tell(
        self, step: int, outcome: StepOutcome, smoothed: float | None, bytes_read: int
    ) -> bool:
        """Make a record, which is forced if none is due; return True if a callback asks to stop."""
        seconds, bytes_read = self.seconds, self._bytes_before + bytes_read
        began, seen, read = self._recorded
        n_touched = self._seen - seen
        event = StepsEnded(
            iteration=step,
            seconds=seconds - began,
            bytes_read=bytes_read - read,
            n_touched=n_touched,
            n_distances=n_touched * len(self._state.seen),
            batch_size=self._seen // step,
            inertia=outcome.cost,
            shift=outcome.shift,
            n_empty=int((self._state.seen <= 0.0).sum()),
            n_rows=self._seen,
            smoothed_inertia=smoothed,
            n_reassigned=self._reassigned,
            validation=self._validated(),
        )
        self._forced = not self.due(step)
        if not self._forced:
            self._reassigned = 0
            self._recorded = (seconds, self._seen, bytes_read)
            self._next = max(step + 1, step * _GROWTH)
        self._passes.bytes_read = bytes_read
        self.records.append(vars(event).copy())
        try:
            publish(self._callbacks, event)
        except StopFit:
            return True
        return False

    def state(self, bytes_read: int) -> JournalState:
        """Return the state that another journal can resume from; `bytes_read` as for `tell`."""
        return JournalState(
            self.records,
            self.seconds,
            self._seen,
            self._reassigned,
            self._next,
            *self._recorded,
            self._bytes_before + bytes_read,
            self._forced,
        )

    def _validated(self) -> float | None:
        if self._validate is None:
            return None
        began = time.perf_counter()
        found = self._validate(self._state.centres)
        self._paused += time.perf_counter() - began
        return found


class _PassEvents:
    """Publishes passes to callbacks; batches may span two passes."""

    def __init__(self, n_rows: int, callbacks: Sequence[Callback], before: JournalState) -> None:
        self._n_rows = n_rows
        self._callbacks = callbacks
        self._open = False
        self._done, self._reported = before.n_rows % n_rows, 0
        self._began = self._spoke = 0.0
        self._ended_bytes = self.bytes_read = before.bytes_read

    def add(self, n_rows: int) -> None:
        if not self._open:
            self._begin()
        self._done += n_rows
        now = time.perf_counter()
        if now - self._spoke > _PROGRESS_SECONDS:
            done = min(self._done, self._n_rows)
            publish(self._callbacks, PassProgress(done - self._reported))
            self._reported, self._spoke = done, now
        if self._done >= self._n_rows:
            self.end()
            if self._done:  # the batch holds rows of the next pass
                self._begin()

    def _begin(self) -> None:
        publish(self._callbacks, PassStarted(_PASS, self._n_rows))
        self._open, self._reported = True, 0
        self._began = self._spoke = time.perf_counter()

    def end(self) -> None:
        if not self._open:
            return
        done = min(self._done, self._n_rows)
        if done > self._reported:
            publish(self._callbacks, PassProgress(done - self._reported))
        seconds = time.perf_counter() - self._began
        publish(self._callbacks, PassEnded(_PASS, seconds, self.bytes_read - self._ended_bytes))
        self._ended_bytes = self.bytes_read
        self._done -= min(self._done, self._n_rows)
        self._open = False
