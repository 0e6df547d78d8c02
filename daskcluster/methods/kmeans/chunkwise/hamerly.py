"""One lower bound per row, dense or CSR (Hamerly, "Making k-means even faster", SDM 2010)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from daskcluster.chunkwise.centres import PreparedCentres, csr
from daskcluster.chunkwise.exact_sum import Grids
from daskcluster.chunkwise.statistics import StatefulReduction
from daskcluster.kernels.jit import read_only
from daskcluster.kernels.sparse import nearest_sparse
from daskcluster.methods.kmeans.chunkwise.bounded import (
    Bounded,
    BoundedParams,
    BoundedPass,
    BoundState,
    Changes,
    Gathered,
    Prepared,
    fresh_state,
    prepare,
    score_margin,
)
from daskcluster.methods.kmeans.chunkwise.kind import BoundKind, CostModel, Drift, Gaps
from daskcluster.methods.kmeans.kernels.bounds import (
    SparseCentres,
    filter_rows,
    reassign_kernel,
    renew,
    renew_sparse,
    tighten,
    tighten_sparse,
)


def _fresh(n_rows: int, prepared: Prepared) -> BoundState:
    return fresh_state(n_rows, prepared.params)


def _failing(prepared: Prepared, state: BoundState, margin: np.ndarray) -> np.ndarray:
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
        every.nearest(rows, found, second[: len(rows)], best)
        n_moved = renew(*common, failing[part], distances[part], found, best, moved, n_moved)
    into.n_distances += len(some.which) + n_kept * len(params.centres)
    return moved.which[:n_moved], moved.old[:n_moved]


_PASS = BoundedPass(_failing, _reassign)


def _step(params: BoundedParams, drift: Drift, gaps: Gaps) -> tuple[StatefulReduction, Any]:
    row_bytes = 12 + params.recent_bytes
    return _PASS.reduction("assign within bounds", row_bytes, _fresh, prepare), params


HAMERLY = BoundKind(
    "hamerly",
    lambda n_clusters, dtype: 12,
    _step,
    CostModel.one_bound,
    suits=lambda n_features, n_clusters, dtype: True,
)


# -- CSR rows -----------------------------------------------------------------------------------------

_UNIT = 2.0**-53


@dataclass(frozen=True)
class _Sparse(Prepared):
    """Centres packed for CSR rows, and the most by which a squared distance to one may err."""

    centres: PreparedCentres
    error: float

    @cached_property
    def near(self) -> SparseCentres:
        """The centres, as kernels take them."""
        return SparseCentres(read_only(self.centres.array), self.centres.norms, self.error)


def _prepare_sparse(params: BoundedParams) -> _Sparse:
    centres = PreparedCentres(params.centres)
    dtype, d = centres.array.dtype, centres.array.shape[1]
    # A score has a rounding for each stored value; |c|^2 is summed in float64, over all features.
    terms = params.most_entries + 4 + d * 2.0 * _UNIT / float(np.finfo(dtype).eps)
    margin = score_margin(centres.array, np.zeros(d, dtype), params.scale, terms)
    error = 2.02 * (d + 4) * _UNIT * float(centres.norms.max())
    underflow = 4.04 * terms * float(np.finfo(dtype).smallest_subnormal)
    # The square of an upper bound is above that of the distance by up to twice the error.
    margin[1] += 2.0 * error + underflow
    return _Sparse(params, Grids.of(params.scale), margin, object(), centres, error)


def _reassign_sparse(
    some: Gathered, prepared: _Sparse, into: Changes, state: BoundState
) -> tuple[np.ndarray, np.ndarray]:
    listed, moved, n = some.listed_sparse, some.moved(), len(some.which)
    common = listed, state.arrays, prepared.near, prepared.params.drift, prepared.margin
    failing, distances = np.empty(n + 1, np.int64), np.empty(n + 1)
    n_kept = tighten_sparse(*common, failing, distances)
    failing = failing[:n_kept]
    labels, second = np.empty((2, n_kept), np.int32)
    centres = prepared.centres
    scores = np.empty((n_kept, 2), centres.array.dtype)
    panels, rows = centres.sparse_panels, some.at[failing]
    nearest_sparse(csr(some.rows), panels, labels, second, scores, rows)
    n_moved = renew_sparse(*common, failing, distances, labels, scores, moved)
    into.n_distances += n + n_kept * len(centres)
    return moved.which[:n_moved], moved.old[:n_moved]


_SPARSE_PASS = BoundedPass(_failing, _reassign_sparse)


def _sparse_step(params: BoundedParams, drift: Drift, gaps: Gaps) -> tuple[StatefulReduction, Any]:
    return _SPARSE_PASS.reduction("assign within bounds", 12, _fresh, _prepare_sparse), params


SPARSE_HAMERLY = BoundKind(
    "hamerly", lambda n_clusters, dtype: 12, _sparse_step, CostModel.one_bound
)
"""The kind that ``"auto"`` and ``"hamerly"`` take for sparse rows."""
