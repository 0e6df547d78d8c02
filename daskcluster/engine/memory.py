"""Memory is projected before work starts, and refused when it cannot fit.

A process needs: the imported libraries (`BASELINE_BYTES`), and for each thread the read-ahead
window, two partitions, and the statistics and packed centres of the work. What is left of half
of the limit may hold resident partitions; per-row state comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from daskcluster.errors import MemoryLimitError
from daskcluster.host import format_bytes
from daskcluster.typing import Dataset

BASELINE_BYTES = 310 * 1024**2
"""Resident size of a process that has imported the libraries, with pandas and pyarrow, which scikit-learn
imports where they are installed (50 MB), and compiled nothing yet."""
READ_AHEAD_BYTES = 32 * 1024**2
RESIDENT_SHARE = 0.5
"""Share of the limit that baseline, state and resident partitions may fill together."""


@dataclass(frozen=True)
class Footprint:
    """What an algorithm needs beyond the rows.

    Attributes
    ----------
    thread_bytes : int
        Statistics, packed centres and scratch of one thread.
    row_bytes : int
        State kept for every row.
    process_bytes : int
        Held by every process: rows that a seeding has drawn.
    """

    thread_bytes: int = 0
    row_bytes: int = 0
    process_bytes: int = 0


@dataclass(frozen=True)
class MemoryPlan:
    """A projection, all figures in bytes over all processes together.

    Attributes
    ----------
    baseline, working, state, resident : int
    residents : int
        How many partitions stay in memory between passes (the first ones).
    limit : int
    """

    baseline: int
    working: int
    state: int
    resident: int
    residents: int
    limit: int

    @property
    def projected(self) -> int:
        return self.baseline + self.working + self.state + self.resident

    @property
    def state_room(self) -> int:
        """Bytes of per-row state that fit, if resident partitions give way to them."""
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
    """Project the memory of a fit and admit resident partitions.

    Parameters
    ----------
    dataset : Dataset
        Rows already in memory cost nothing more.
    footprint : Footprint
    limit : int
        Bytes that all processes may use together.
    n_threads, n_processes : int
        Over all workers.

    Raises
    ------
    MemoryLimitError
        Not even the work without resident partitions fits.
    """
    base = BASELINE_BYTES * n_processes
    state = footprint.row_bytes * dataset.n_rows
    if dataset.in_memory:
        working = n_threads * footprint.thread_bytes + footprint.process_bytes * n_processes
        return MemoryPlan(base, working, state, 0, 0, limit)
    largest = max((dataset.bytes_of(span) for span in dataset.partitions), default=0)
    window = max(READ_AHEAD_BYTES, 2 * largest)
    working = n_threads * (footprint.thread_bytes + 2 * largest + window)
    working += n_processes * footprint.process_bytes
    if base + working + state > limit:
        raise MemoryLimitError(
            _refusal(base, working, state, limit, largest, n_threads, n_processes)
        )
    return with_state(MemoryPlan(base, working, state, 0, 0, limit), dataset, state)


def with_state(plan: MemoryPlan, dataset: Dataset, state: int) -> MemoryPlan:
    """Return the plan for so many bytes of per-row state: what is left holds resident partitions."""
    if dataset.in_memory:
        return replace(plan, state=state)
    room = int(plan.limit * RESIDENT_SHARE) - plan.baseline - state
    admitted, resident = _admit([dataset.bytes_of(span) for span in dataset.partitions], room)
    return replace(plan, state=state, resident=resident, residents=admitted)


def _admit(sizes: Sequence[int], room: int) -> tuple[int, int]:
    """Return how many of the first partitions fit, and their bytes."""
    # A fixed subset that fits, never LRU: a cyclic scan through an LRU cache has no hit at all.
    resident = 0
    for count, size in enumerate(sizes):
        if resident + size > room:
            return count, resident
        resident += size
    return len(sizes), resident


def _refusal(
    base: int, working: int, state: int, limit: int, largest: int, threads: int, processes: int
) -> str:
    return (
        f"projected memory {format_bytes(base + working + state)} exceeds memory_limit="
        f"{format_bytes(limit)}: {format_bytes(base)} for the libraries in {processes} process(es), "
        f"{format_bytes(working)} for {threads} thread(s) with partitions of {format_bytes(largest)}, "
        f"{format_bytes(state)} of per-row state; raise the limit, use fewer workers or threads, "
        "or rewrite the data with smaller chunks (`daskcluster convert`)."
    )
