"""Assignment that bounds make cheap: only rows whose label may change are looked at.

Filter, compact, tile: the bounds of all rows are screened (12 bytes a row), rows that fail are
measured against their own centre, and those that still fail are gathered and go through the tile
together. The statistics that come back are *changes*: rows that moved, taken out of one cluster
and added to another. Sums are exact, so totals that are kept up by changes have the bits of totals
made anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.exact_sum import Scale
from daskcluster.chunkwise.gathered import LocalScratch, Scratch, gathered, in_order
from daskcluster.chunkwise.grids import Grids
from daskcluster.chunkwise.reduction import StatefulReduction
from daskcluster.chunkwise.statistics import KMeansStatistics
from daskcluster.kernels.bounds import screen, settle, tighten
from daskcluster.kernels.tile import Panels, nearest, nearest_two, pack

ROW_BYTES = 12
"""State of a row: its label and two bounds."""
_MOST = 1e36

State = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Labels (int32), upper and lower bounds (float32) of a run of rows."""


@dataclass(frozen=True)
class BoundedParams:
    """Where centres are, where they were, and how far they have gone.

    Attributes
    ----------
    centres : ndarray of shape (k, d)
    previous : ndarray of shape (k, d), or None
        Those of the call before, which lost labels are made from; None in the first call.
    drift : ndarray of shape (3, k), float64
        See `daskcluster.kernels.bounds.screen`.
    scale : Scale
    unit : bool
        Cosine metric: rows are scaled to length one first.
    labels : ndarray of shape (n,), int32, or None
        OUT. Where labels are kept as well, by global row index (only within one process).
    """

    centres: np.ndarray
    previous: np.ndarray | None
    drift: np.ndarray
    scale: Scale
    unit: bool = False
    labels: np.ndarray | None = None


@dataclass
class Changes:
    """What a pass changed.

    Attributes
    ----------
    moved : KMeansStatistics
        Sums and weights that clusters gained, less those they lost.
    n_moved, n_touched, n_distances : int
        Rows that changed their label, rows that were looked at, distances that were computed.
    """

    moved: KMeansStatistics
    n_moved: int = 0
    n_touched: int = 0
    n_distances: int = 0

    def combine(self, other: Changes) -> Changes:
        self.moved.combine(other.moved)
        self.n_moved += other.n_moved
        self.n_touched += other.n_touched
        self.n_distances += other.n_distances
        return self


@dataclass(frozen=True)
class _Prepared:
    params: BoundedParams
    panels: Panels
    grids: Grids
    margin: np.ndarray
    previous: Panels | None
    local: LocalScratch = field(default_factory=LocalScratch)

    @property
    def k(self) -> int:
        return self.panels.k


def _prepare(params: BoundedParams) -> _Prepared:
    panels = pack(params.centres)
    previous = None if params.previous is None else pack(params.previous)
    grids = Grids.of(params.scale)
    margin = score_margin(params.centres, panels.offset, params.scale)
    return _Prepared(params, panels, grids, margin, previous)


def score_margin(centres: np.ndarray, offset: np.ndarray, scale: Scale) -> np.ndarray:
    """Return by how much squared distances must differ for scores to tell them apart.

    A score is a chain of d + 1 roundings of terms that sum to at most |x'||c'| + |c'|^2, and x' and
    c' are rounded themselves. With C the largest |c'| and |x'| <= u + C for a row at distance u from
    some centre, the squared distances of two centres are in the order of their scores if they differ by
    more than ``slope * u + constant``.

    Returns
    -------
    ndarray of shape (2,), float64
        Slope and constant; infinite where scores might overflow.
    """
    gaps = centres.astype(np.float64) - offset
    far = float(np.sqrt((gaps * gaps).sum(axis=1).max()))
    unit = float(np.finfo(centres.dtype).eps) / 2
    slope = 4.04 * (centres.shape[1] + 4) * unit * far
    largest = far + float(np.linalg.norm(scale.max_abs)) + float(np.linalg.norm(offset))
    if centres.dtype == np.float32 and not far * largest < _MOST:
        return np.array([np.inf, np.inf])
    return np.array([slope, 2.0 * slope * far])


def _zero(prepared: _Prepared) -> Changes:
    scale, (k, d) = prepared.params.scale, prepared.params.centres.shape
    return Changes(KMeansStatistics.zero(k, d, weighted=scale.weighted, two_grids=scale.two_grids))


def _fresh(n_rows: int, prepared: _Prepared) -> State:
    return (
        np.full(n_rows, -1, np.int32),
        np.full(n_rows, np.inf, np.float32),
        np.full(n_rows, -np.inf, np.float32),
    )


