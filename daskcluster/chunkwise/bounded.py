"""Assignment that bounds make cheap: only rows whose label may change are looked at.

Filter, compact, tile: the bounds of all rows are screened (12 bytes a row), rows that fail are
measured against their own centre, and those that still fail go through the tile together. The
statistics that come back are *changes*: rows that moved, taken out of one cluster and added to
another. Sums are exact, so totals that are kept up by changes have the bits of totals made anew.

Here with one lower bound a row (Hamerly 2010), and what all kinds of bounds have in common.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.exact_sum import Scale
from daskcluster.chunkwise.gathered import Gathered, gathered
from daskcluster.chunkwise.grids import Grids
from daskcluster.chunkwise.reduction import StatefulReduction
from daskcluster.chunkwise.statistics import KMeansStatistics
from daskcluster.kernels.bounds import revise_kernel, screen
from daskcluster.kernels.panels import PORTABLE
from daskcluster.kernels.tile import Panels, nearest, pack

ROW_BYTES = 12
"""State of a row: its label and two bounds."""
_MOST_SCORE = 1e36

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
class Bounded:
    """`BoundedParams`, prepared for the rows of a task; other kinds of bounds add to it."""

    params: BoundedParams
    panels: Panels
    grids: Grids
    margin: np.ndarray
    previous: Panels | None


def prepare(params: BoundedParams) -> Bounded:
    """Pack centres and set up grids, once per task."""
    panels = pack(params.centres)
    previous = None if params.previous is None else pack(params.previous)
    margin = score_margin(params.centres, panels.offset, params.scale)
    return Bounded(params, panels, Grids.of(params.scale), margin, previous)


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
    if centres.dtype == np.float32 and not far * largest < _MOST_SCORE:
        return np.array([np.inf, np.inf])
    return np.array([slope, 2.0 * slope * far])


def zero(prepared: Bounded) -> Changes:
    """Return no change."""
    scale, (k, d) = prepared.params.scale, prepared.params.centres.shape
    return Changes(KMeansStatistics.zero(k, d, weighted=scale.weighted, two_grids=scale.two_grids))


def label_before(chunk: Chunk, prepared: Bounded, state: State) -> None:
    """Label rows as they were before this pass; without bounds, so all of them are looked at."""
    if prepared.previous is None:
        return
    for block in chunk.cache_blocks(unit=prepared.params.unit):
        first = block.start - chunk.start
        nearest(block.rows, prepared.previous, state[0][first : first + block.n_rows])


def mask_of(which: np.ndarray, n_rows: int) -> np.ndarray:
    """Return True for the rows `which`."""
    mask = np.zeros(n_rows, bool)
    mask[which] = True
    return mask


def move_rows(
    chunk: Chunk,
    some: Gathered,
    moved: np.ndarray,
    old: np.ndarray,
    prepared: Bounded,
    into: Changes,
    state: State,
) -> None:
    """Note the rows that moved, given as indices of `some`, and the labels they had."""
    if not len(moved):
        return
    which = some.which[moved]
    new = state[0][which]
    weights = None if chunk.weights is None else chunk.weights[which]
    prepared.grids.move(some.rows, some.at[moved], weights, old, new, into.moved)
    into.n_moved += len(moved)
    kept = prepared.params.labels
    if kept is not None:
        kept[chunk.start + which] = new


def revise_plainly(chunk: Chunk, prepared: Bounded, into: Changes, state: State) -> None:
    """Label all rows of a chunk without bounds, for CPUs without a register tile."""
    k = prepared.panels.k
    for some in gathered(chunk, np.arange(chunk.n_rows), unit=prepared.params.unit):
        rows = some.rows[: len(some.which)]
        new = np.empty(len(rows), np.int32)
        nearest(rows, prepared.panels, new)
        old = state[0][some.which]
        state[0][some.which] = new
        moved = np.flatnonzero(new != old)
        move_rows(chunk, some, moved, old[moved], prepared, into, state)
    into.n_touched += chunk.n_rows
    into.n_distances += chunk.n_rows * k


# -- one lower bound a row --------------------------------------------------------------------------


def _fresh(n_rows: int, prepared: Any) -> State:
    return (
        np.full(n_rows, -1, np.int32),
        np.full(n_rows, np.inf, np.float32),
        np.full(n_rows, -np.inf, np.float32),
    )


def _failing(prepared: Bounded, state: State) -> np.ndarray:
    labels, upper, lower = state
    failing = np.empty(len(labels), np.int64)
    drift = prepared.params.drift
    return failing[: screen(labels, upper, lower, drift, prepared.margin, failing)]


def _wanted(prepared: Bounded, into: Changes, state: State) -> np.ndarray:
    return mask_of(_failing(prepared, state), len(state[0]))


def _revise_chunk(chunk: Chunk, prepared: Bounded, into: Changes, state: State) -> None:
    if prepared.panels.tile == PORTABLE:
        revise_plainly(chunk, prepared, into, state)
        return
    params, panels = prepared.params, prepared.panels
    revise = revise_kernel(panels.tile, panels.dtype)
    for some in gathered(chunk, _failing(prepared, state), unit=params.unit):
        moved, old = np.empty(len(some.which), np.int64), np.empty(len(some.which), np.int32)
        n_kept, n_moved = revise(
            some.rows, some.at, some.which, params.centres, panels.data, panels.offset,
            *state, params.drift, prepared.margin, moved, old,
        )  # fmt: skip
        into.n_touched += len(some.which)
        into.n_distances += len(some.which) + n_kept * panels.k
        move_rows(chunk, some, moved[:n_moved], old[:n_moved], prepared, into, state)


HAMERLY = StatefulReduction(
    name="assign within bounds",
    row_bytes=ROW_BYTES,
    zero=zero,
    fresh=_fresh,
    rebuild=label_before,
    screen=_wanted,
    chunk=_revise_chunk,
    combine=Changes.combine,
    prepare=prepare,
)
"""`BoundedParams` -> `Changes`, with one lower bound a row."""
