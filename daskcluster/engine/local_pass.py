"""One pass on local threads: the queue from which they take units, and what they count together."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise

from daskcluster.engine.units import Unit, UnitReader
from daskcluster.typing import Dataset, Range

UNITS_PER_THREAD, FEW_UNITS_PER_THREAD = 8, 4
"""In-memory rows are cut finer than threads, so that a thread that is held up loses little; but each unit
takes time of the interpreter, which one thread has at a time, so fewer do where units are small."""
LARGE_UNIT = 3
"""So many of the fewer units are one, for every thread to begin with; those left even the threads out."""
MIN_UNIT_BYTES, SMALL_UNIT_BYTES = 1 << 18, 1 << 24


class LocalPass:
    """What the threads of one pass share.

    Parameters
    ----------
    dataset : Dataset
    units : sequence of Unit
        Each is handed to one thread, when it asks for more.

    Attributes
    ----------
    bytes_read : int
    """

    def __init__(self, dataset: Dataset, units: Sequence[Unit]) -> None:
        self._dataset = dataset
        self._present = deque(unit for unit in units if unit.is_present)
        self._absent = deque(unit for unit in units if not unit.is_present)
        self._per_read = -(-len(self._present) // max(1, len(self._absent)))
        self._lock = threading.Lock()
        self._rows = 0
        self.bytes_read = 0

    def reader(self) -> UnitReader:
        """Return what one thread reads its units from."""
        return UnitReader(
            self._dataset,
            _drain(self._absent),
            _drain(self._present),
            per_read=self._per_read,
            on_read=self._on_read,
            on_rows=self._on_rows,
        )

    def stop(self) -> None:
        """Let all threads end with the units they have."""
        self._absent.clear()
        self._present.clear()

    def take_rows(self) -> int:
        """Return how many rows were done since the last call."""
        with self._lock:
            rows, self._rows = self._rows, 0
        return rows

    def _on_rows(self, count: int) -> None:
        with self._lock:
            self._rows += count

    def _on_read(self, count: int) -> None:
        with self._lock:
            self.bytes_read += count


def _drain(queue: deque[Unit]) -> Iterator[Unit]:
    # popleft is atomic: several threads drain one queue.
    while True:
        try:
            yield queue.popleft()
        except IndexError:
            return


def local_spans(dataset: Dataset, n_threads: int) -> Sequence[Range]:
    """Return the rows of every unit: the partitions, or cuts of rows that are in memory."""
    if not (dataset.in_memory and dataset.divisible):
        return list(dataset.partitions)
    row_bytes = dataset.bytes_of((0, dataset.n_rows)) // max(1, dataset.n_rows)
    least, small = (max(1, n // max(1, row_bytes)) for n in (MIN_UNIT_BYTES, SMALL_UNIT_BYTES))
    finest, coarsest = (
        -(-dataset.n_rows // (n_threads * units))
        for units in (UNITS_PER_THREAD, FEW_UNITS_PER_THREAD)
    )
    step = max(least, finest, min(small, coarsest))
    n_large = n_threads * LARGE_UNIT * step
    is_few = step == coarsest and n_large < dataset.n_rows
    large = range(0, n_large if is_few else 0, LARGE_UNIT * step)
    edges = [*large, *range(large.stop, dataset.n_rows, step), dataset.n_rows]
    return list(pairwise(edges))
