"""Assignment within one lower bound for every centre, for few centres in many dimensions.

As in `hamerly`, but a row that fails is measured against single centres where it
stands; only rows that fail for many centres, or that rounding leaves in doubt, go through the tile.
(Elkan, "Using the triangle inequality to accelerate k-means", ICML 2003.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskcluster.chunkwise.reduction import StatefulReduction
from daskcluster.kernels.arrays import read_only
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
from daskcluster.methods.kmeans.kernels.bounds import OWN
from daskcluster.methods.kmeans.kernels.elkan import look_kernel, rough_error
from daskcluster.methods.kmeans.kernels.groups import screen_groups


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
    return failing[: screen_groups(*state.arrays, drift, drift[OWN], margin, failing)]


def _revise(
    some: Gathered, prepared: _Elkan, into: Changes, state: BoundState
) -> tuple[np.ndarray, np.ndarray]:
    """Measure rows where they stand; those that are left go through the tile."""
    params, panels, n = prepared.params, prepared.panels, len(some.which)
    moved, old = np.empty(n, np.int64), np.empty(n, np.int32)
    computed, n_moved = look_kernel(panels.tile, panels.dtype)(
        read_only(some.rows), some.at, some.which, params.centres, prepared.halves, panels.data,
        panels.offset, *state.arrays, params.drift, prepared.margin, prepared.error, moved, old,
    )  # fmt: skip
    into.n_distances += computed
    return moved[:n_moved], old[:n_moved]


_PASS = BoundedPass(_failing, _revise)


def elkan(n_clusters: int, recent_bytes: int = 0) -> StatefulReduction:
    """Return the reduction ``ElkanParams -> Changes`` for so many centres.

    `recent_bytes` as in `BoundedParams`.
    """
    row_bytes = 8 + 4 * n_clusters + recent_bytes
    return _PASS.reduction("assign within bounds of centres", row_bytes, _fresh, _prepare)
