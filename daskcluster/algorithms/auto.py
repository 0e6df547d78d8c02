"""The choice between looking at all rows and keeping bounds, made anew in every pass.

Early on most bounds fail and cost more than they save; late they save almost everything; and how
soon it turns depends on the data. A few thousand rows, taken here and there and kept in the
driver, go ahead with every kind of bounds: their counts say what a pass over all rows would cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskcluster.algorithms.assignment import (
    Assigned,
    BoundedAssignment,
    FullAssignment,
)
from daskcluster.algorithms.costs import Counts, Shape
from daskcluster.algorithms.kinds import Bounds
from daskcluster.chunk import Chunk
from daskcluster.chunkwise.bounded import Changes
from daskcluster.chunkwise.reduction import StatefulReduction
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.kernels.tile import group_size

_RUNS = 16
_LEAST_RUN, _MOST_RUN = 16, 256
_SAMPLED = 1 / 64
"""The share of the rows that is sampled, within the limits above."""
_WORTH = 0.75
"""To begin with bounds costs a pass or two, so they have to promise this much."""
_LOST = 1.2
"""Bounds that cost this much more than they save are left alone for a while."""
_UNREAD = 0.5
"""Rows that are read again in every pass: this share of failing ones makes bounds worth their while."""


def _none(kind: Bounds) -> int:
    return 0


class AutoAssignment:
    """Looks at all rows, or keeps bounds, whichever costs less by the counts of a sample.

    Parameters
    ----------
    rows : ScaledPlacement
    allowed : sequence of Bounds
        Kinds whose state fits the memory.
    labels : ndarray of shape (n,), int32, optional
        OUT. As for `FullAssignment`.
    recent_bytes : callable (Bounds) -> int
        As for `BoundedAssignment`, for each kind.

    Notes
    -----
    Cost: that of the kind in use, and about two hundredths of a pass for the sample, in a pass of
    which the number is a power of two and in the one after.
    """

    def __init__(
        self,
        rows: ScaledPlacement,
        allowed: Sequence[Bounds],
        labels: np.ndarray | None = None,
        *,
        recent_bytes: Callable[[Bounds], int] = _none,
    ) -> None:
        self._rows = rows
        self._labels = labels
        self._full = FullAssignment(rows, labels)
        self._bounded: BoundedAssignment | None = None
        self._scouts: dict[Bounds, BoundedAssignment] | None = None
        self._allowed = tuple(allowed)
        self._recent_bytes = recent_bytes
        self._pass = self._kept_for = self._n_sampled = 0
        self._idle = False

    def __call__(self, centres: np.ndarray) -> Assigned:
        if self._rows.survey is None or not self._allowed:
            return self._full(centres)
        shape = self._shape(centres)
        self._pass += 1
        if self._pass == 1 and shape.all_fail() <= _LOST * shape.plain():
            self._use(Bounds.HAMERLY)  # nothing to lose: the tile takes most of the time
        if self._scouting(self._pass):
            costs = self._scouted(centres)
            # A scout that has just set its bounds knows nothing yet; the next pass tells.
            if self._scouting(self._pass - 1):
                self._choose(costs, shape)
        if self._bounded is None or self._idle:
            return self._full(centres)
        return self._watched(self._bounded(centres), shape)

    def close(self) -> None:
        """Free the bounds."""
        if self._bounded is not None:
            self._bounded.close()

    @staticmethod
    def _scouting(number: int) -> bool:
        """Whether scouts go ahead in this pass: two passes running, at 1, 2, 4, 8, 16, ..."""
        return number > 0 and (number & (number - 1) == 0 or (number - 1) & (number - 2) == 0)

    def _choose(self, costs: dict[Bounds, float], shape: Shape) -> None:
        current = None if self._bounded is None or self._idle else self._bounded.bounds
        now = shape.plain() if current is None else min(shape.plain(), costs[current])
        best = min(costs, key=lambda kind: costs[kind])
        if best is not current and costs[best] < _WORTH * now:
            self._use(best)

    def _use(self, kind: Bounds) -> None:
        self._kept_for, self._idle = 0, False
        if self._bounded is None or self._bounded.bounds is not kind:
            self.close()
            self._bounded = BoundedAssignment(
                self._rows, kind, self._labels, recent_bytes=self._recent_bytes(kind)
            )

    def _watched(self, found: Assigned, shape: Shape) -> Assigned:
        """Go back to looking at all rows if that would have been cheaper; bounds stay, and age."""
        assert self._bounded is not None
        n = self._rows.placement.dataset.n_rows
        counts = Counts(found.n_touched / n, found.n_distances / n)
        self._kept_for += 1
        # The first pass sets bounds, or makes old ones tight again.
        if self._kept_for > 1:
            self._idle = self._cost(self._bounded.bounds, shape, counts) > _LOST * shape.plain()
        return found

    def _scouted(self, centres: np.ndarray) -> dict[Bounds, float]:
        if self._scouts is None:
            sample = _sample(self._rows)
            self._scouts = {
                kind: BoundedAssignment(self._rows, kind, run=_Scout(sample))
                for kind in self._allowed
            }
            self._n_sampled = len(sample)
        shape, n = self._shape(centres), self._n_sampled
        costs = {}
        for kind, scout in self._scouts.items():
            found = scout(centres)
            counts = Counts(found.n_touched / n, found.n_distances / n)
            costs[kind] = self._cost(kind, shape, counts)
        return costs

    def _cost(self, kind: Bounds, shape: Shape, counts: Counts) -> float:
        cost = shape.yinyang(counts) if kind is Bounds.YINYANG else shape.hamerly(counts)
        if not self._rows.placement.dataset.in_memory and counts.touched < _UNREAD:
            return cost * _UNREAD
        return cost

    def _shape(self, centres: np.ndarray) -> Shape:
        k, d = centres.shape
        return Shape(d, k, d * centres.itemsize, group_size(k, centres.dtype))


class _Scout:
    """Runs passes over a sample in this process, in place of a placement's `map_state`."""

    def __init__(self, sample: np.ndarray) -> None:
        self._chunk = Chunk(sample)
        self._state: Any = None

    def __call__(self, reduction: StatefulReduction, params: Any) -> Changes:
        prepared = reduction.prepare(params)
        if self._state is None:
            self._state = reduction.fresh(self._chunk.n_rows, prepared)
        changes: Changes = reduction.zero(prepared)
        reduction.chunk(self._chunk, prepared, changes, self._state)
        return changes


def _sample(rows: ScaledPlacement) -> np.ndarray:
    """Return short runs of rows from all over the dataset: few chunks have to be read for them."""
    n = rows.placement.dataset.n_rows
    run = min(max(int(n * _SAMPLED) // _RUNS, _LEAST_RUN), _MOST_RUN)
    if n <= _RUNS * run:
        return rows.placement.take(np.arange(n))
    starts = np.linspace(0, n - run, _RUNS).astype(np.int64)
    return rows.placement.take((starts[:, None] + np.arange(run)).ravel())
