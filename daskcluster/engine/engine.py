"""What an engine is: the place where passes over a dataset run.

An engine knows no algorithm. It *places* a dataset (admits partitions to memory, assigns homes to
them, counts passes and bytes) and maps reductions over the placement.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.reduction import Reduction, StatefulReduction
from daskcluster.engine.legs import Leg, Legs, legs_together
from daskcluster.engine.memory import Footprint
from daskcluster.events import Callback, PassEnded, PassProgress, PassStarted, publish
from daskcluster.typing import ChangeGuard, Dataset, Range, Reachable, Sink

T = TypeVar("T")

AHEAD = 4
"""Calls of `Engine.run_ahead` on their way for each thread: none waits for the driver, results stay few."""


@dataclass
class Traffic:
    """Passes over the data and decoded bytes fetched from the store."""

    passes: int = 0
    bytes_read: int = 0


class Placement(ABC):
    """A dataset made ready on an engine, for the length of one fit or predict.

    Use as a context manager: leaving it frees resident partitions and state, and raises `InvalidDataError`
    if stored rows were changed meanwhile, since results would mix two versions of them.

    Attributes
    ----------
    dataset : Dataset
    traffic : Traffic
        Counted over the placement's life.
    callbacks : sequence of callables
        Hear `PassStarted`, `PassProgress` and `PassEnded`, in the driver's thread.
    """

    dataset: Dataset
    traffic: Traffic
    callbacks: Sequence[Callback]
    shares_memory: bool = False
    _witness: ChangeGuard | None = None
    """Tasks see this process's arrays, so a chunkwise function may write into one."""

    @abstractmethod
    def reduce(self, reduction: Reduction, params: Any) -> Any:
        """Map `reduction` over all rows and return the combined statistics. One pass."""

    def reduce_in_legs(self, reduction: Reduction, params: Any, legs: Legs) -> Any:
        """Like `reduce`, in legs that `legs` hears of, and from where an earlier call was. One pass.

        Rows in memory are one leg: there is little to lose.
        """
        began, bytes_before = time.perf_counter(), self.traffic.bytes_read
        n_units = len(self.units)
        leg = legs.begin(n_units, n_units if self.dataset.in_memory else self.n_threads)
        publish(self.callbacks, PassStarted(reduction.name, self.dataset.n_rows))
        if leg.done:
            publish(self.callbacks, PassProgress(self._rows_before(leg)))
        step = 1
        while not leg.is_last:
            started = time.perf_counter()
            found = self.reduce_units(reduction, params, leg.units(step))
            total = found if leg.total is None else reduction.combine(leg.total, found)
            leg = leg.after(step, total)
            legs.ended(leg)
            step = legs_together(step, time.perf_counter() - started)
        self.traffic.passes += 1
        bytes_read = self.traffic.bytes_read - bytes_before
        seconds = time.perf_counter() - began
        publish(self.callbacks, PassEnded(reduction.name, seconds, bytes_read))
        return leg.total

    def _rows_before(self, leg: Leg) -> int:
        done = set(replace(leg, done=0).units(leg.done))
        return sum(stop - start for unit, (start, stop) in enumerate(self.units) if unit in done)

    @abstractmethod
    def reduce_units(self, reduction: Reduction, params: Any, units: Sequence[int]) -> Any:
        """Reduce some of the `units` alone, at least one, as a part of a pass that the caller counts."""

    @property
    @abstractmethod
    def n_threads(self) -> int:
        """Threads that compute at the same time, over all workers."""

    @abstractmethod
    def map_state(self, reduction: StatefulReduction, params: Any) -> Any:
        """Like `reduce`, with per-row state that stays where it is between calls.

        State belongs to the placement and to ``reduction.name``; a placement holds that of one
        reduction at a time. Each call stamps the state of every unit with the number of the call, as
        the last chunk of the unit that was wanted is done. State that does not carry the stamp of the
        call before (never made, lost, or left half-way by a task that died) is made anew: `fresh`,
        then `rebuild` from `params`, on the whole unit. The result is the same either way.

        Rows of units that are not in memory are read only where ``reduction.screen`` wants them, in
        whole storage chunks (`Dataset.read_edges`): ``traffic.bytes_read`` counts those alone, and
        progress counts the others as done. Passes of other verbs may come in between.
        """

    @abstractmethod
    def state_of(
        self,
        reduction: StatefulReduction,
        params: Any,
        row: int,
        fn: Callable[[Chunk, Any, Any], T],
    ) -> T:
        """Return ``fn(chunk, prepared, state)`` for the work unit that holds `row`.

        `params` are those of a next `map_state` call: where the state is missing it is rebuilt.
        """

    @abstractmethod
    def state_room(self) -> int:
        """Return how many bytes of per-row state the placement can hold.

        Half of the memory limit less what the libraries take, and what other runs hold on the workers;
        or less, if a large working set leaves no half. Resident rows give way to state. More can be
        asked for: a cluster keeps what fits and makes the rest anew in every call, local threads keep
        all of it.
        """

    @abstractmethod
    def drop_state(self, name: str) -> None:
        """Free the state of the reduction of that name; a later call of it starts anew."""

    @property
    @abstractmethod
    def units(self) -> Sequence[Range]:
        """Ranges of rows in which state is kept; they cover the dataset in order."""

    def unit_of(self, row: int) -> int:
        """Return the number of the work unit that holds `row`."""
        starts = [start for start, _ in self.units]
        return int(np.searchsorted(starts, row, side="right")) - 1

    @abstractmethod
    def map_rows(
        self,
        fn: Callable[[Chunk, Any], np.ndarray],
        sink: Sink,
        params: Any,
        *,
        prepare: Callable[[Any], Any] | None = None,
        name: str = "rows",
    ) -> None:
        """Write ``fn(chunk, prepared)`` (first axis: the chunk's rows) to `sink`. One pass.

        Units whose rows the sink has already are left out.
        """

    @abstractmethod
    def take(self, rows: np.ndarray) -> np.ndarray:
        """Return the given rows, source dtype, shape (len(rows), d)."""

    def shared_folder(self) -> str | None:
        """Return a folder on disk where all tasks can read what others wrote, for what may be lost.

        None where nothing is lost (threads of this process), or where workers share no disk that we know
        of. Removed with the placement.
        """
        return None

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        self._witness = self.dataset.change_guard()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        # Rows that changed may also be why a read failed, or why rows do not fit what was known of them.
        if self._witness is not None and (kind is None or issubclass(kind, (ValueError, OSError))):
            self._witness.check()


