"""A dataset placed on the workers of a cluster."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from daskcluster.engine.assignment import MAX_REMAINING_TASKS, TaskQueue
from daskcluster.engine.cache import ResidentCache, cached_bytes
from daskcluster.engine.connect import Client
from daskcluster.engine.demand import Demand
from daskcluster.engine.engine import Placement
from daskcluster.engine.memory import BASELINE_BYTES, RESIDENT_SHARE, Footprint
from daskcluster.engine.operations import FoldState, Operation
from daskcluster.engine.pass_run import PassRun
from daskcluster.engine.registry import WorkerInfo, WorkerRegistry
from daskcluster.engine.transfer import DistributedRows, held_size, on_this_host
from daskcluster.engine.worker import Payload
from daskcluster.events import Callback
from daskcluster.host import process_token
from daskcluster.typing import Dataset, Range, Sink, Visibility


class DaskPlacement(Placement):
    """A dataset on the workers of a cluster; see `DaskEngine`."""

    def __init__(
        self,
        client: Client,
        registry: WorkerRegistry,
        demand: Demand,
        dataset: Dataset,
        source: Dataset,
        *,
        travels: bool,
        footprint: Footprint,
        callbacks: Sequence[Callback],
        cleanup: ExitStack,
    ) -> None:
        super().__init__(dataset, callbacks, source)
        self._client = client
        self._registry = registry
        self._travels = travels
        self._cleanup = cleanup
        self._rows = DistributedRows(client, registry, source, source.partitions, travels=travels)
        stays = footprint.keeps_rows and not (travels or source.in_memory)
        self._cache = ResidentCache(
            client,
            [stop - start for start, stop in self._rows.spans],
            [held_size(source, span) for span in self._rows.spans] if stays else [],
            footprint.row_bytes,
            is_strict=registry.limit.is_strict,
        )
        self._demand = demand
        demand.show(self.n_threads)
        self._baselines: dict[str, int] = {}
        self._folder: str | None = None

    @property
    def work_items(self) -> Sequence[Range]:
        return self._rows.spans

    @property
    def n_threads(self) -> int:
        return sum(worker.n_threads for worker in self._registry.refresh().values())

    def state_room(self) -> int:
        with self._registry.watched():
            return self._cache.state_room(self._room(self._registry.refresh()))

    def shared_folder(self) -> str | None:
        if not self._is_on_this_host():
            return None
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="daskcluster-state-")
            self._cleanup.callback(shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder

    def close(self) -> None:
        self._cache.close()
        self._rows.close()
        self._cleanup.close()

    def _is_on_this_host(self) -> bool:
        return on_this_host(self._registry.refresh().values())

    def _tasks_can_write(self, sink: Sink) -> bool:
        return sink.visibility is Visibility.EVERYONE or (
            sink.visibility is Visibility.HOST and self._is_on_this_host()
        )

    def _reserve_state(self, row_bytes: int, *, is_new: bool) -> None:
        self._cache.reserve_state(row_bytes)

    def _free_state(self) -> None:
        self._cache.drop_state()

    # -- one pass ----------------------------------------------------------------------------------

    def _run(
        self,
        operation: Operation,
        params: Any,
        *,
        work_items: Sequence[int] | None = None,
        spans: Sequence[Range] | None = None,
        on_value: Callable[[Any], None] | None = None,
        report: bool = True,
    ) -> Any:
        if spans is None or list(spans) == list(self.work_items):
            return self._run_on(self._rows, operation, params, work_items, on_value, report=report)
        rows = DistributedRows(
            self._client, self._registry, self._source, spans, travels=self._travels
        )
        try:
            return self._run_on(rows, operation, params, work_items, on_value, report=report)
        finally:
            rows.close()

    def _run_on(
        self,
        rows: DistributedRows,
        operation: Operation,
        params: Any,
        work_items: Sequence[int] | None,
        on_value: Callable[[Any], None] | None,
        *,
        report: bool,
    ) -> Any:
        recipe = None if self._travels else self._source.recipe()
        with self._registry.watched():
            workers = self._settle(rows)
            run = PassRun(
                self._client,
                self._registry,
                rows,
                self._cache if rows is self._rows else None,
                Payload(operation, params, recipe, process_token()),
                n_threads={address: worker.n_threads for address, worker in workers.items()},
                on_rows=self._report_rows if report else lambda count: None,
                on_value=on_value,
                demand=self._demand,
            )
            n_tasks = len(rows.assignment.lists) * (1 + MAX_REMAINING_TASKS)
            tasks = TaskQueue.cut(
                rows.assignment,
                stay=isinstance(operation, FoldState),
                only=None if work_items is None else frozenset(work_items),
                n_bytes=run.bytes_of_a_task(n_tasks),
            )
            try:
                value = run.run(tasks)
            finally:
                self.traffic.bytes_read += run.bytes_read
        if report:  # the time of a single work item says nothing about speed
            rows.assignment.learn(run.speeds)
        return value

    def _settle(self, rows: DistributedRows) -> dict[str, WorkerInfo]:
        """Refresh the list of workers and assign partitions and cache handles to them."""
        workers = self._registry.refresh()
        rows.settle({address: worker.n_threads for address, worker in workers.items()})
        if rows is self._rows:
            self._cache.arrange(rows.assignment.by_worker(), lambda: self._room(workers))
        return workers

    def _room(self, workers: Mapping[str, WorkerInfo]) -> dict[str, int]:
        """Return the bytes that all runs may cache per worker: half its limit less its baseline."""
        new = [address for address in workers if address not in self._baselines]
        held = cached_bytes(self._client, new)
        for address in new:
            resident = workers[address].resident
            # Bytes in handles are no part of the baseline; libraries that are not imported yet are.
            self._baselines[address] = max(BASELINE_BYTES, resident - held[address])
        return {
            address: int(worker.limit * RESIDENT_SHARE) - self._baselines[address]
            for address, worker in workers.items()
        }
