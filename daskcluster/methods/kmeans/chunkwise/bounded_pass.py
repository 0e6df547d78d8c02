"""A pass with bounds of any kind: rows whose bound fails are reassigned, and rows that moved are returned.

Filter, compact, tile: the bounds of all rows are filtered, rows that fail are measured against their own
centre, and those that still fail go through the tile together. The statistics that come back are
*changes*: rows that moved, taken out of one cluster and added to another. Sums are exact, so
totals updated by changes have the bits of totals computed from scratch.

Out of core, cached rows come first (`daskcluster.methods.kmeans.chunkwise.recent`), before it is
decided what is read; the results are the same, since no row depends on another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.statistics import StatefulReduction
from daskcluster.kernels.panels import PORTABLE
from daskcluster.kernels.tile import nearest
from daskcluster.methods.kmeans.chunkwise.bounded import (
    Bounded,
    BoundState,
    Changes,
    Prepared,
    zero,
)
from daskcluster.methods.kmeans.chunkwise.gathered import Gathered, gathered
from daskcluster.methods.kmeans.chunkwise.recent import RecentRows
from daskcluster.methods.kmeans.kernels.bounds import OWN

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
            combine=Changes.combine,
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
        _relabel(chunk, prepared, state)
        if prepared.params.known is not None:
            _add_all(chunk, prepared, into, state)

    def _look_at(self, chunk: Chunk, prepared: Prepared, into: Changes, state: BoundState) -> None:
        if isinstance(prepared, Bounded) and prepared.panels.tile == PORTABLE:
            _reassign_plainly(chunk, prepared, into, state)
            return
        recent, n_failing = state.filtered(prepared.turn), 0
        for first, part in _pieces(state):
            failing = self.failing(prepared, part, prepared.margin)
            if recent is not None:
                failing = _unkept(failing, recent, part)
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


def _unkept(failing: np.ndarray, recent: RecentRows, state: BoundState) -> np.ndarray:
    """Return the failing rows of a run that are not cached."""
    mask = np.zeros(state.n_rows, bool)
    mask[failing] = True
    kept = recent.index - state.first
    mask[kept[(kept >= 0) & (kept < state.n_rows)]] = False
    return np.flatnonzero(mask)


def label_before(chunk: Chunk, prepared: Prepared, state: BoundState) -> None:
    """Label rows as they were before this pass; where bounds are lost, all rows are reassigned."""
    if prepared.params.known is not None:
        prepared.params.known.write(chunk.start, state)
        return
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
    if prepared.params.known is None:
        weights = None if some.weights is None else some.weights[moved]
        prepared.grids.move(some.rows, some.at[moved], weights, old, new, into.moved)
    into.n_moved += len(moved)
    kept = prepared.params.labels
    if kept is not None:
        kept[some.start + which] = new


def _add_all(chunk: Chunk, prepared: Prepared, into: Changes, state: BoundState) -> None:
    """Add all rows to their clusters: earlier sums of them were on other grids."""
    for some in gathered(chunk, np.arange(chunk.n_rows)):
        new = state.labels[some.which]
        old = np.full(len(new), -1, np.int32)
        prepared.grids.move(some.rows, some.at, some.weights, old, new, into.moved)


def _relabel(chunk: Chunk, prepared: Prepared, state: BoundState) -> None:
    """Write all labels of a chunk, if they are requested."""
    kept = prepared.params.labels
    if kept is not None and prepared.params.relabel:
        kept[chunk.start : chunk.stop] = state.labels


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
