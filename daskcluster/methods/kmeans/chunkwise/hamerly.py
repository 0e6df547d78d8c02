"""Assignment with one lower bound per row (Hamerly, "Making k-means even faster", SDM 2010)."""

from __future__ import annotations

from typing import Any

import numpy as np

from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.chunkwise.statistics import StatefulReduction
from daskcluster.methods.kmeans.chunkwise.bounded import (
    Bounded,
    BoundedParams,
    BoundState,
    Changes,
    fresh_state,
    prepare,
)
from daskcluster.methods.kmeans.chunkwise.bounded_pass import BoundedPass
from daskcluster.methods.kmeans.chunkwise.gathered import Gathered
from daskcluster.methods.kmeans.chunkwise.kind import BoundKind, Shape
from daskcluster.methods.kmeans.drift import Drift, Gaps
from daskcluster.methods.kmeans.kernels.bounds import (
    filter_rows,
    reassign_kernel,
    renew,
    tighten,
)


def _fresh(n_rows: int, prepared: Bounded) -> BoundState:
    return fresh_state(n_rows, prepared.params)


def _failing(prepared: Bounded, state: BoundState, margin: np.ndarray) -> np.ndarray:
    failing = np.empty(state.n_rows, np.int64)
    return failing[: filter_rows(*state.arrays, prepared.params.drift, margin, failing)]


_ROWS = 1024
"""Rows that are copied for a search by bounds of centres at once."""


def _reassign(
    some: Gathered, prepared: Bounded, into: Changes, state: BoundState
) -> tuple[np.ndarray, np.ndarray]:
    every = prepared.all_centres
    if every is not None and every.are_pruned(some.rows, some.at):
        return _search(some, every, prepared, into, state)
    params, panels = prepared.params, prepared.panels
    reassign = reassign_kernel(panels.tile, panels.dtype)
    moved = some.moved()
    n_kept, n_moved = reassign(
        some.listed, state.arrays, prepared.near, params.drift, prepared.margin, moved
    )
    into.n_distances += len(some.which) + n_kept * panels.k
    return moved.which[:n_moved], moved.old[:n_moved]


def _search(
    some: Gathered, every: PreparedCentres, prepared: Bounded, into: Changes, state: BoundState
) -> tuple[np.ndarray, np.ndarray]:
    """Reassign rows by a search that rules out most centres; labels and bounds get the same bits."""
    params, moved, n_moved = prepared.params, some.moved(), 0
    common = some.listed, state.arrays, params.centres, params.drift, prepared.margin
    failing, distances = np.empty(len(some.which) + 1, np.int64), np.empty(len(some.which) + 1)
    n_kept = tighten(*common, failing, distances)
    labels, second = np.empty((2, _ROWS), np.int32)
    scores = np.empty((_ROWS, 2), params.centres.dtype)
    for first in range(0, n_kept, _ROWS):
        part = slice(first, min(first + _ROWS, n_kept))
        rows = some.rows[some.at[failing[part]]]
        found, best = labels[: len(rows)], scores[: len(rows)]
        every.nearest_two(rows, found, second[: len(rows)], best)
        n_moved = renew(*common, failing[part], distances[part], found, best, moved, n_moved)
    into.n_distances += len(some.which) + n_kept * len(params.centres)
    return moved.which[:n_moved], moved.old[:n_moved]


_PASS = BoundedPass(_failing, _reassign)


def _row_bytes(n_clusters: int, dtype: np.dtype[Any]) -> int:
    return 12


def _step(params: BoundedParams, drift: Drift, gaps: Gaps) -> tuple[StatefulReduction, Any]:
    row_bytes = 12 + params.recent_bytes
    return _PASS.reduction("assign within bounds", row_bytes, _fresh, prepare), params


def _suits(n_features: int, n_clusters: int, dtype: np.dtype[Any]) -> bool:
    return True


HAMERLY = BoundKind("hamerly", _row_bytes, _step, Shape.one_bound, suits=_suits)
