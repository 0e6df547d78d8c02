"""Assignment of CSR rows with one lower bound per row (Hamerly, SDM 2010); see `hamerly`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from daskcluster.chunkwise.centres import PreparedCentres, csr
from daskcluster.chunkwise.exact_sum import Grids
from daskcluster.chunkwise.statistics import StatefulReduction
from daskcluster.kernels.arrays import read_only
from daskcluster.kernels.sparse_search import nearest_two_sparse
from daskcluster.methods.kmeans.chunkwise.bounded import (
    BoundedParams,
    BoundState,
    Changes,
    Prepared,
    fresh_state,
    score_margin,
)
from daskcluster.methods.kmeans.chunkwise.bounded_pass import BoundedPass
from daskcluster.methods.kmeans.chunkwise.gathered import Gathered
from daskcluster.methods.kmeans.chunkwise.kind import BoundKind, Shape
from daskcluster.methods.kmeans.drift import Drift, Gaps
from daskcluster.methods.kmeans.kernels.bounds import filter_rows
from daskcluster.methods.kmeans.kernels.sparse_bounds import (
    SparseCentres,
    renew_sparse,
    tighten_sparse,
)

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


def _prepare(params: BoundedParams) -> _Sparse:
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


def _fresh(n_rows: int, prepared: _Sparse) -> BoundState:
    return fresh_state(n_rows, prepared.params)


def _failing(prepared: _Sparse, state: BoundState, margin: np.ndarray) -> np.ndarray:
    failing = np.empty(state.n_rows, np.int64)
    return failing[: filter_rows(*state.arrays, prepared.params.drift, margin, failing)]


def _reassign(
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
    nearest_two_sparse(*csr(some.rows), panels, labels, second, scores, rows)
    n_moved = renew_sparse(*common, failing, distances, labels, scores, moved)
    into.n_distances += n + n_kept * len(centres)
    return moved.which[:n_moved], moved.old[:n_moved]


_PASS = BoundedPass(_failing, _reassign)


def _row_bytes(n_clusters: int, dtype: np.dtype[Any]) -> int:
    return 12


def _step(params: BoundedParams, drift: Drift, gaps: Gaps) -> tuple[StatefulReduction, Any]:
    return _PASS.reduction("assign within bounds", 12, _fresh, _prepare), params


SPARSE_HAMERLY = BoundKind("hamerly", _row_bytes, _step, Shape.one_bound)
"""The kind that ``"auto"`` and ``"hamerly"`` take for sparse rows."""
