"""A pass with bounds of any kind: the state of rows, and how rows whose bound fails are reassigned.

Filter, compact, tile: the bounds of all rows are filtered, rows that fail are measured against their own
centre, and those that still fail go through the tile together. The statistics that come back are
*changes*: rows that moved, taken out of one cluster and added to another. Sums are exact, so
totals updated by changes have the bits of totals computed from scratch.

Out of core a storage chunk is read for a single failing row, and with rows in random order almost every
chunk holds one. So a work item keeps a compact copy of some of its rows, within a budget: its
`NearBoundaryCache`. A pass visits these before it is decided what is read; the results are the same, since
no row depends on another. They are chosen whenever a chunk has been read, as those of its rows whose bounds
have the least left then: rows near the border of two clusters. To keep rows *because* they have failed
saves next to nothing, since bounds are tight again after a visit, and next time others fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from daskcluster.chunk import BLOCK_BYTES, Chunk, compute_dtype
from daskcluster.chunkwise.centres import PreparedCentres, csr
from daskcluster.chunkwise.exact_sum import Grids, Scale
from daskcluster.chunkwise.pruned import FixedSearch
from daskcluster.chunkwise.statistics import Additive, KMeansStatistics, StatefulReduction
from daskcluster.kernels.distance import sqdist_to_one
from daskcluster.kernels.jit import read_only
from daskcluster.kernels.panels import PORTABLE, Panels
from daskcluster.kernels.tile import nearest
from daskcluster.methods.kmeans.kernels.bounds import (
    OWN,
    Centres,
    Listed,
    Moved,
    SparseListed,
    State,
)
from daskcluster.sparse_rows import INDEX_DTYPE, Rows, SparseRows

_INDEX_BYTES = 4
_WEIGHT_BYTES = 8


class NearBoundaryCache:
    """Copies of some rows of a unit, and of their weights.

    Memory is allocated with the first rows, since their dtype is known only then; work items whose rows
    are in memory anyway never have any.

    Parameters
    ----------
    n_rows : int
        Rows of the unit.
    row_bytes : int
        Bytes to spend for each of these, kept or not.

    Attributes
    ----------
    turn : object or None
        `Bounded.turn` of the last pass that reassigned the cached rows before any chunk was read.

    Examples
    --------
    >>> import numpy as np
    >>> recent = NearBoundaryCache(n_rows=4, row_bytes=6)
    >>> chunk = Chunk(np.array([[1.0], [2.0], [3.0], [4.0]], np.float32))
    >>> recent.room(chunk, 0)
    3
    >>> recent.replace(chunk, 0, np.array([1, 3]))
    >>> recent.index.tolist(), recent.rows().rows.ravel().tolist()
    ([1, 3], [2.0, 4.0])
    """

    def __init__(self, n_rows: int, row_bytes: int) -> None:
        self.turn: object = None
        self._n_rows = n_rows
        self._most_bytes = n_rows * row_bytes
        self._count = 0
        self._index = np.empty(0, np.int32)
        self._rows: Chunk | None = None

    @property
    def index(self) -> np.ndarray:
        """Places of the kept rows in their unit, int32 (m,), in no order."""
        return self._index[: self._count]

    @property
    def nbytes(self) -> int:
        rows = self._rows
        if rows is None:
            return 0
        weights = 0 if rows.weights is None else rows.weights.nbytes
        return self._index.nbytes + int(rows.rows.nbytes) + weights

    def rows(self) -> Chunk:
        """Return the kept rows, in the order of `index`; its `start` is that of the unit."""
        assert self._rows is not None
        return self._rows.slice(0, self._count)

    def room(self, chunk: Chunk, first: int) -> int:
        """Return how many rows of a chunk may be kept, in place of those that are.

        Its share, so that chunks which are read later find room as well.

        Parameters
        ----------
        chunk : Chunk
        first : int
            Place of its first row in the unit.
        """
        capacity = self._capacity(chunk)
        others = int(np.count_nonzero(~self._within(chunk, first)))
        return min(capacity * chunk.n_rows // self._n_rows, capacity - others)

    def replace(self, chunk: Chunk, first: int, which: np.ndarray) -> None:
        """Keep these rows of a chunk, and none of its others.

        Parameters
        ----------
        chunk : Chunk
        first : int
            Place of its first row in the unit.
        which : ndarray of shape (m,), int64
            Indices in the chunk, at most `room`.
        """
        kept = self._rows if self._rows is not None else self._allocate(chunk, first)
        others = np.flatnonzero(~self._within(chunk, first))
        if len(others) < self._count:
            self._put(kept, slice(0, len(others)), self.rows(), others, self.index[others])
        self._count = len(others) + len(which)
        self._put(kept, slice(len(others), self._count), chunk, which, which + first)

    def _put(
        self, kept: Chunk, places: slice, rows: Chunk, which: np.ndarray, index: np.ndarray
    ) -> None:
        self._index[places] = index
        kept.rows[places] = rows.rows[which]
        if kept.weights is not None and rows.weights is not None:
            kept.weights[places] = rows.weights[which]

    def _within(self, chunk: Chunk, first: int) -> np.ndarray:
        return (self.index >= first) & (self.index < first + chunk.n_rows)

    def _capacity(self, chunk: Chunk) -> int:
        weight = 0 if chunk.weights is None else _WEIGHT_BYTES
        row = chunk.rows.shape[1] * chunk.rows.dtype.itemsize
        return min(self._n_rows, self._most_bytes // (row + _INDEX_BYTES + weight))

    def _allocate(self, chunk: Chunk, first: int) -> Chunk:
        capacity = self._capacity(chunk)
        self._index = np.empty(capacity, np.int32)
        self._rows = Chunk(
            np.empty((capacity, chunk.rows.shape[1]), chunk.rows.dtype),
            chunk.start - first,
            None if chunk.weights is None else np.empty(capacity),
            chunk.normalize,
        )
        return self._rows


@dataclass(frozen=True)
class Gathered:
    """Some rows of a chunk.

    Attributes
    ----------
    which : ndarray of shape (m,), int64
        Their positions in the state.
    rows : Rows, shape (>= m, d)
        Ready for the kernels, dense or CSR.
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
        """Dense rows, as kernels take them."""
        return Listed(read_only(self.rows), self.at, self.which)

    @property
    def listed_sparse(self) -> SparseListed:
        """CSR rows, as kernels take them."""
        return SparseListed(*csr(self.rows), self.at, self.which)

    def moved(self) -> Moved:
        """Return room for all of them to move."""
        return Moved(np.empty(len(self.which), np.int64), np.empty(len(self.which), np.int32))