def _rebuild(chunk: Chunk, prepared: _Prepared, state: State) -> None:
    """Label rows as they were before this pass; without bounds, so all of them are looked at."""
    if prepared.previous is None:
        return
    for block in chunk.cache_blocks(unit=prepared.params.unit):
        nearest(block.rows, prepared.previous, state[0][_span(block, chunk)])


def _span(block: Chunk, chunk: Chunk) -> slice:
    return slice(block.start - chunk.start, block.stop - chunk.start)


def _failing(prepared: _Prepared, state: State) -> np.ndarray:
    labels, upper, lower = state
    failing = np.empty(len(labels), np.int64)
    drift = prepared.params.drift
    return failing[: screen(labels, upper, lower, drift, prepared.margin, failing)]


def _wanted(prepared: _Prepared, into: Changes, state: State) -> np.ndarray:
    mask = np.zeros(len(state[0]), bool)
    mask[_failing(prepared, state)] = True
    return mask


def _revise_chunk(chunk: Chunk, prepared: _Prepared, into: Changes, state: State) -> None:
    failing = _failing(prepared, state)
    moved = into.n_moved
    # Where most rows fail, reading them in order beats gathering them.
    if 2 * len(failing) > chunk.n_rows:
        _revise_all(chunk, prepared, into, state)
    elif len(failing):
        _revise_some(chunk, failing, prepared, into, state)
    labels = prepared.params.labels
    if labels is not None and into.n_moved > moved:
        labels[chunk.start : chunk.stop] = state[0]


def _revise_all(chunk: Chunk, prepared: _Prepared, into: Changes, state: State) -> None:
    scratch = prepared.local.get(prepared.panels.d, prepared.panels.dtype)
    nothing = np.empty(0)
    for block, which in in_order(chunk, scratch.n_rows, unit=prepared.params.unit):
        _settle(block, which, nothing, scratch, prepared, into, state)
    into.n_touched += chunk.n_rows


def _revise_some(
    chunk: Chunk, failing: np.ndarray, prepared: _Prepared, into: Changes, state: State
) -> None:
    params, scratch = prepared.params, prepared.local.get(prepared.panels.d, prepared.panels.dtype)
    for which, rows, at in gathered(chunk, failing, scratch.n_rows, unit=params.unit):
        count = tighten(
            rows,
            at,
            which,
            params.centres,
            *state,
            params.drift,
            prepared.margin,
            scratch.kept,
            scratch.distances,
            scratch.rows,
        )
        into.n_touched += len(which)
        into.n_distances += len(which)
        if count:
            kept = scratch.kept[:count]
            weights = None if chunk.weights is None else chunk.weights[kept]
            block = Chunk(scratch.rows[:count], chunk.start, weights)
            _settle(block, kept, scratch.distances[:count], scratch, prepared, into, state)


def _settle(
    block: Chunk,
    which: np.ndarray,
    distances: np.ndarray,
    scratch: Scratch,
    prepared: _Prepared,
    into: Changes,
    state: State,
) -> None:
    """Send rows through the tile; give them labels and bounds, and the clusters what moved."""
    params, count = prepared.params, len(which)
    winners, old = scratch.winners[:count], scratch.old[:count]
    _two_nearest(block.rows, count, scratch, prepared.panels)
    settle(
        block.rows,
        which,
        winners,
        scratch.scores[:count],
        distances,
        params.centres,
        *state,
        params.drift,
        prepared.margin,
        old,
    )
    prepared.grids.move(block, old, winners, into.moved)
    into.n_moved += int(np.count_nonzero(old != winners))
    into.n_distances += count * prepared.k


def _two_nearest(rows: np.ndarray, count: int, scratch: Scratch, panels: Panels) -> None:
    block = panels.tile.rows
    if count < block <= scratch.n_rows:
        # A whole block, the last rows of which are of no interest, is faster than part of one.
        scratch.rows[:count] = rows
        rows, count = scratch.rows[:block], block
    nearest_two(
        rows, panels, scratch.winners[:count], scratch.seconds[:count], scratch.scores[:count]
    )


HAMERLY = StatefulReduction(
    name="assign within bounds",
    row_bytes=ROW_BYTES,
    zero=_zero,
    fresh=_fresh,
    rebuild=_rebuild,
    screen=_wanted,
    chunk=_revise_chunk,
    combine=Changes.combine,
    prepare=_prepare,
)
"""`BoundedParams` -> `Changes`, with one lower bound a row."""
