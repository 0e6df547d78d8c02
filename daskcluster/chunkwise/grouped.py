"""Assignment within one lower bound for each group of centres, for many centres in many dimensions.

As `daskcluster.chunkwise.bounded`, but a row that fails meets only the groups whose bounds fail, so
the tile computes a part of the distances. (Ding et al., "Yinyang K-means", ICML 2015. Its groups come
from k-means on the initial centres; ours are of one size, whole panels of the tile.)
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
from daskcluster.kernels.groups import group_kernel, screen_groups, settle_groups, tighten_groups
from daskcluster.kernels.tile import Panels, nearest, pack, pack_groups

State = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Labels (n,) int32, upper bounds (n,) and lower bounds (n, g) float32 of a run of rows."""


@dataclass(frozen=True)
class GroupedParams:
    """`BoundedParams`, and the groups.

    Attributes
    ----------
    bounded : BoundedParams
    groups : tuple of ndarray of int32
        Centres of each group, ascending; all groups but the last have the same size.
    drift : ndarray of shape (g,), float64
        Accumulated drift of each group: the sum over steps of its longest one.
    """

    bounded: BoundedParams
    groups: tuple[np.ndarray, ...]
    drift: np.ndarray


@dataclass(frozen=True)
class _Prepared:
    params: BoundedParams
    panels: Panels
    order: np.ndarray
    per_group: int
    group_of: np.ndarray
    relaxed: np.ndarray
    drift: np.ndarray
    grids: Grids
    margin: np.ndarray
    previous: Panels | None
    local: LocalScratch = field(default_factory=LocalScratch)

    @property
    def n_groups(self) -> int:
        return len(self.relaxed)

    @property
    def scratch(self) -> Scratch:
        return self.local.get(self.panels.d, self.panels.dtype, self.n_groups)


def group_bytes(n_groups: int) -> int:
    """Return the bytes of state per row."""
    return 8 + 4 * n_groups


def _prepare(params: GroupedParams) -> _Prepared:
    bounded = params.bounded
    panels, order, per_group = pack_groups(bounded.centres, params.groups)
    group_of = np.empty(len(bounded.centres), np.int64)
    for number, group in enumerate(params.groups):
        group_of[group] = number
    return _Prepared(
        bounded,
        panels,
        order,
        per_group,
        group_of,
        np.nextafter(params.drift.astype(np.float32), np.float32(np.inf)),
        params.drift,
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
        np.full((n_rows, prepared.n_groups), -np.inf, np.float32),
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
    count = screen_groups(labels, upper, lower, drift, prepared.relaxed, margin, failing)
    return failing[:count]


def _wanted(prepared: _Prepared, into: Changes, state: State) -> np.ndarray:
    mask = np.zeros(len(state[0]), bool)
    mask[_failing(prepared, state)] = True
    return mask


def _revise_chunk(chunk: Chunk, prepared: _Prepared, into: Changes, state: State) -> None:
    moved = into.n_moved
    failing = _failing(prepared, state)
    known = bool(len(failing)) and state[0][failing[0]] >= 0 and np.isfinite(state[1][failing[0]])
    if len(failing) == chunk.n_rows and not known:
        _revise_all(chunk, prepared, into, state)
    elif len(failing):
        _revise_some(chunk, failing, prepared, into, state)
    labels = prepared.params.labels
    if labels is not None and into.n_moved > moved:
        labels[chunk.start : chunk.stop] = state[0]


def _revise_all(chunk: Chunk, prepared: _Prepared, into: Changes, state: State) -> None:
    """Look at rows without bounds."""
    scratch, nothing = prepared.scratch, np.empty(0)
    for block, which in in_order(chunk, scratch.n_rows, unit=prepared.params.unit):
        scratch.needed[: len(which)] = 1
        _settle(block, which, nothing, scratch, prepared, into, state)
    into.n_touched += chunk.n_rows


def _revise_some(
    chunk: Chunk, failing: np.ndarray, prepared: _Prepared, into: Changes, state: State
) -> None:
    params, scratch = prepared.params, prepared.scratch
    for which, rows, at in gathered(chunk, failing, scratch.n_rows, unit=params.unit):
        count = tighten_groups(
            rows, at, which, params.centres, *state, params.drift, prepared.relaxed,
            prepared.margin, prepared.group_of, scratch.kept, scratch.distances, scratch.rows,
            scratch.needed,
        )  # fmt: skip
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
    params, panels, count = prepared.params, prepared.panels, len(which)
    needed, scores, numbers = (
        scratch.needed[:count],
        scratch.scores[:count],
        scratch.numbers[:count],
    )
    winners, old = scratch.winners[:count], scratch.old[:count]
    search = group_kernel(panels.tile, panels.dtype)
    into.n_distances += search(
        block.rows, needed, panels.data, prepared.per_group, panels.offset, scores, numbers
    )
    settle_groups(
        block.rows, which, needed, scores, numbers, prepared.order, distances, params.centres,
        *state, params.drift, prepared.drift, prepared.margin, old, winners,
    )  # fmt: skip
    prepared.grids.move(block, old, winners, into.moved)
    into.n_moved += int(np.count_nonzero(old != winners))


def yinyang(n_groups: int) -> StatefulReduction:
    """Return the reduction ``GroupedParams -> Changes`` for so many groups."""
    return StatefulReduction(
        name="assign within bounds of groups",
        row_bytes=group_bytes(n_groups),
        zero=_zero,
        fresh=_fresh,
        rebuild=_rebuild,
        screen=_wanted,
        chunk=_revise_chunk,
        combine=Changes.combine,
        prepare=_prepare,
    )
