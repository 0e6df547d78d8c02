"""What a pass takes along to the workers, and how its totals come back."""

from __future__ import annotations

import copy
import pickle
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from functools import cached_property
from typing import TYPE_CHECKING, Any

from daskcluster.engine.connect import KilledWorker, dumps
from daskcluster.engine.crew import Crew
from daskcluster.engine.dispatch import Batch, Dispatch, LostError, Port
from daskcluster.engine.ground import Ground, scattered
from daskcluster.engine.held import Holdings
from daskcluster.engine.homes import Lane, Tails
from daskcluster.engine.operations import Fold, FoldState, Operation
from daskcluster.engine.wire import FAN_IN, is_heavy, is_inline, through_driver
from daskcluster.engine.worker import Errand, Outcome, work
from daskcluster.errors import EngineError

if TYPE_CHECKING:
    from distributed import Client, Future

_RETRIES = 2
_PATIENCE_SECONDS = 5.0
_TREE_ATTEMPTS = 4


class Flight:
    """One pass over a ground.

    Parameters
    ----------
    client : Client
    crew : Crew
    ground : Ground
    holdings : Holdings or None
    errand : Errand
    n_threads : mapping of worker address to number of threads
    on_rows : callable (int) -> None
        Hears the rows of every finished task.
    on_value : callable (value) -> None, optional
        Takes the value of every task, in place of combining them.

    Attributes
    ----------
    bytes_read : int
    speeds : dict of lane to (rows, seconds)
        Of the first task of every lane.
    """

    def __init__(
        self,
        client: Client,
        crew: Crew,
        ground: Ground,
        holdings: Holdings | None,
        errand: Errand,
        *,
        n_threads: Mapping[str, int],
        on_rows: Callable[[int], None],
        on_value: Callable[[Any], None] | None = None,
    ) -> None:
        self._client = client
        self._crew = crew
        self._ground = ground
        self._holdings = holdings
        self._errand = errand
        self._n_threads = n_threads
        self._on_rows = on_rows
        self._on_value = on_value
        self._name = ground.name, uuid.uuid4().hex
        self._packed = b""
        self._cargo: bytes | Future = b""
        self._totals: list[Any] = []
        self._kept: list[Future] | None = None
        self._there = set(n_threads)
        self._met = set(n_threads)
        self._orphans: set[str] = set()
        self.bytes_read = 0
        self.speeds: dict[Lane, tuple[int, float]] = {}

    @property
    def _operation(self) -> Operation:
        return self._errand.operation

    @cached_property
    def _returned(self) -> int:
        """The bytes of a task's totals, where these are folded."""
        if not isinstance(self._operation, Fold | FoldState):
            return 0
        return size_of(self._operation.begin(self._operation.prepare(self._errand.params)))

    def bytes_of_a_task(self, n_tasks: int) -> int:
        """Return what each of some tasks takes along and brings back through the driver."""
        self._packed = dumps(self._errand)
        return through_driver(len(self._packed), self._returned, n_tasks)

    def run(self, tails: Tails) -> Any:
        """Send the tasks out and return their combined value."""
        self._load(tails.n_tasks)
        if is_heavy(self._returned, tails.n_tasks):
            return self._run_tree(tails)
        self._run(tails)
        return self._totals[0] if self._totals else None

    def _run(self, tails: Tails) -> None:
        port = Port(
            send=self._send,
            fetch=self._fetch if self._kept is None else self._fetch_light,
            locate=self._locate,
            idle=self._stranded,
            deaths=self._deaths,
            renew=self._renew,
            cancel=self._cancel,
            killed=KilledWorker,
        )
        Dispatch(port, tails, self._ground.spans, self._land).run()

    # -- who is there -------------------------------------------------------------------------

    def _locate(self, lane: Lane) -> Lane:
        if lane.worker in self._there or not self._there:
            return lane
        others = sorted(self._there)
        return Lane(others[hash(lane) % len(others)], lane.slot)

    def _see(self, workers: Iterable[str]) -> None:
        self._there = set(workers)
        self._met |= self._there

    def _stranded(self, flying: Mapping[str, Batch]) -> Collection[str]:
        """Return the tasks that wait for a worker that has gone.

        Dask sends tasks of a lost worker elsewhere, unless there is nobody at that moment: then it
        waits for the lost worker itself, even if others come.
        """
        self._see(self._crew.present())
        orphans = {key for key, batch in flying.items() if batch.lane.worker not in self._there}
        if orphans and self._there:
            orphans -= {key for keys in self._client.processing().values() for key in keys}
            stranded = orphans & self._orphans
        else:
            stranded = set()
        self._orphans = orphans
        return stranded

    def _deaths(self, key: str) -> int:
        """Count the workers that ended while they had a task, but for those that were retired."""
        return sum(self._had(worker, key) for worker in self._met - self._there)

    def _had(self, gone: str, key: str) -> bool:
        ends = [event for _, event in self._client.get_events(gone) if isinstance(event, dict)]
        return any(
            key in end.get("processing-tasks", ()) and not end.get("expected")
            for end in ends
            if end.get("action") == "remove-worker"
        )

    # -- out ---------------------------------------------------------------------------------------

    def _load(self, n_tasks: int) -> None:
        packed, self._packed = self._packed or dumps(self._errand), b""
        if is_inline(len(packed), n_tasks):
            self._cargo = packed
        else:
            self._cargo = scattered(self._client, packed)

    def _renew(self) -> None:
        self._see(self._crew.refresh())
        if not isinstance(self._cargo, bytes) and self._cargo.status != "finished":
            self._load(len(self._ground.spans))
        self._ground.renew(self._there)

    def _send(self, batch: Batch) -> Future:
        worker, indices = batch.lane.worker, batch.indices
        empty = [None] * len(indices)
        rows_held, state_held = (
            (empty, empty) if self._holdings is None else self._holdings.on(worker, indices)
        )
        return self._client.submit(
            work,
            self._name,
            self._cargo,
            [self._ground.spans[index] for index in indices],
            rows_held,
            state_held,
            self._ground.rows(indices),
            self._n_threads.get(worker, 1),
            key=f"daskcluster-pass-{uuid.uuid4().hex}",
            workers=[worker],
            allow_other_workers=True,
            retries=_RETRIES,
            pure=False,
        )

    def _cancel(self, futures: Sequence[Future]) -> None:
        if self._client.status == "running":
            self._client.cancel(list(futures), force=True)

    # -- back --------------------------------------------------------------------------------------

    def _fetch(self, future: Future) -> Outcome:
        return self._wait(future, [future])

    def _fetch_light(self, future: Future) -> Outcome:
        return self._wait(self._client.submit(_without_value, future, pure=False), [future])

    def _wait(self, future: Future, sources: Sequence[Future]) -> Outcome:
        """Return what is made of finished tasks, as long as they are still there."""
        patience = _PATIENCE_SECONDS
        while True:
            try:
                outcome: Outcome = future.result(timeout=patience)
                return outcome
            except CancelledError as error:
                raise LostError from error
            except TimeoutError as error:
                self._crew.present()
                if any(source.status != "finished" for source in sources):
                    raise LostError from error
                # Each attempt starts the transfer anew: a slow line needs a longer one.
                patience *= 2

    def _land(self, batch: Batch, outcome: Outcome, future: Future) -> None:
        self.bytes_read += outcome.bytes_read
        # How fast rows are left out says nothing about the lane.
        if batch.is_head and not outcome.skipped:
            self.speeds[batch.lane] = (outcome.rows, outcome.seconds)
        if self._kept is not None:
            self._kept.append(future)
        elif self._on_value is not None:
            self._on_value(outcome.value)
        else:
            self._add(outcome.value)
        self._on_rows(outcome.rows)

    def _add(self, value: Any) -> None:
        self._totals = [self._operation.combine(self._totals[0], value) if self._totals else value]

    # -- totals too large for the driver -----------------------------------------------------------

    def _run_tree(self, tails: Tails) -> Any:
        for _ in range(_TREE_ATTEMPTS):
            self._kept = []
            self._run(tails.again())
            try:
                return self._wait(self._reduced(self._kept), self._kept).value
            except LostError:
                self._renew()
        raise EngineError(
            f"the totals of a pass were lost {_TREE_ATTEMPTS} times, because workers left; start workers "
            "that stay."
        )

    def _reduced(self, futures: list[Future]) -> Future:
        """Combine outcomes worker to worker until one is left."""
        while len(futures) > 1:
            groups = [futures[i : i + FAN_IN] for i in range(0, len(futures), FAN_IN)]
            futures = [
                self._client.submit(_merged, self._operation, group, pure=False, retries=_RETRIES)
                for group in groups
            ]
        return futures[0]


def _without_value(outcome: Outcome) -> Outcome:
    light = copy.copy(outcome)
    light.value = None
    return light


def _merged(operation: Operation, outcomes: Sequence[Outcome]) -> Outcome:
    # The first is copied: `combine` may reuse it, and a merge that is repeated needs it as it was.
    total = copy.deepcopy(outcomes[0].value)
    for outcome in outcomes[1:]:
        total = operation.combine(total, outcome.value)
    return Outcome(value=total)


def size_of(value: Any) -> int:
    """Return the bytes of a value on the wire, without copying its arrays."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return len(head) + sum(buffer.raw().nbytes for buffer in buffers)
