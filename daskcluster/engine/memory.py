"""Memory projections: work that cannot fit is refused before it starts.

A process needs the imported libraries (`BASELINE_BYTES`) and, for each thread, the read-ahead window, two
partitions, and the statistics and packed centres of the work. Between passes, it may hold the rows that
mini-batches are drawn from instead; the larger of the two counts. Baseline, per-row state and resident
partitions together may take half of the limit; per-row state has priority over resident partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from daskcluster.errors import MemoryLimitError
from daskcluster.host import format_bytes, format_limit
from daskcluster.typing import Dataset, Range

BASELINE_BYTES = 310 * 1024**2
"""Resident size of a process that has imported the libraries and compiled nothing yet. Includes pandas and
pyarrow (50 MB), which scikit-learn imports where they are installed."""
READ_AHEAD_BYTES = 32 * 1024**2
"""Read-ahead window of a thread that has latency to hide; other threads share the window of their process
and take less."""
RESIDENT_SHARE = 0.5
"""Share of the limit that baseline, state and resident partitions may take together."""


@dataclass(frozen=True)
class Footprint:
    """Memory that an algorithm needs besides the rows.

    Attributes
    ----------
    thread_bytes : int
        Statistics, packed centres and scratch of one thread.
    row_bytes : int
        Persistent state per row.
    process_bytes : int
        Held by every process, such as rows that a seeding has drawn.
    worker_bytes : int
        Held by every worker of a cluster in addition, such as steps to repeat for rows of a lost worker.
    home_bytes : int
        Held by the process that runs the steps of a fit, also during passes.
    ahead_bytes : int
        Held by that process between passes only: rows that batches are drawn from. If the limit leaves less
        room, fewer rows are read.
    keeps_rows : bool
        Partitions stay in memory between passes where there is room. False for one or two passes, which
        would fill the memory to save little.
    """

    thread_bytes: int = 0
    row_bytes: int = 0
    process_bytes: int = 0
    worker_bytes: int = 0
    home_bytes: int = 0
    ahead_bytes: int = 0
    keeps_rows: bool = True

    def of_workers(self) -> Footprint:
        """Return the footprint of the workers, where another process runs the steps."""
        held = self.process_bytes + self.worker_bytes
        return replace(self, process_bytes=held, worker_bytes=0, home_bytes=0, ahead_bytes=0)


ONE_PASS = Footprint(keeps_rows=False)


@dataclass(frozen=True)
class MemoryPlan:
    """A projection of memory; all figures are bytes over all processes together.

    Attributes
    ----------
    baseline, working, state, resident : int
    residents : int
        Number of partitions that stay in memory between passes.
    limit : int
    keeps_rows : bool
        See `Footprint`.
    """

    baseline: int
    working: int
    state: int
    resident: int
    residents: int
    limit: int
    keeps_rows: bool = True

    @property
    def projected(self) -> int:
        return self.baseline + self.working + self.state + self.resident

    @property
    def state_room(self) -> int:
        """Bytes of per-row state that fit if all resident partitions are dropped."""
        shared = int(self.limit * RESIDENT_SHARE)
        return max(0, min(shared, self.limit - self.working) - self.baseline)


def project(
    dataset: Dataset,
    footprint: Footprint,
    *,
    limit: int,
    n_threads: int,
    n_processes: int = 1,
) -> MemoryPlan:
    """Project the memory of a fit and choose the resident partitions.

    Parameters
    ----------
    dataset : Dataset
        Rows that are already in memory are not counted.
    footprint : Footprint
    limit : int
        Bytes that all processes together may use.
    n_threads, n_processes : int
        Over all workers.

    Raises
    ------
    MemoryLimitError
        The work exceeds the limit even without resident partitions.
    """
    base = (BASELINE_BYTES + getattr(dataset, "reader_bytes", 0)) * n_processes
    state = footprint.row_bytes * dataset.n_rows
    if dataset.in_memory:
        working = n_threads * footprint.thread_bytes + footprint.process_bytes * n_processes
        working = max(working, footprint.ahead_bytes) + footprint.home_bytes
        return MemoryPlan(base, working, state, 0, 0, limit)
    working = n_threads * (footprint.thread_bytes + thread_rows(dataset, dataset.partitions))
    working += n_processes * footprint.process_bytes
    left = limit - base - state - footprint.home_bytes
    working = max(working, min(footprint.ahead_bytes, left)) + footprint.home_bytes
    if base + working + state > limit:
        largest = _largest(dataset, dataset.partitions)
        text = (
            f"projected memory {format_bytes(base + working + state)} exceeds memory_limit="
            f"{format_limit(limit)}: {format_bytes(base)} for the libraries in {n_processes} process(es), "
            f"{format_bytes(working)} for {n_threads} thread(s) with partitions of "
            f"{format_bytes(largest)}, {format_bytes(state)} of per-row state; raise the limit, use fewer "
            "workers or threads, or rewrite the data with smaller chunks (`daskcluster convert`)."
        )
        if footprint.home_bytes:
            text += (
                f" {format_bytes(footprint.home_bytes)} of this are rows that this process holds during "
                "passes: one partition, or batches, with their extra data."
            )
        raise MemoryLimitError(text)
    plan = MemoryPlan(base, working, state, 0, 0, limit, footprint.keeps_rows)
    return with_state(plan, dataset, state)


def thread_rows(dataset: Dataset, spans: Iterable[Range]) -> int:
    """Return the bytes of rows that a thread holds and reads ahead, for partitions `spans`."""
    largest = _largest(dataset, spans)
    return 2 * largest + max(READ_AHEAD_BYTES, 2 * largest)


def _largest(dataset: Dataset, spans: Iterable[Range]) -> int:
    return max((dataset.bytes_of(span) for span in spans), default=0)


def with_state(plan: MemoryPlan, dataset: Dataset, state: int) -> MemoryPlan:
    """Return the plan with `state` bytes of per-row state; resident partitions get the rest."""
    if dataset.in_memory or not plan.keeps_rows:
        return replace(plan, state=state)
    shared = int(plan.limit * RESIDENT_SHARE)
    room = min(shared, plan.limit - plan.working) - plan.baseline - state
    admitted = resident_partitions(dataset, room)
    return replace(plan, state=state, resident=sum(admitted.values()), residents=len(admitted))


def resident_partitions(dataset: Dataset, room: int) -> dict[int, int]:
    """Return the partitions that stay in memory within `room` bytes, and the bytes of each."""
    if dataset.in_memory:
        return {}
    return admit(dict(enumerate(map(dataset.bytes_of, dataset.partitions))), room)


def admit(sizes: Mapping[int, int], room: int) -> dict[int, int]:
    """Return the partitions that fit, and their bytes; earlier ones have priority.

    The subset is fixed, not LRU: a cyclic scan through an LRU cache never hits.

    Examples
    --------
    >>> admit({0: 50, 1: 60, 2: 40}, room=100)
    {0: 50, 2: 40}
    """
    admitted = {}
    for index, size in sizes.items():
        if 0 < size <= room:
            admitted[index] = size
            room -= size
    return admitted


def check_limit(what: str, needed: int, limit: int) -> None:
    """Refuse work that takes more bytes than the memory limit.

    Raises
    ------
    MemoryLimitError
    """
    if needed > limit:
        raise MemoryLimitError(
            f"{what} up to {format_bytes(needed)}, but memory_limit={format_limit(limit)}; raise the "
            "limit, or use fewer threads."
        )
