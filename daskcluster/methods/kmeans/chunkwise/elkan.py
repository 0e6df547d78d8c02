"""Assignment with one lower bound per centre, for few centres in many dimensions.

As in `hamerly`, but a row that fails is compared with single centres in
place; only rows that fail for many centres, or that rounding leaves undecided, go through the tile.
(Elkan, "Using the triangle inequality to accelerate k-means", ICML 2003.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.chunkwise.statistics import StatefulReduction
from daskcluster.methods.kmeans.chunkwise.bounded import (
    Bounded,
    BoundedParams,
    BoundedPass,
    BoundState,
    Changes,
    Gathered,
    fresh_state,
    prepare,
)
from daskcluster.methods.kmeans.chunkwise.kind import BoundKind, CostModel, Counts, Drift, Gaps
from daskcluster.methods.kmeans.kernels.bounds import OWN
from daskcluster.methods.kmeans.kernels.elkan import probe_kernel, rough_error
from daskcluster.methods.kmeans.kernels.groups import filter_groups

_SMALL_SHARE, _FEW_CENTRES = 1 / 8, 64
_FILTERED, _FILTERED_CENTRE = 10.0, 0.3
_TOUCHED, _TOUCHED_CENTRE = 30.0, 0.8
"""Nanoseconds to filter a row, and to assign one."""
_MEASURED, _FETCH = 0.085, 0.085
"""Per feature of a row and a centre that are measured where they stand, and per byte of the row."""


@dataclass(frozen=True)
class ElkanParams:
    """`BoundedParams`, and half the distances between centres, shape (k, k), float32, never too large."""

    bounded: BoundedParams
    halves: np.ndarray


@dataclass(frozen=True)
class _Elkan(Bounded):
    halves: np.ndarray
    error: np.ndarray


def _prepare(params: ElkanParams) -> _Elkan:
    centres = params.bounded.centres
    error = rough_error(centres.shape[1], centres.dtype)
    return _Elkan(**vars(prepare(params.bounded)), halves=params.halves, error=error)


def _fresh(n_rows: int, prepared: _Elkan) -> BoundState:
    return fresh_state(n_rows, prepared.params, prepared.panels.k)


def _failing(prepared: _Elkan, state: BoundState, margin: np.ndarray) -> np.ndarray:
    failing = np.empty(state.n_rows, np.int64)
    drift = prepared.params.drift
    return failing[: filter_groups(*state.arrays, drift, drift[OWN], margin, failing)]


def _reassign(
    some: Gathered, prepared: _Elkan, into: Changes, state: BoundState
) -> tuple[np.ndarray, np.ndarray]:
    """Compare rows with single centres in place; the remaining rows go through the tile."""
    panels, drift, moved = prepared.panels, prepared.params.drift, some.moved()
    computed, n_moved = probe_kernel(panels.tile, panels.dtype)(
        some.listed, state.arrays, prepared.near, prepared.halves, drift, prepared.margin,
        prepared.error, moved,
    )  # fmt: skip
    into.n_distances += computed
    return moved.which[:n_moved], moved.old[:n_moved]


_PASS = BoundedPass(_failing, _reassign)


def _row_bytes(n_clusters: int, dtype: np.dtype[Any]) -> int:
    return 8 + 4 * n_clusters


def _step(params: BoundedParams, drift: Drift, gaps: Gaps) -> tuple[StatefulReduction, Any]:
    row_bytes = 8 + 4 * len(params.centres) + params.recent_bytes
    reduction = _PASS.reduction("assign within bounds of centres", row_bytes, _fresh, _prepare)
    return reduction, ElkanParams(params, gaps.between(params.centres))


def _cost(shape: CostModel, counts: Counts) -> float:
    filtered = _FILTERED + shape.k * _FILTERED_CENTRE
    touched = _TOUCHED + shape.k * _TOUCHED_CENTRE + shape.row_bytes * _FETCH
    measured = counts.distances * shape.d * _MEASURED
    return filtered + counts.touched * touched + measured + shape.decode(counts.read)


def _suits(n_features: int, n_clusters: int, dtype: np.dtype[Any]) -> bool:
    """Return True if centres are few and rows long compared to the bounds, where Elkan's is the fastest."""
    room = _SMALL_SHARE * n_features * dtype.itemsize
    return n_clusters <= _FEW_CENTRES and _row_bytes(n_clusters, dtype) <= room


ELKAN = BoundKind(
    "elkan",
    _row_bytes,
    _step,
    _cost,
    n_lower=lambda n_groups, n_clusters: (n_clusters,),
    pairwise=True,
    suits=_suits,
    excludes_others=True,
)
