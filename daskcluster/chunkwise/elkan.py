"""Assignment within one lower bound for every centre, for few centres in many dimensions.

As `daskcluster.chunkwise.bounded`, but a row that fails is measured against single centres where it
stands; only rows that fail for many centres, or that rounding leaves in doubt, go through the tile.
(Elkan, "Using the triangle inequality to accelerate k-means", ICML 2003.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.bounded import (
    Bounded,
    BoundedParams,
    Changes,
    State,
    label_before,
    mask_of,
    move_rows,
    prepare,
    revise_plainly,
    zero,
)
from daskcluster.chunkwise.gathered import Gathered, gathered
from daskcluster.chunkwise.reduction import StatefulReduction
from daskcluster.kernels.elkan import renew, revise
from daskcluster.kernels.groups import screen_groups
from daskcluster.kernels.panels import PORTABLE
from daskcluster.kernels.tile import nearest


@dataclass(frozen=True)
class ElkanParams:
    """`BoundedParams`, and half the distances between centres, shape (k, k), float32, never too large."""

    bounded: BoundedParams
    halves: np.ndarray


@dataclass(frozen=True)
class _Elkan(Bounded):
    halves: np.ndarray


def _prepare(params: ElkanParams) -> _Elkan:
    return _Elkan(**vars(prepare(params.bounded)), halves=params.halves)


def _fresh(n_rows: int, prepared: _Elkan) -> State:
    return (
        np.full(n_rows, -1, np.int32),
        np.full(n_rows, np.inf, np.float32),
        np.full((n_rows, prepared.panels.k), -np.inf, np.float32),
    )


def _failing(prepared: _Elkan, state: State) -> np.ndarray:
    failing = np.empty(len(state[0]), np.int64)
    drift = prepared.params.drift
    return failing[: screen_groups(*state, drift, drift[0], prepared.margin, failing)]


def _wanted(prepared: _Elkan, into: Changes, state: State) -> np.ndarray:
    return mask_of(_failing(prepared, state), len(state[0]))


def _revise_chunk(chunk: Chunk, prepared: _Elkan, into: Changes, state: State) -> None:
    if prepared.panels.tile == PORTABLE:
        revise_plainly(chunk, prepared, into, state)
        return
    for some in gathered(chunk, _failing(prepared, state), unit=prepared.params.unit):
        old = state[0][some.which]
        left = _revise(some, prepared, into, state)
        if len(left):
            _renew(some, left, prepared, into, state)
        moved = np.flatnonzero(state[0][some.which] != old)
        move_rows(chunk, some, moved, old[moved], prepared, into, state)


def _revise(some: Gathered, prepared: _Elkan, into: Changes, state: State) -> np.ndarray:
    """Measure rows where they stand; return those that are left, as indices of `some`."""
    left = np.empty(len(some.which), np.int64)
    n_left, computed = revise(
        some.rows, some.at, some.which, prepared.params.centres, prepared.halves, *state,
        prepared.params.drift, prepared.margin, left,
    )  # fmt: skip
    into.n_touched += len(some.which)
    into.n_distances += computed
    return left[:n_left]


def _renew(some: Gathered, left: np.ndarray, prepared: _Elkan, into: Changes, state: State) -> None:
    """Let the tiles decide, and set all bounds."""
    labels, upper, lower = state
    rows, which = some.rows[some.at[left]], some.which[left]
    new = np.empty(len(left), np.int32)
    nearest(rows, prepared.panels, new)
    labels[which] = new
    renew(rows, which, new, prepared.params.centres, prepared.params.drift, upper, lower)
    into.n_distances += 2 * len(left) * prepared.panels.k


def elkan(n_clusters: int) -> StatefulReduction:
    """Return the reduction ``ElkanParams -> Changes`` for so many centres."""
    return StatefulReduction(
        name="assign within bounds of centres",
        row_bytes=8 + 4 * n_clusters,
        zero=zero,
        fresh=_fresh,
        rebuild=label_before,
        screen=_wanted,
        chunk=_revise_chunk,
        combine=Changes.combine,
        prepare=_prepare,
    )
