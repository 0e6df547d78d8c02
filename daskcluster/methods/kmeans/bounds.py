"""The choice of bounds: by the name of an algorithm and by memory; with ``"auto"``, in every pass.

Early on most bounds fail and cost more than they save; late they save almost everything; and how
soon it turns depends on the data. A few thousand rows, taken here and there and kept in the
driver, go ahead with every kind of bounds: their counts say what a pass over all rows would cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daskcluster.chunkwise.statistics import StatefulReduction
from daskcluster.data.csr import csr_of
from daskcluster.deprecation import moved
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.events import Callback, Notice, publish
from daskcluster.host import format_bytes
from daskcluster.kernels.jit import tile_name
from daskcluster.kernels.tile import group_size
from daskcluster.methods.kmeans.assignment import (
    MOST_RUN,
    Assigned,
    Assignment,
    BoundedAssignment,
    FullAssignment,
    sampled_runs,
    search_for,
)
from daskcluster.methods.kmeans.chunkwise.bounded import Changes
from daskcluster.methods.kmeans.chunkwise.grouped import ELKAN, HAMERLY, YINYANG
from daskcluster.methods.kmeans.chunkwise.kind import (
    REPAID,
    BoundKind,
    CostModel,
    Counts,
    Gaps,
    tile_slowness,
)
from daskcluster.sparse_rows import Rows, join_rows

_LONGEST_RUN = 256
"""Longest run of sampled rows if rows are read in each pass: it represents a chunk."""
_OPENING, _EVERY, _SELDOM = 8, 8, 4
"""Probes run in the first passes, later in a few running ones of every eight, or of fewer if new bounds are
cheap; and while bounds are kept, of the more the later it is: two or three times while the number of passes
doubles. Where passes are cheap, they do not begin in the first ones, in which bounds rarely hold."""
_SMALL = 1.5e6
"""A pass that takes less (in nanoseconds of one thread) is over before anything could be saved."""
_WORTH, _WORTH_MORE = 0.75, 0.6
"""To begin with bounds costs a pass or two, so they have to promise this much; and more where bounds
that do well are given up for it."""
_CHEAP = 0.5
"""Setting bounds takes a full comparison. Where a pass takes only such a share of that, they are tried
later; and they are set once they would have repaid it, had they been kept from the start."""
_PROBE, _PROBED = 4e5, 0.02
"""Nanoseconds that a probe takes whatever the rows, and the share of the passes that all may take."""
_LOST = 1.2
"""Bounds that cost this much more than they save are left alone for a while."""


class AutoAssignment:
    """Computes all distances, or uses bounds, whichever costs less by the counts of a sample.

    Parameters
    ----------
    rows : ScaledPlacement
    allowed : sequence of BoundKind
        Kinds whose state fits the memory.
    labels : ndarray of shape (n,), int32, optional
        OUT. As for `FullAssignment`.
    reads : bool
        Rows do not fit the memory and are read in each pass.
    max_iter : int, optional
        Passes, at most: bounds that could not repay themselves in those that are left are not set.

    Notes
    -----
    Cost: that of the kind in use, and about two hundredths of a pass for the sample, in the first eight
    passes, and later in two or three out of eight, or of the more the longer bounds are kept.
    """

    def __init__(
        self,
        rows: ScaledPlacement,
        allowed: Sequence[BoundKind],
        labels: np.ndarray | None = None,
        *,
        reads: bool = False,
        max_iter: int | None = None,
    ) -> None:
        self._rows = rows
        self._labels = labels
        self._full = FullAssignment(rows, labels, by_changes=True)
        self._bounded: BoundedAssignment | None = None
        self._probes: list[_Probe] | None = None
        self._runs: list[Rows] | None = None
        self._allowed = tuple(allowed)
        self._reads, self._max_iter = reads, max_iter
        self._gaps = Gaps()
        self._pass = self._kept_for = self._in_a_row = 0
        self._idle, self._pruned = False, 1.0

    def __call__(self, centres: np.ndarray) -> Assigned:
        shape = self._shape(centres)
        if not self._allowed or self._rows.placement.dataset.n_rows * shape.plain() < _SMALL:
            return self._full(centres)
        self._pass += 1
        first = self._rows.data_statistics is None
        every = self._probe_interval(shape)
        probing = self._are_probes_due(every)
        if (probing or self.kind is None) and self._pass & (self._pass - 1) == 0:
            self._search(centres)
            shape = replace(shape, pruned=self._pruned)
        begins = 1 if self._pruned > _CHEAP else 2 * _OPENING
        if probing and self._pass >= begins:
            if self._probes is None:
                self._probes = [
                    _Probe(self._rows, kind, self._sampled(), self._gaps)
                    for kind in self._candidate_kinds(shape)
                ]
            costs = {probe.kind: probe.kind.cost(shape, probe(centres)) for probe in self._probes}
            self._in_a_row += 1
            # Probes have measured enough after passes in which their new bounds aged.
            aged = self._in_a_row > (1 if self._pass <= _OPENING else len(self._probes))
            if aged and not first:
                self._choose(costs, shape)
        else:
            self._in_a_row = 0
        if first or self._bounded is None or self._idle:
            found = self._full(centres)
            self._gaps.note(self._pruned * found.n_distances)
            return found
        self._full.close()
        return self._check_fallback(self._bounded(centres), shape)

    @property
    def kind(self) -> BoundKind | None:
        """The kind of the bounds in use, if there are some."""
        return None if self._bounded is None or self._idle else self._bounded.bounds

    def close(self) -> None:
        """Free the bounds."""
        if self._bounded is not None:
            self._bounded.close()

    def _are_probes_due(self, every: int) -> bool:
        """True if probes run in this pass."""
        if self._bounded is not None and not self._idle:
            every = max(_EVERY, 1 << (self._pass // _SELDOM).bit_length())
        opening = self._pass <= _OPENING and every <= _EVERY
        # New bounds hold better than old ones, by different amounts for different kinds.
        return opening or self._pass % every <= len(self._probes or ())

    def _probe_interval(self, shape: CostModel) -> int:
        """Return of how many passes probes run in a few: of more if passes are short, a power of two."""
        taken = self._rows.placement.dataset.n_rows * shape.plain()
        n_kinds = len(self._candidate_kinds(shape))
        return max(
            _EVERY, 1 << int(n_kinds * (n_kinds + 1) * _PROBE / (_PROBED * taken)).bit_length()
        )

    def _choose(self, costs: dict[BoundKind, float], shape: CostModel) -> None:
        current = self.kind
        now = shape.plain() if current is None else min(shape.plain(), costs[current])
        best, n = min(costs, key=costs.__getitem__), self._rows.placement.dataset.n_rows
        gaps = shape.gaps() / n
        # Gaps alone are measured again only after many distances to rows.
        again = gaps if best.pairwise else min(gaps, costs[best] / REPAID)
        worth, cost = _WORTH if current is None else _WORTH_MORE, costs[best] + again
        # Had they been kept from the start; and they still can be.
        passes = self._pass
        if self._max_iter is not None:
            passes = min(passes, self._max_iter - self._pass)
        repaid = (now - cost) * passes > shape.all_fail() + gaps - shape.plain()
        if best is not current and cost < worth * now and repaid:
            self._use(best)

    def _use(self, kind: BoundKind) -> None:
        self._kept_for, self._idle = 0, False
        if self._bounded is None or self._bounded.bounds is not kind:
            self.close()
            self._bounded = BoundedAssignment(
                self._rows,
                kind,
                self._labels,
                gaps=self._gaps,
            )
        else:
            self._bounded.resume()

    def _check_fallback(self, found: Assigned, shape: CostModel) -> Assigned:
        """Return to computing all distances if that would have been cheaper; the bounds stay, and age."""
        assert self._bounded is not None
        n = self._rows.placement.dataset.n_rows
        # The rows that it read are not known: at most all of them.
        counts = Counts(found.n_touched / n, found.n_distances / n)
        self._kept_for += 1
        # The first pass sets bounds, or tightens old ones.
        if self._kept_for > 1:
            self._idle = self._bounded.bounds.cost(shape, counts) > _LOST * shape.plain()
        return found

    def _sampled(self) -> list[Rows]:
        """Return the sampled rows, in runs if rows are read in each pass."""
        if self._runs is None:
            runs = sampled_runs(self._rows, _LONGEST_RUN if self._reads else MOST_RUN)
            self._runs = runs if self._reads else [join_rows(runs)]
        return self._runs

    def _search(self, centres: np.ndarray) -> None:
        """Find the search of all centres, and note its cost; see `CostModel`."""
        found = search_for(centres, self._rows, lambda: join_rows(self._sampled()))
        self._full.search, self._pruned = found, 1.0 if found is None else found.share

    def _candidate_kinds(self, shape: CostModel) -> list[BoundKind]:
        """Return the kinds that may win."""
        alone = [kind for kind in self._allowed if kind.excludes_others]
        return alone or [kind for kind in self._allowed if kind.may_win(shape)]

    def _shape(self, centres: np.ndarray) -> CostModel:
        k, d = centres.shape
        slowness = tile_slowness(centres.dtype, tile_name())
        group = group_size(k, centres.dtype)
        row_bytes = d * centres.itemsize
        return CostModel(d, k, row_bytes, group, self._reads, slowness, self._pruned)


class _Probe:
    """Runs one kind of bounds on runs of sampled rows, in this process."""

    def __init__(
        self, rows: ScaledPlacement, kind: BoundKind, runs: Sequence[Rows], gaps: Gaps
    ) -> None:
        self.kind = kind
        self._assign = BoundedAssignment(
            rows,
            kind,
            run=self._run,
            probing=True,
            gaps=gaps,
        )
        self._runs = [rows.chunk(run) for run in runs]
        self._states: list[Any] = []
        self._n_read = 0

    def __call__(self, centres: np.ndarray) -> Counts:
        found, n = self._assign(centres), sum(run.n_rows for run in self._runs)
        return Counts(found.n_touched / n, found.n_distances / n, self._n_read / n)

    def _run(self, reduction: StatefulReduction, params: Any) -> Changes:
        prepared = reduction.prepare(params)
        if not self._states:
            self._states = [reduction.fresh(run.n_rows, prepared) for run in self._runs]
        changes: Changes = reduction.zero(prepared)
        self._n_read = 0
        for run, state in zip(self._runs, self._states, strict=True):
            before = changes.n_touched
            reduction.chunk(run, prepared, changes, state)
            self._n_read += run.n_rows if changes.n_touched > before else 0
        return changes


BOUNDS = {kind.name: kind for kind in (ELKAN, YINYANG, HAMERLY)}
"""By name, from most bounds a row to fewest: where one takes too much memory, the next takes its place."""


def automatic(n_features: int, n_clusters: int, dtype: np.dtype[Any]) -> tuple[BoundKind, ...]:
    """Return the kinds that ``algorithm="auto"`` considers, those with fewest bounds first.

    Examples
    --------
    >>> [str(kind) for kind in automatic(784, 50, np.dtype(np.float32))]
    ['hamerly', 'yinyang', 'elkan']
    """
    return tuple(
        kind for kind in reversed(BOUNDS.values()) if kind.suits(n_features, n_clusters, dtype)
    )


def fallbacks(kind: BoundKind) -> tuple[BoundKind, ...]:
    """Return the kind and those that take its place when memory is short, in this order."""
    kinds = tuple(BOUNDS.values())
    return kinds[kinds.index(kind) :] if kind in kinds else (kind,)


@dataclass(frozen=True)
class AssignmentChoice:
    """Chooses the assignment: with bounds, as far as memory allows.

    Parameters
    ----------
    algorithm : {"auto", "lloyd", "elkan", "hamerly", "yinyang"}
    n_clusters : int
    bounds_memory : int or "auto"
        Bytes that bounds may take.
    callbacks : sequence of callables
        Called with a `Notice` if another kind takes the place of the requested one.
    parameter : str
        Name of the caller's parameter, for notices.
    max_iter : int, optional
        Passes, at most.
    """

    algorithm: str
    n_clusters: int
    bounds_memory: int | str
    callbacks: Sequence[Callback] = ()
    parameter: str = "algorithm"
    max_iter: int | None = None

    def __call__(self, rows: ScaledPlacement, labels: np.ndarray | None = None) -> Assignment:
        """Return the assignment of `rows`; `labels` as for `FullAssignment`."""
        name, sparse = self.algorithm, csr_of(rows.placement.dataset) is not None
        if sparse and name not in ("lloyd", "auto"):
            self._notice(
                f"{self.parameter}={name!r} is for dense rows; lloyd takes its place, with the same result."
            )
        if name == "lloyd" or sparse:
            return FullAssignment(rows, labels, by_changes=True, plans=True)
        if name == "auto":
            dataset = rows.placement.dataset
            size = dataset.bytes_of((0, dataset.n_rows))
            kinds = automatic(dataset.n_features, self.n_clusters, rows.dtype)
            return AutoAssignment(
                rows,
                self._within(kinds, rows),
                labels,
                reads=not dataset.in_memory and size > rows.placement.state_room(),
                max_iter=self.max_iter,
            )
        return self._bounded(BOUNDS[name], rows, labels)

    def _bounded(
        self, wanted: BoundKind, rows: ScaledPlacement, labels: np.ndarray | None
    ) -> Assignment:
        kinds = self._within(fallbacks(wanted), rows)
        if not kinds or kinds[0] is not wanted:
            n_rows = rows.placement.dataset.n_rows
            needed = n_rows * wanted.row_bytes(self.n_clusters, rows.dtype)
            self._notice(
                f"{self.parameter}={wanted.name!r} needs {format_bytes(needed)} for its bounds, of which "
                f"{format_bytes(self._room(rows))} are there; {kinds[0] if kinds else 'lloyd'} "
                "takes its place, with the same result. Raise bounds_memory or the memory limit."
            )
        if not kinds:
            return FullAssignment(rows, labels, by_changes=True, plans=True)
        return BoundedAssignment(rows, kinds[0], labels)

    def _within(self, kinds: Sequence[BoundKind], rows: ScaledPlacement) -> tuple[BoundKind, ...]:
        """Return those kinds whose state fits into the room."""
        n_rows, room = rows.placement.dataset.n_rows, self._room(rows)
        return tuple(
            kind for kind in kinds if n_rows * kind.row_bytes(self.n_clusters, rows.dtype) <= room
        )

    def _room(self, rows: ScaledPlacement) -> int:
        room = rows.placement.state_room()
        return room if self.bounds_memory == "auto" else min(room, int(self.bounds_memory))

    def _notice(self, text: str) -> None:
        publish(self.callbacks, Notice(text))


__getattr__ = moved(__name__, register_bounds="daskcluster.extending:register_bounds")
