"""Assignment with one lower bound per row (Hamerly, "Making k-means even faster", SDM 2010)."""

from __future__ import annotations

from typing import Any

import numpy as np

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
from daskcluster.methods.kmeans.kernels.bounds import filter_rows, reassign_kernel


def _fresh(n_rows: int, prepared: Bounded) -> BoundState:
    return fresh_state(n_rows, prepared.params)


def _failing(prepared: Bounded, state: BoundState, margin: np.ndarray) -> np.ndarray:
    failing = np.empty(state.n_rows, np.int64)
    return failing[: filter_rows(*state.arrays, prepared.params.drift, margin, failing)]


def _reassign(
    some: Gathered, prepared: Bounded, into: Changes, state: BoundState
) -> tuple[np.ndarray, np.ndarray]:
    params, panels = prepared.params, prepared.panels
    reassign = reassign_kernel(panels.tile, panels.dtype)
    moved = some.moved()
    n_kept, n_moved = reassign(
        some.listed, state.arrays, prepared.near, params.drift, prepared.margin, moved
    )
    into.n_distances += len(some.which) + n_kept * panels.k
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