def gathered(
    chunk: Chunk, at: np.ndarray, *, which: np.ndarray | None = None
) -> Iterator[Gathered]:
    """Yield the rows `at` of a chunk: in place if possible, else in converted blocks.

    Parameters
    ----------
    chunk : Chunk
    at : ndarray of shape (m,), int64
    which : ndarray of shape (m,), int64, optional
        Positions of the rows in the state, if they differ from those in the chunk.
    """
    if not len(at):
        return
    rows, which = chunk.rows, at if which is None else which
    weights = None if chunk.weights is None else chunk.weights[at]
    if not chunk.normalize and _are_ready(rows):
        yield Gathered(which, rows, at, weights, chunk.start)
        return
    step = max(1, BLOCK_BYTES // max(1, _row_bytes(rows)))
    for first in range(0, len(at), step):
        part = slice(first, first + step)
        yield Gathered(
            which[part],
            chunk.choose(at[part]).computed(),
            np.arange(len(which[part])),
            None if weights is None else weights[part],
            chunk.start,
        )


def _are_ready(rows: Rows) -> bool:
    """Return True if kernels take the rows as they are."""
    if rows.dtype != compute_dtype(rows.dtype):
        return False
    if isinstance(rows, SparseRows):
        return rows.indices.dtype == INDEX_DTYPE
    return bool(rows.flags.c_contiguous)


def _row_bytes(rows: Rows) -> int:
    """Return the bytes of a row as kernels take it; of CSR rows, on average."""
    item = compute_dtype(rows.dtype).itemsize
    if isinstance(rows, SparseRows):
        return (item + INDEX_DTYPE.itemsize) * len(rows.data) // max(1, len(rows))
    return item * int(rows.shape[1])


_MOST_SCORE = 1e36


@dataclass(frozen=True)
class BoundedParams:
    """Centres now and before, and the distances they moved.

    Attributes
    ----------
    centres : ndarray of shape (k, d)
    previous : ndarray of shape (k, d), or None
        Centres of the previous call, from which lost labels are recomputed; None in the first call.
    drift : ndarray of shape (3, k), float64
        See `daskcluster.methods.kmeans.kernels.bounds.filter_rows`.
    scale : Scale
    labels : ndarray of shape (n,), int32, or None
        OUT. Where labels are kept as well, by global row index (only within one process).
    relabel : bool
        `labels` was changed elsewhere since the last call: write those of all rows, not only of rows that
        moved.
    recent_bytes : int
        Bytes for each row of a unit that may be spent on copies of some of its rows, which are not read
        again (only where rows would have to be read); see `daskcluster.methods.kmeans.chunkwise.bounded`.
        To be the same in all calls, and in the reduction.
    most_entries : int
        For sparse rows: the most values that one of them stores.
    search : FixedSearch, optional
        For rows that need so many centres that a search of all of them is faster.
    """

    centres: np.ndarray
    previous: np.ndarray | None
    drift: np.ndarray
    scale: Scale
    labels: np.ndarray | None = None
    recent_bytes: int = 0
    relabel: bool = False
    most_entries: int = 0
    search: FixedSearch | None = None


@dataclass(frozen=True)
class BoundState:
    """Labels and bounds of a run of rows.

    Attributes
    ----------
    labels : ndarray of shape (n,), int32
    upper : ndarray of shape (n,), float32
    lower : ndarray of shape (n,), or of shape (n, g), float32
    recent : NearBoundaryCache or None
        Cache of the whole unit.
    first : int
        Start of the run in its work item.
    """

    labels: np.ndarray
    upper: np.ndarray
    lower: np.ndarray
    recent: NearBoundaryCache | None = None
    first: int = 0

    @property
    def arrays(self) -> State:
        """Labels, upper and lower bounds, as kernels take them."""
        return State(self.labels, self.upper, self.lower)

    @property
    def n_rows(self) -> int:
        return len(self.labels)

    @property
    def nbytes(self) -> int:
        kept = 0 if self.recent is None else self.recent.nbytes
        return sum(part.nbytes for part in self.arrays) + kept

    def rows(self, first: int, last: int) -> BoundState:
        """Return a view of rows `first` to `last`."""
        if first == 0 and last == self.n_rows:
            return self
        part = slice(first, last)
        bounds = self.upper[part], self.lower[part]
        return BoundState(self.labels[part], *bounds, self.recent, self.first + first)

    def every(self, step: int) -> BoundState:
        """Return a copy of every `step`-th row."""
        part = slice(None, None, step)
        return BoundState(
            self.labels[part].copy(), self.upper[part].copy(), self.lower[part].copy()
        )

    def filtered(self, turn: object) -> NearBoundaryCache | None:
        """Return the cached rows if their failing rows were already assigned in this turn."""
        return self.recent if self.recent is not None and self.recent.turn is turn else None


def fresh_state(n_rows: int, params: BoundedParams, *bounds: int) -> BoundState:
    """Return state in which every bound fails, with one lower bound per row, or with that many."""
    spent = params.recent_bytes
    return BoundState(
        np.full(n_rows, -1, np.int32),
        np.full(n_rows, np.inf, np.float32),
        np.full((n_rows, *bounds), -np.inf, np.float32),
        NearBoundaryCache(n_rows, spent) if spent else None,
    )


@dataclass
class Changes(Additive):
    """Changes that a pass made.

    Attributes
    ----------
    moved : KMeansStatistics
        Sums and weights that clusters gained, less those they lost.
    n_moved, n_touched, n_distances, n_searched : int
        Rows that changed their label, rows visited, distances computed, and rows that a search by bounds
        labelled, which counts all their distances.
    """

    moved: KMeansStatistics
    n_moved: int = 0
    n_touched: int = 0
    n_distances: int = 0
    n_searched: int = 0


@dataclass(frozen=True)
class Prepared:
    """`BoundedParams`, prepared for the rows of a task, dense or sparse.

    `turn` distinguishes this preparation from all others, including those of earlier passes.
    """

    params: BoundedParams
    grids: Grids
    margin: np.ndarray
    turn: object

    @cached_property
    def previous(self) -> PreparedCentres | None:
        """The centres of the previous call, prepared only if labels were lost."""
        return None if self.params.previous is None else PreparedCentres(self.params.previous)


@dataclass(frozen=True)
class Bounded(Prepared):
    """`Prepared` for dense rows; kinds of bounds may add to it.

    `all_centres` are those of `panels`, if these are in order.
    """

    panels: Panels
    all_centres: PreparedCentres | None

    @cached_property
    def near(self) -> Centres:
        """The centres, as kernels take them."""
        return Centres(self.params.centres, self.panels.data, self.panels.offset)


def prepare(params: BoundedParams, panels: Panels | None = None) -> Bounded:
    """Pack centres, if not yet done, and set up grids, once per task."""
    all_centres = None
    if panels is None:
        all_centres = PreparedCentres(params.centres)
        panels = all_centres.panels
    margin = score_margin(params.centres, panels.offset, params.scale)
    return Bounded(params, Grids.of(params.scale), margin, object(), panels, all_centres)


def score_margin(
    centres: np.ndarray, offset: np.ndarray, scale: Scale, terms: float | None = None
) -> np.ndarray:
    """Return the least difference of squared distances that scores can resolve.

    A score is a chain of d + 1 roundings of terms that sum to at most |x'||c'| + |c'|^2, and x' and
    c' are rounded themselves: d + 4 `terms`, if none are given. With C the largest |c'| and |x'| <= u + C
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
    slope = 4.04 * (centres.shape[1] + 4 if terms is None else terms) * unit * far
    largest = far + sum(float(np.sqrt((v * v).sum())) for v in (scale.max_abs, offset))
    if centres.dtype == np.float32 and not far * largest < _MOST_SCORE:
        return np.array([np.inf, np.inf])
    return np.array([slope, 2.0 * slope * far])


def zero(prepared: Prepared) -> Changes:
    """Return no change."""
    scale, (k, d) = prepared.params.scale, prepared.params.centres.shape
    return Changes(KMeansStatistics.zero(k, d, weighted=scale.weighted, two_grids=scale.two_grids))


_PIECE_ROWS = 1 << 15
"""Rows that are assigned together: those that fail take some 40 bytes each in addition to their state."""

_SAMPLED = 2048
"""Rows, about, that stand for all while it is searched how much the bounds to keep have left."""
_OCTAVES, _HALVINGS = 24.0, 9


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
        prepare: Callable[[Any], Prepared],
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

    def filter_rows(self, prepared: Prepared, into: Changes, state: BoundState) -> np.ndarray:
        """Reassign the failing rows that are cached; return the mask of the others."""
        mask = np.zeros(state.n_rows, bool)
        for first, part in _pieces(state):
            mask[first + self.failing(prepared, part, prepared.margin)] = True
        recent = state.recent
        if recent is not None:
            recent.turn = prepared.turn
            at = np.flatnonzero(mask[recent.index])
            if len(at):
                which = recent.index[at].astype(np.int64)
                found = gathered(recent.rows(), at, which=which)
                self._reassign_all(found, prepared, into, state)
                mask[which] = False
        return mask

    def chunk(self, chunk: Chunk, prepared: Prepared, into: Changes, state: BoundState) -> None:
        """Reassign the failing rows of a chunk, except those that `filter_rows` already has."""
        self._look_at(chunk, prepared, into, state)
        params = prepared.params
        if params.labels is not None and params.relabel:
            params.labels[chunk.start : chunk.stop] = state.labels

    def _look_at(self, chunk: Chunk, prepared: Prepared, into: Changes, state: BoundState) -> None:
        if isinstance(prepared, Bounded) and prepared.panels.tile == PORTABLE:
            _reassign_plainly(chunk, prepared, into, state)
            return
        recent, n_failing = state.filtered(prepared.turn), 0
        for first, part in _pieces(state):
            failing = self.failing(prepared, part, prepared.margin)
            if recent is not None:
                mask = np.zeros(part.n_rows, bool)
                mask[failing] = True
                kept = recent.index - part.first
                mask[kept[(kept >= 0) & (kept < part.n_rows)]] = False
                failing = np.flatnonzero(mask)
            rows = chunk.slice(first, first + part.n_rows)
            some = gathered(rows, failing)
            self._reassign_all(some, prepared, into, part)
            n_failing += len(failing)
        if recent is not None:
            room = recent.room(chunk, state.first)
            # If more rows fail than fit, the chunk will be read again anyway.
            if room > 0 and n_failing <= room:
                soonest = self._soonest(prepared, state, room)
                recent.replace(chunk, state.first, soonest)

    def _reassign_all(
        self, parts: Iterable[Gathered], prepared: Prepared, into: Changes, state: BoundState
    ) -> None:
        for some in parts:
            into.n_touched += len(some.which)
            moved, old = self.reassign(some, prepared, into, state)
            _note(some, moved, old, prepared, into, state)

    def _soonest(self, prepared: Prepared, state: BoundState, most: int) -> np.ndarray:
        """Return about `most` rows, never more: those whose bounds have the least left."""
        sample = state.every(max(1, state.n_rows // _SAMPLED))
        enough = most * sample.n_rows // state.n_rows
        widest = float(sample.upper.max() + prepared.params.drift[OWN].max())
        low, high = -_OCTAVES, 0.0  # of gaps: late in a fit, small ones count
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            margin = _widened(prepared.margin, widest * 2.0**middle)
            if len(self.failing(prepared, sample, margin)) > enough:
                high = middle
            else:
                low = middle
        margin = _widened(prepared.margin, widest * 2.0**low)
        parts = [first + self.failing(prepared, part, margin) for first, part in _pieces(state)]
        return np.concatenate(parts)[:most]


def _pieces(state: BoundState) -> Iterator[tuple[int, BoundState]]:
    """Yield runs of rows, each with its start."""
    for first in range(0, state.n_rows, _PIECE_ROWS):
        yield first, state.rows(first, min(first + _PIECE_ROWS, state.n_rows))


def _widened(margin: np.ndarray, gap: float) -> np.ndarray:
    """Return the margin within which bounds fail if they differ by less than `gap`."""
    # The margin of u + gap, as a polynomial in u: see `kernels.bounds.threshold`.
    slope, constant = margin
    return np.array([slope + 2.0 * gap, constant + gap * (slope + gap)])


def label_before(chunk: Chunk, prepared: Prepared, state: BoundState) -> None:
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
    prepared: Prepared,
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
