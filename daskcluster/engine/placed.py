"""A dataset on the workers of a cluster: the verbs, pass by pass."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.reduction import Reduction, StatefulReduction
from daskcluster.engine.connect import Client
from daskcluster.engine.crew import Crew, Member
from daskcluster.engine.engine import Placement, Traffic
from daskcluster.engine.flight import Flight
from daskcluster.engine.ground import Ground
from daskcluster.engine.held import Holdings, held_bytes
from daskcluster.engine.homes import MOST_TAIL_TASKS, Homes, Tails
from daskcluster.engine.memory import BASELINE_BYTES, RESIDENT_SHARE, Footprint
from daskcluster.engine.operations import Fold, FoldState, Inspect, Operation, WriteRows
from daskcluster.engine.reach import held_size, on_this_host
from daskcluster.engine.tasks import output_blocks
from daskcluster.engine.worker import Errand
from daskcluster.events import Callback, PassEnded, PassProgress, PassStarted, publish
from daskcluster.host import process_token
from daskcluster.typing import Dataset, Range, Reach, Sink

T = TypeVar("T")


class DaskPlacement(Placement):
    """A dataset on the workers of a cluster; see `DaskEngine`."""

    def __init__(
        self,
        client: Client,
        crew: Crew,
        dataset: Dataset,
        near: Dataset,
        *,
        travels: bool,
        footprint: Footprint,
        callbacks: Sequence[Callback],
        cleanup: ExitStack,
    ) -> None:
        self.dataset = dataset
        self.callbacks = callbacks
        self.traffic = Traffic()
        self._client = client
        self._crew = crew
        self._near = near
        self._travels = travels
        self._cleanup = cleanup
        self._stamps: dict[str, int] = {}
        self._ground = Ground(client, near, near.partitions, travels=travels)
        stays = not (travels or near.in_memory)
        sizes = [held_size(near, span) for span in self._ground.spans] if stays else []
        self._holdings = Holdings(
            client,
            [stop - start for start, stop in self._ground.spans],
            sizes,
            footprint.row_bytes,
        )
        self._baselines: dict[str, int] = {}
        self._folder: str | None = None

    @property
    def units(self) -> Sequence[Range]:
        return self._ground.spans

    def reduce(self, reduction: Reduction, params: Any) -> Any:
        return self._pass(reduction.name, Fold(reduction), params, self._ground)

    def reduce_units(self, reduction: Reduction, params: Any, units: Sequence[int]) -> Any:
        operation, only = Fold(reduction), frozenset(units)
        return self._pass(reduction.name, operation, params, self._ground, only=only)

    @property
    def n_threads(self) -> int:
        return sum(member.n_threads for member in self._crew.refresh().values())

    def map_state(self, reduction: StatefulReduction, params: Any) -> Any:
        stamp = self._stamps.get(reduction.name, 0)
        self._stamps[reduction.name] = stamp + 1
        self._holdings.reserve_state(reduction.row_bytes)
        return self._pass(reduction.name, FoldState(reduction, stamp), params, self._ground)

    def state_of(
        self,
        reduction: StatefulReduction,
        params: Any,
        row: int,
        fn: Callable[[Chunk, Any, Any], T],
    ) -> T:
        index = self.unit_of(row)
        operation = Inspect(reduction, self._stamps.get(reduction.name, 0), fn)
        with self._crew.watched():
            members = self._settle(self._ground)
            lane = next(lane for lane, own in self._ground.homes.lists.items() if index in own)
            flight = self._flight(operation, params, self._ground, members)
            values = flight.run(Tails({lane: (index,)}, {}))
        self.traffic.bytes_read += flight.bytes_read
        found: T = values[0]
        return found

    def state_room(self) -> int:
        with self._crew.watched():
            return self._holdings.state_room(self._room(self._crew.refresh()))

    def drop_state(self, name: str) -> None:
        if self._stamps.pop(name, None) is not None:
            self._holdings.drop_state()

    def map_rows(
        self,
        fn: Callable[[Chunk, Any], np.ndarray],
        sink: Sink,
        params: Any,
        *,
        prepare: Callable[[Any], Any] | None = None,
        name: str = "rows",
    ) -> None:
        ground, blocks = self._ground, self.units
        if sink.block_rows > 1 and any(stop % sink.block_rows for _, stop in self.units[:-1]):
            blocks = output_blocks(self._near, sink.block_rows)
        left = [span for span in blocks if not sink.has(span)]
        if not left:
            return
        if list(left) != list(self.units):
            ground = Ground(self._client, self._near, left, travels=self._travels)
        before = self.dataset.n_rows - sum(stop - start for start, stop in left)
        here = sink.reach is Reach.PROCESS or (
            sink.reach is Reach.HOST and not on_this_host(self._crew.refresh().values())
        )
        operation = WriteRows(fn, prepare, None if here else sink)
        on_value = _writer(sink) if here else None
        try:
            self._pass(name, operation, params, ground, on_value, before=before)
        finally:
            if ground is not self._ground:
                ground.close()

    def shared_folder(self) -> str | None:
        if not on_this_host(self._crew.refresh().values()):
            return None
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="daskcluster-state-")
            self._cleanup.callback(shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder

    def take(self, rows: np.ndarray) -> np.ndarray:
        return self.dataset.take(rows)

    def close(self) -> None:
        self._holdings.close()
        self._ground.close()
        self._cleanup.close()

    # -- one pass ------------------------------------------------------------------------------

    def _pass(
        self,
        name: str,
        operation: Operation,
        params: Any,
        ground: Ground,
        on_value: Callable[[Any], None] | None = None,
        only: Collection[int] | None = None,
        before: int = 0,
    ) -> Any:
        """Make a pass; with `only` over some units alone, which is none that counts.

        `before` says how many rows need not be visited.
        """
        began = time.perf_counter()
        if only is None:
            publish(self.callbacks, PassStarted(name, self.dataset.n_rows))
        if before:
            publish(self.callbacks, PassProgress(before))
        with self._crew.watched():
            members = self._settle(ground)
            flight = self._flight(operation, params, ground, members, on_value)
            try:
                value = flight.run(self._tails(flight, operation, ground.homes, only))
            finally:
                self.traffic.bytes_read += flight.bytes_read
        ground.homes.learn(flight.speeds)
        if only is None:
            self.traffic.passes += 1
            seconds = time.perf_counter() - began
            publish(self.callbacks, PassEnded(name, seconds, flight.bytes_read))
        return value

    def _tails(
        self, flight: Flight, operation: Operation, homes: Homes, only: Collection[int] | None
    ) -> Tails:
        n_tasks = len(homes.lists) * (1 + MOST_TAIL_TASKS)
        stay, n_bytes = isinstance(operation, FoldState), flight.bytes_of_a_task(n_tasks)
        return Tails.cut(homes, stay=stay, only=only, n_bytes=n_bytes)

    def _settle(self, ground: Ground) -> dict[str, Member]:
        """See who is there, and have homes and handles accordingly."""
        members = self._crew.refresh()
        ground.settle({address: member.n_threads for address, member in members.items()})
        if ground is self._ground:
            self._holdings.arrange(ground.homes.by_worker(), lambda: self._room(members))
        return members

    def _room(self, members: Mapping[str, Member]) -> dict[str, int]:
        """Return what all runs together may hold on each worker: half its limit less its baseline."""
        new = [address for address in members if address not in self._baselines]
        held = held_bytes(self._client, new) if new else {}
        for address in new:
            resident = members[address].resident
            # Handles that are full already are no baseline; libraries still to be imported are.
            self._baselines[address] = max(BASELINE_BYTES, resident - held[address])
        return {
            address: int(member.limit * RESIDENT_SHARE) - self._baselines[address]
            for address, member in members.items()
        }

    def _flight(
        self,
        operation: Operation,
        params: Any,
        ground: Ground,
        members: Mapping[str, Member],
        on_value: Callable[[Any], None] | None = None,
    ) -> Flight:
        return Flight(
            self._client,
            self._crew,
            ground,
            self._holdings if ground is self._ground else None,
            Errand(
                operation, params, None if self._travels else self._near.recipe(), process_token()
            ),
            n_threads={address: member.n_threads for address, member in members.items()},
            on_rows=lambda rows: publish(self.callbacks, PassProgress(rows)),
            on_value=on_value,
        )


def _writer(sink: Sink) -> Callable[[Any], None]:
    def write(parts: list[tuple[int, np.ndarray]]) -> None:
        for start, values in parts:
            sink.write(start, values)

    return write