class Engine(ABC):
    """Runs passes: on local threads, or on a Dask cluster."""

    name: str

    @property
    @abstractmethod
    def n_threads(self) -> int:
        """Threads that compute at the same time, over all workers."""

    @abstractmethod
    def place(
        self,
        dataset: Dataset,
        *,
        footprint: Footprint | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> Placement:
        """Make `dataset` ready for passes.

        Parameters
        ----------
        dataset : Dataset
        footprint : Footprint, optional
            What the work will need per thread and per row, for the memory projection.
        callbacks : sequence of callables
            Hear the progress of passes.

        Raises
        ------
        MemoryLimitError
            Even without resident partitions the work does not fit the engine's memory limit.
        ReachError
            The workers cannot read the dataset.
        """

    @abstractmethod
    def run(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        """Run independent picklable calls (restarts, sweeps) and return their results in order.

        As many at a time as there are threads: a call computes on one.
        """

    def listeners(self) -> tuple[Callback, ...]:
        """Return who hears of one fit on this engine, beside those that the caller names."""
        return ()

    def named(self, name: str) -> Engine:
        """Return this engine for a job of that name, under which its listeners know it."""
        return self

    @abstractmethod
    def run_ahead(self, tasks: Sequence[Callable[[], T]]) -> Generator[T]:
        """Yield the results of calls such as `run` takes, in order, with some calls running ahead.

        What the caller does with one result overlaps with the calls that follow, of which at most
        `AHEAD` for each thread are begun or done but not taken yet. Leaving the iterator early
        (``close``) drops the calls that have not started.
        """

    @abstractmethod
    def can_read(self, dataset: Reachable) -> bool:
        """Return True if calls that `run` is given can open `dataset` (or whatever else it is)."""
