"""The statistics of the nearest centres in each iteration: computed for all rows, or with bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Protocol

import numpy as np

from daskcluster.chunkwise.assign import ASSIGN, AssignParams
from daskcluster.chunkwise.exact_sum import Scale
from daskcluster.chunkwise.pruned import FixedSearch, fixed_search, may_pay, repays_sample
from daskcluster.chunkwise.statistics import KMeansStatistics, StatefulReduction
from daskcluster.data.csr import csr_of
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.methods.kmeans.chunkwise.bounded import (
    BoundedParams,
    Changes,
)
from daskcluster.methods.kmeans.chunkwise.kind import BoundKind, Drift, Gaps
from daskcluster.sparse_rows import Rows, SparseRows, join_rows

_RUNS = 16
_LEAST_RUN, MOST_RUN = 16, 64
_SAMPLED = 1 / 128
"""The share of the rows that is sampled, within these limits."""
_PARTITIONS = 64
"""One partition in so many is read for a sample."""


@dataclass(frozen=True)
class Assigned:
    """Statistics under the nearest centres, and the work that they took.

    Attributes
    ----------
    statistics : KMeansStatistics
        The caller may change them.
    n_touched, n_distances : int
        As in `Changes`.
    """

    statistics: KMeansStatistics
    n_touched: int
    n_distances: int


class Assignment(Protocol):
    """Assigns all rows to given centres, call after call."""

    def __call__(self, centres: np.ndarray) -> Assigned: ...

    def close(self) -> None:
        """Free the state between calls."""
        ...


class FullAssignment:
    """Computes all distances each time.

    Parameters
    ----------
    rows : ScaledPlacement
    labels : ndarray of shape (n,), int32, optional
        OUT. Labels under the centres of the last call, kept in this process.
    plans : bool
        Calls 1, 2, 4, ... find out on some rows how to search all centres. Otherwise each task does.
    by_changes : bool
        Nothing else writes to `labels` unless `close` is called. Totals are kept,
        8 k (d + 1) bytes, and only rows that moved change them. Sums are exact, so the bits are
        those of totals computed from scratch.

    Attributes
    ----------
    search : FixedSearch or None
        As for `PreparedCentres`; None at first.
    """

    def __init__(
        self,
        rows: ScaledPlacement,
        labels: np.ndarray | None = None,
        *,
        by_changes: bool = False,
        plans: bool = False,
    ) -> None:
        self.search: FixedSearch | None = None
        self._rows, self._n_calls = rows, 0
        self._sample = cache(partial(few_rows, rows)) if plans else None
        self._labels = labels
        self._by_changes = by_changes and labels is not None
        self._totals: KMeansStatistics | None = None
        self._scale: Scale | None = None

    def __call__(self, centres: np.ndarray) -> Assigned:
        self._n_calls += 1
        if self._sample is not None and self._n_calls & (self._n_calls - 1) == 0:
            self.search = search_for(centres, self._rows, self._sample, self._n_calls)
        statistics = self._statistics(centres)
        n = self._rows.placement.dataset.n_rows
        return Assigned(statistics, n, n * len(centres))

    def _statistics(self, centres: np.ndarray) -> KMeansStatistics:
        rows, before = self._rows, self._totals
        # The first pass guesses the grids: its totals are on others than those of later passes.
        changes = before is not None and self._scale is rows.scale
        self._totals = None  # a pass that fails leaves labels of two kinds
        found: KMeansStatistics = rows.reduce(
            ASSIGN,
            lambda scale: AssignParams(
                centres, scale, self._labels, changes=changes, search=self.search
            ),
        )
        if changes and before is not None:
            found = before.combine(found)
        if self._by_changes:
            self._totals, self._scale = found.copy(), rows.used
        return found

    def close(self) -> None:
        """Forget the totals: in the next call, labels may be others than those of the last one."""
        self._totals = None


class BoundedAssignment:
    """Visits only rows whose bounds do not prove that their label is unchanged.

    The totals are kept here and brought up to date by what a pass changed. A change is a function of
    the rows and of the centres before and after, so a lost bound or label alters the time
    that a pass takes and nothing else.

    Parameters
    ----------
    rows : ScaledPlacement
    bounds : BoundKind
        Kind of the bounds.
    labels : ndarray of shape (n,), int32, optional
        OUT. As for `FullAssignment`.
    run : callable (reduction, params) -> Changes, optional
        Runs the passes, in place of the placement's `map_state`.
    probing : bool
        Only counts are of interest, so the first pass need not find the grid of the sums.
    gaps : Gaps, optional
        Shared with others that are called with the same centres.

    Attributes
    ----------
    rows : ScaledPlacement
    bounds : BoundKind
    """

    def __init__(
        self,
        rows: ScaledPlacement,
        bounds: BoundKind,
        labels: np.ndarray | None = None,
        *,
        run: Callable[[StatefulReduction, Any], Changes] | None = None,
        probing: bool = False,
        gaps: Gaps | None = None,
    ) -> None:
        self.bounds = bounds
        self.rows = rows
        self._run = run or rows.placement.map_state
        self._probing = probing
        self._labels = labels
        self._gaps = gaps or Gaps()
        self._kept: StatefulReduction | None = None
        self._relabel = False
        self._full = FullAssignment(rows, labels, plans=True)
        self._totals: KMeansStatistics | None = None
        self._drift: Drift | None = None

    def __call__(self, centres: np.ndarray) -> Assigned:
        if self.rows.data_statistics is None and not self._probing:
            # The grids of the sums are known after the first pass only, and stay from then on.
            return self._full(centres)
        reduction, params = self._next(centres)
        self._kept = reduction
        changes = self._run(reduction, params)
        if not self._probing:
            self.rows.used = self.rows.scale
            self._gaps.note(changes.n_distances)
        self._totals = (
            changes.moved if self._totals is None else self._totals.combine(changes.moved)
        )
        return Assigned(self._totals.copy(), changes.n_touched, changes.n_distances)

    def resume(self) -> None:
        """Continue after the rows were assigned elsewhere: labels are no longer those of the last call."""
        self._relabel = True

    def close(self) -> None:
        """Free the bounds."""
        if self._kept is not None:
            self.rows.placement.drop_state(self._kept.name)

    def _next(self, centres: np.ndarray) -> tuple[StatefulReduction, Any]:
        previous = None
        if self._drift is None:
            self._drift = Drift(centres, self.bounds.groups(centres))
        else:
            previous = self._drift.centres
            self._drift.move(centres)
        drift = self._drift
        if self.bounds.pairwise:
            self._gaps.between(centres)  # the table below follows from them
        params = BoundedParams(
            centres,
            previous,
            drift.table(self._gaps),
            self.rows.scale,
            self._labels,
            relabel=self._relabel,
        )
        self._relabel = False
        return self.bounds.step(params, drift, self._gaps)


SEVERAL = 8
"""Passes that share a search where their number is not known: those of a fit, or of its model."""


def search_for(
    centres: np.ndarray, rows: ScaledPlacement, sample: Callable[[], Rows], n_passes: int = SEVERAL
) -> FixedSearch | None:
    """Return the search by bounds that is cheapest for sampled rows in so many passes; None if too few."""
    n_rows = rows.placement.dataset.n_rows
    expected = n_rows * n_passes // rows.placement.n_threads  # which wait for the sample
    if not may_pay(centres) or not repays_sample(centres, n_rows, expected):
        return None
    block = next(rows.chunk(sample()).blocks(least=centres.dtype))
    return None if isinstance(block.rows, SparseRows) else fixed_search(centres, block.rows)


def few_rows(rows: ScaledPlacement) -> Rows:
    """Return as many rows as show which search by bounds pays, from all over the dataset."""
    n_runs, placement = _RUNS, rows.placement
    if not (placement.shares_memory and placement.dataset.in_memory):
        n_runs = min(max(len(placement.work_items) // _PARTITIONS, 1), _RUNS)
    return join_rows(sampled_runs(rows, _RUNS * MOST_RUN // n_runs, n_runs))


def sampled_runs(rows: ScaledPlacement, most: int = MOST_RUN, n_runs: int = _RUNS) -> list[Rows]:
    """Return short runs of rows from all over the dataset, for which few chunks are read."""
    dataset = rows.placement.dataset
    n = dataset.n_rows
    run = min(max(int(n * _SAMPLED) // n_runs, _LEAST_RUN), most)
    if n <= n_runs * run:
        spans = [(0, n)]
    else:
        starts = np.linspace(0, n - run, n_runs).astype(np.int64).tolist()
        spans = [(start, start + run) for start in starts]
    if csr_of(dataset) is not None:
        return [dataset.load(span).rows for span in spans]  # `take` would fill them up with zeros
    found = rows.placement.take(np.concatenate([np.arange(*span) for span in spans]))
    return list(np.split(found, len(spans)))
