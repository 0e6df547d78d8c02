"""The choice between looking at all rows and keeping bounds, made anew in every pass.

Early on most bounds fail and cost more than they save; late they save almost everything; and how
soon it turns depends on the data. A few thousand rows, taken here and there and kept in the
driver, go ahead with every kind of bounds: their counts say what a pass over all rows would cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from daskcluster.algorithms.assignment import (
    Assigned,
    BoundedAssignment,
    Bounds,
    FullAssignment,
)
from daskcluster.algorithms.costs import Counts, Shape
from daskcluster.chunk import Chunk
from daskcluster.chunkwise.bounded import Changes
from daskcluster.chunkwise.reduction import StatefulReduction
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.kernels.tile import group_size

_RUNS = 16
_LEAST_RUN, _MOST_RUN = 16, 256
_SAMPLED = 1 / 64
"""The share of the rows that is sampled, within the limits above."""
_WORTH = 0.8
"""To begin with bounds costs a pass or two, so they have to promise this much."""
_LOST = 1.1
_UNREAD = 0.5
"""Rows that are read again in every pass: this share of failing ones makes bounds worth their while."""


class AutoAssignment:
    """Looks at all rows, or keeps bounds, whichever costs less by the counts of a sample.

    Parameters
    ----------
    rows : ScaledPlacement
    allowed : sequence of Bounds
        Kinds whose state fits the memory.
    labels : ndarray of shape (n,), int32, optional
        OUT. As for `FullAssignment`.

    Notes
    -----
    Cost: that of the kind in use, and about two hundredths of a pass for the sample.
    """

    def __init__(
        self, rows: ScaledPlacement, allowed: Sequence[Bounds], labels: np.ndarray | None = None
    ) -> None:
        self._rows = rows
        self._labels = labels
        self._full = FullAssignment(rows, labels)
        self._bounded: BoundedAssignment | None = None
        self._scouts: dict[Bounds, BoundedAssignment] | None = None
        self._allowed = tuple(allowed)

    def __call__(self, centres: np.ndarray) -> Assigned:
        if self._rows.survey is None or not self._allowed:
            return self._full(centres)
        self._choose(centres)
        return self._full(centres) if self._bounded is None else self._bounded(centres)

    def _choose(self, centres: np.ndarray) -> None:
        costs = self._costs(centres)
        plain = self._shape(centres).plain()
        best = min(costs, key=lambda kind: costs[kind])
        current = None if self._bounded is None else self._bounded.bounds
        now = plain if current is None else costs[current]
        if best is not current and costs[best] < _WORTH * min(now, plain):
            self._keep(best)
        elif current is not None and now > _LOST * plain:
            self._keep(None)

    def _keep(self, kind: Bounds | None) -> None:
        if self._bounded is not None:
            self._bounded.close()
        self._bounded = None
        if kind is not None:
            self._bounded = BoundedAssignment(self._rows, kind, self._labels)

    def _costs(self, centres: np.ndarray) -> dict[Bounds, float]:
        if self._scouts is None:
            sample = _sample(self._rows)
            self._scouts = {
                kind: BoundedAssignment(self._rows, kind, run=_Scout(sample))
                for kind in self._allowed
            }
            self._n_sampled = len(sample)
        shape = self._shape(centres)
        costs = {}
        for kind, scout in self._scouts.items():
            found = scout(centres)
            n = self._n_sampled
            counts = Counts(found.n_touched / n, found.n_distances / n)
            cost = shape.yinyang(counts) if kind is Bounds.YINYANG else shape.hamerly(counts)
            if not self._rows.placement.dataset.in_memory and counts.touched < _UNREAD:
                cost *= _UNREAD
            costs[kind] = cost
        return costs

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
