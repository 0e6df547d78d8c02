"""A pass with bounds of any kind: the state of rows, and how rows whose bound fails are reassigned.

Filter, compact, tile: the bounds of all rows are filtered, rows that fail are measured against their own
centre, and those that still fail go through the tile together. The statistics that come back are
*changes*: rows that moved, taken out of one cluster and added to another. Sums are exact, so
totals updated by changes have the bits of totals computed from scratch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from daskcluster.chunk import BLOCK_BYTES, Chunk, compute_dtype
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.chunkwise.exact_sum import Grids, Scale
from daskcluster.chunkwise.statistics import Additive, KMeansStatistics, StatefulReduction
from daskcluster.kernels.distance import sqdist_to_one
from daskcluster.kernels.jit import read_only
from daskcluster.kernels.panels import PORTABLE, Panels
from daskcluster.kernels.tile import nearest, pack
from daskcluster.methods.kmeans.kernels.bounds import (
    Centres,
    Listed,
    Moved,
    State,
)


@dataclass(frozen=True)
class Gathered:
    """Some rows of a chunk.

    Attributes
    ----------
    which : ndarray of shape (m,), int64
        Their positions in the state.
    rows : ndarray of shape (>= m, d)
        Ready for the kernels.
    at : ndarray of shape (m,), int64
        Their indices in `rows`.
    weights : ndarray of shape (m,), float64, or None
    start : int
        Global index of the first row of the state.
    """

    which: np.ndarray
    rows: Any
    at: np.ndarray
    weights: np.ndarray | None
    start: int

    @property
    def listed(self) -> Listed:
        """The rows, as kernels take them."""
        return Listed(read_only(self.rows), self.at, self.which)

    def moved(self) -> Moved:
        """Return room for all of them to move."""
        return Moved(np.empty(len(self.which), np.int64), np.empty(len(self.which), np.int32))


def gathered(chunk: Chunk, at: np.ndarray) -> Iterator[Gathered]:
    """Yield the rows `at` (m,), int64, of a chunk: in place if possible, else in converted blocks."""
    if not len(at):
        return
    rows = chunk.rows
    weights = None if chunk.weights is None else chunk.weights[at]
    dtype = compute_dtype(rows.dtype)
    if not chunk.normalize and rows.dtype == dtype and rows.flags.c_contiguous:
        yield Gathered(at, rows, at, weights, chunk.start)
        return
    step = max(1, BLOCK_BYTES // (dtype.itemsize * rows.shape[1]))
    for first in range(0, len(at), step):
        part = slice(first, first + step)
        yield Gathered(
            at[part],
            chunk.choose(at[part]).computed(),
            np.arange(len(at[part])),
            None if weights is None else weights[part],
            chunk.start,
        )


_MOST_SCORE = 1e36


@dataclass(frozen=True)
class BoundedParams:
    """Centres now and before, and the distances they moved.

    Attributes
    ----------
    centres : ndarray of shape (k, d)
    previous : ndarray of shape (k, d), or None
        Centres of the previous call, from which lost labels are recomputed; None in the first call.
    drift : ndarray of shape (2, k), float64
        See `daskcluster.methods.kmeans.kernels.bounds.OWN`.
    scale : Scale
    labels : ndarray of shape (n,), int32, or None
        OUT. Where labels are kept as well, by global row index (only within one process).
    relabel : bool
        `labels` was changed elsewhere since the last call: write those of all rows, not only of rows that
        moved.
    groups : tuple of ndarray of int32
        Centres of each group that has a bound, ascending; all groups but the last have the same size.
    group_drift : ndarray of shape (g,), float64
        Accumulated drift of each group: the sum over steps of its longest one.
    halves : ndarray of shape (k, k), float32
        Half the distances between centres, never too large; empty for bounds that do not use them.
    """

    centres: np.ndarray
    previous: np.ndarray | None
    drift: np.ndarray
    scale: Scale
    labels: np.ndarray | None = None
    relabel: bool = False
    groups: tuple[np.ndarray, ...] = ()
    group_drift: np.ndarray = field(default_factory=lambda: np.empty(0))
    halves: np.ndarray = field(default_factory=lambda: np.empty((0, 0), np.float32))


@dataclass(frozen=True)
class BoundState:
    """Labels and bounds of a run of rows.

    Attributes
    ----------
    labels : ndarray of shape (n,), int32
    upper : ndarray of shape (n,), float32
    lower : ndarray of shape (n, g), float32
    """

    labels: np.ndarray
    upper: np.ndarray
    lower: np.ndarray

    @property
    def arrays(self) -> State:
        """Labels, upper and lower bounds, as kernels take them."""
        return State(self.labels, self.upper, self.lower)

    @property
    def n_rows(self) -> int:
        return len(self.labels)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.arrays)

    def rows(self, first: int, last: int) -> BoundState:
        """Return a view of rows `first` to `last`."""
        part = slice(first, last)
        return BoundState(self.labels[part], self.upper[part], self.lower[part])


def fresh_state(n_rows: int, n_bounds: int) -> BoundState:
    """Return state in which every bound fails, with `n_bounds` lower bounds per row."""
    return BoundState(
        np.full(n_rows, -1, np.int32),
        np.full(n_rows, np.inf, np.float32),
        np.full((n_rows, n_bounds), -np.inf, np.float32),
    )


@dataclass
class Changes(Additive):
    """Changes that a pass made.

    Attributes
    ----------
    moved : KMeansStatistics
        Sums and weights that clusters gained, less those they lost.
    n_moved, n_touched, n_distances : int
        Rows that changed their label, rows visited, and distances computed.
    """

    moved: KMeansStatistics
    n_moved: int = 0
    n_touched: int = 0
    n_distances: int = 0


@dataclass(frozen=True)
class Bounded:
    """`BoundedParams`, prepared for the rows of a task; kinds of bounds may add to it."""

    params: BoundedParams
    grids: Grids
    margin: np.ndarray
    panels: Panels

    @cached_property
    def previous(self) -> PreparedCentres | None:
        """The centres of the previous call, prepared only if labels were lost."""
        return None if self.params.previous is None else PreparedCentres(self.params.previous)

    @cached_property
    def near(self) -> Centres:
        """The centres, as kernels take them."""
        return Centres(self.params.centres, self.panels.data, self.panels.offset)


def prepare(params: BoundedParams, panels: Panels | None = None) -> Bounded:
    """Pack centres, if not yet done, and set up grids, once per task."""
    panels = pack(params.centres) if panels is None else panels
    margin = score_margin(params.centres, panels.offset, params.scale)
    return Bounded(params, Grids.of(params.scale), margin, panels)


def score_margin(centres: np.ndarray, offset: np.ndarray, scale: Scale) -> np.ndarray:
    """Return the least difference of squared distances that scores can resolve.

    A score is a chain of d + 1 roundings of terms that sum to at most |x'||c'| + |c'|^2, and x' and
    c' are rounded themselves: d + 4 terms. With C the largest |c'| and |x'| <= u + C
    for a row at distance u from some centre, the squared distances of two centres are in the order of
    their scores if they differ by more than ``slope * u + constant``.

    Returns
    -------
    ndarray of shape (2,), float64
        Slope and constant; infinite where scores might overflow.
    """
    squared = np.empty(len(centres))
    sqdist_to_one(centres, offset, squared)
    far = float(np.sqrt(squared.max()))
    unit = float(np.finfo(centres.dtype).eps) / 2
    slope = 4.04 * (centres.shape[1] + 4) * unit * far
    largest = far + sum(float(np.sqrt((v * v).sum())) for v in (scale.max_abs, offset))
    if centres.dtype == np.float32 and not far * largest < _MOST_SCORE:
        return np.array([np.inf, np.inf])
    return np.array([slope, 2.0 * slope * far])


def zero(prepared: Bounded) -> Changes:
    """Return no change."""
    scale, (k, d) = prepared.params.scale, prepared.params.centres.shape
    return Changes(KMeansStatistics.zero(k, d, weighted=scale.weighted, two_grids=scale.two_grids))


_PIECE_ROWS = 1 << 15
"""Rows that are assigned together: those that fail take some 40 bytes each in addition to their state."""


@dataclass(frozen=True)
class BoundedPass:
    """Base of the passes with bounds: the shared part, and the methods in which kinds differ.

    Attributes
    ----------
    failing : callable (prepared, state, margin) -> ndarray of int64
        Rows whose bounds do not prove that their label stays, ascending.
    reassign : callable (some, prepared, into, state) -> (moved, old)
        Reassigns rows: sets labels and bounds, counts distances. Returns which rows moved, as
        indices of `some`, and the labels they had.
    """

    failing: Callable[[Any, BoundState, np.ndarray], np.ndarray]
    reassign: Callable[[Gathered, Any, Changes, BoundState], tuple[np.ndarray, np.ndarray]]

    def reduction(
        self,
        name: str,
        row_bytes: int,
        fresh: Callable[[int, Any], BoundState],
        prepare: Callable[[Any], Bounded],
    ) -> StatefulReduction:
        """Return the pass as a reduction."""
        return StatefulReduction(
            name=name,
            row_bytes=row_bytes,
            zero=zero,
            fresh=fresh,
            rebuild=label_before,
            filter_rows=self.filter_rows,
            chunk=self.chunk,
            prepare=prepare,
        )

    def filter_rows(self, prepared: Bounded, into: Changes, state: BoundState) -> np.ndarray:
        """Return the mask of the failing rows."""
        mask = np.zeros(state.n_rows, bool)
        for first, part in _pieces(state):
            mask[first + self.failing(prepared, part, prepared.margin)] = True
        return mask

    def chunk(self, chunk: Chunk, prepared: Bounded, into: Changes, state: BoundState) -> None:
        """Reassign the failing rows of a chunk."""
        if prepared.panels.tile == PORTABLE:
            _reassign_plainly(chunk, prepared, into, state)
        else:
            for first, part in _pieces(state):
                failing = self.failing(prepared, part, prepared.margin)
                for some in gathered(chunk.slice(first, first + part.n_rows), failing):
                    into.n_touched += len(some.which)
                    moved, old = self.reassign(some, prepared, into, part)
                    _note(some, moved, old, prepared, into, part)
        params = prepared.params
        if params.labels is not None and params.relabel:
            params.labels[chunk.start : chunk.stop] = state.labels


def _pieces(state: BoundState) -> Iterator[tuple[int, BoundState]]:
    """Yield runs of rows, each with its start."""
    for first in range(0, state.n_rows, _PIECE_ROWS):
        yield first, state.rows(first, min(first + _PIECE_ROWS, state.n_rows))


def label_before(chunk: Chunk, prepared: Bounded, state: BoundState) -> None:
    """Label rows as they were before this pass; where bounds are lost, all rows are reassigned."""
    if prepared.previous is None:
        return
    for block in chunk.cache_blocks():
        first = block.start - chunk.start
        prepared.previous.nearest(block.rows, state.labels[first : first + block.n_rows])


def _note(
    some: Gathered,
    moved: np.ndarray,
    old: np.ndarray,
    prepared: Bounded,
    into: Changes,
    state: BoundState,
) -> None:
    """Note the rows that moved, given as indices of `some`, and the labels they had."""
    if not len(moved):
        return
    which = some.which[moved]
    new = state.labels[which]
    weights = None if some.weights is None else some.weights[moved]
    prepared.grids.move(some.rows, some.at[moved], weights, old, new, into.moved)
    into.n_moved += len(moved)
    kept = prepared.params.labels
    if kept is not None:
        kept[some.start + which] = new


def _reassign_plainly(chunk: Chunk, prepared: Bounded, into: Changes, state: BoundState) -> None:
    """Label all rows of a chunk without bounds, for CPUs without a register tile."""
    for some in gathered(chunk, np.arange(chunk.n_rows)):
        rows = some.rows[: len(some.which)]
        new = np.empty(len(rows), np.int32)
        nearest(rows, prepared.panels, new)
        old = state.labels[some.which]
        state.labels[some.which] = new
        moved = np.flatnonzero(new != old)
        _note(some, moved, old[moved], prepared, into, state)
    into.n_touched += chunk.n_rows
    into.n_distances += chunk.n_rows * prepared.panels.k
