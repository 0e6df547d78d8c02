"""Assignment within one lower bound for every centre, for few centres in many dimensions.

As `daskcluster.chunkwise.bounded`, but a row that fails is measured against single centres where it
stands; only rows that fail for many centres, or that rounding leaves in doubt, go through the tile.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.bounded import BoundedParams, Changes, score_margin
from daskcluster.chunkwise.gathered import LocalScratch, Scratch, gathered, in_order
from daskcluster.chunkwise.grids import Grids
from daskcluster.chunkwise.reduction import StatefulReduction
from daskcluster.chunkwise.statistics import KMeansStatistics
from daskcluster.kernels.elkan import renew, revise
from daskcluster.kernels.groups import screen_groups
from daskcluster.kernels.tile import Panels, nearest, pack

State = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Labels (n,) int32, upper bounds (n,) and lower bounds (n, k) float32 of a run of rows."""


@dataclass(frozen=True)
class ElkanParams:
    """`BoundedParams`, and half the distances between centres, shape (k, k), float32, never too large."""

    bounded: BoundedParams
    halves: np.ndarray


@dataclass(frozen=True)
class _Prepared:
    params: BoundedParams
    halves: np.ndarray
    panels: Panels
    relaxed: np.ndarray
    grids: Grids
    margin: np.ndarray
    previous: Panels | None
    local: LocalScratch = field(default_factory=LocalScratch)

    @property
    def scratch(self) -> Scratch:
        return self.local.get(self.panels.d, self.panels.dtype)


def _prepare(params: ElkanParams) -> _Prepared:
    bounded = params.bounded
    panels = pack(bounded.centres)
    return _Prepared(
        bounded,
        params.halves,
        panels,
        np.nextafter(bounded.drift[0].astype(np.float32), np.float32(np.inf)),
        Grids.of(bounded.scale),
        score_margin(bounded.centres, panels.offset, bounded.scale),
        None if bounded.previous is None else pack(bounded.previous),
    )


def _zero(prepared: _Prepared) -> Changes:
    scale, (k, d) = prepared.params.scale, prepared.params.centres.shape
    return Changes(KMeansStatistics.zero(k, d, weighted=scale.weighted, two_grids=scale.two_grids))


def _fresh(n_rows: int, prepared: _Prepared) -> State:
    return (
        np.full(n_rows, -1, np.int32),
        np.full(n_rows, np.inf, np.float32),
        np.full((n_rows, prepared.panels.k), -np.inf, np.float32),
    )


def _rebuild(chunk: Chunk, prepared: _Prepared, state: State) -> None:
    if prepared.previous is None:
        return
    for block in chunk.cache_blocks(unit=prepared.params.unit):
        first = block.start - chunk.start
        nearest(block.rows, prepared.previous, state[0][first : first + block.n_rows])


def _failing(prepared: _Prepared, state: State) -> np.ndarray:
    labels, upper, lower = state
    failing = np.empty(len(labels), np.int64)
    drift, margin = prepared.params.drift, prepared.margin
    return failing[: screen_groups(labels, upper, lower, drift, prepared.relaxed, margin, failing)]


def _wanted(prepared: _Prepared, into: Changes, state: State) -> np.ndarray:
    mask = np.zeros(len(state[0]), bool)
    mask[_failing(prepared, state)] = True
    return mask


def _revise_chunk(chunk: Chunk, prepared: _Prepared, into: Changes, state: State) -> None:
    moved = into.n_moved
    unit, most = prepared.params.unit, prepared.scratch.n_rows
    if len(state[1]) and state[1][0] == np.inf:  # never set: fresh, or made anew
        for block, which in in_order(chunk, most, unit=unit):
            _renew(block, which, prepared, into, state)
        into.n_touched += chunk.n_rows
    else:
        for which, rows, at in gathered(chunk, _failing(prepared, state), most, unit=unit):
            _revise(chunk, which, rows, at, prepared, into, state)
    labels = prepared.params.labels
    if labels is not None and into.n_moved > moved:
        labels[chunk.start : chunk.stop] = state[0]


def _revise(
    chunk: Chunk,
    which: np.ndarray,
    rows: np.ndarray,
    at: np.ndarray,
    prepared: _Prepared,
    into: Changes,
    state: State,
) -> None:
    params, scratch = prepared.params, prepared.scratch
    labels, upper, lower = state
    new, left = scratch.winners[: len(which)], scratch.kept
    n_left, computed = revise(
        rows, at, which, params.centres, prepared.halves, labels, upper, lower, params.drift,
        prepared.relaxed, prepared.margin, new, left,
    )  # fmt: skip
    into.n_touched += len(which)
    into.n_distances += computed
    undecided = left[:n_left]
    moved = np.flatnonzero(new != labels[which])
    moved = np.setdiff1d(moved, undecided, assume_unique=True)
    if len(moved):
        _move(
            _block(chunk, rows, at, which, moved), which[moved], new[moved], prepared, into, state
        )
    if n_left:
        some = which[undecided]
        _renew(_block(chunk, rows, at, which, undecided), some, prepared, into, state)


def _block(
    chunk: Chunk, rows: np.ndarray, at: np.ndarray, which: np.ndarray, part: np.ndarray
) -> Chunk:
    weights = None if chunk.weights is None else chunk.weights[which[part]]
    return Chunk(rows[at[part]], chunk.start, weights)


def _renew(
    block: Chunk,
    which: np.ndarray,
    prepared: _Prepared,
    into: Changes,
    state: State,
) -> None:
    """Let the tiles decide, and set all bounds."""
    params = prepared.params
    new = np.empty(len(which), np.int32)
    nearest(block.rows, prepared.panels, new)
    renew(block.rows, which, new, params.centres, params.drift, state[1], state[2])
    into.n_distances += 2 * len(which) * prepared.panels.k
    _move(block, which, new, prepared, into, state)


def _move(
    block: Chunk,
    which: np.ndarray,
    new: np.ndarray,
    prepared: _Prepared,
    into: Changes,
    state: State,
) -> None:
    old = state[0][which]
    prepared.grids.move(block, old, new, into.moved)
    into.n_moved += int(np.count_nonzero(old != new))
    state[0][which] = new


def elkan(n_clusters: int) -> StatefulReduction:
    """Return the reduction ``ElkanParams -> Changes`` for so many centres."""
    return StatefulReduction(
        name="assign within bounds of centres",
        row_bytes=8 + 4 * n_clusters,
        zero=_zero,
        fresh=_fresh,
        rebuild=_rebuild,
        screen=_wanted,
        chunk=_revise_chunk,
        combine=Changes.combine,
        prepare=_prepare,
    )
