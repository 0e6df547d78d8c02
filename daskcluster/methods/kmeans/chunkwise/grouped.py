"""Assignment with one lower bound per group of centres, or per centre.

A row that fails is compared only with groups whose bounds fail, so the tile computes a part of the
distances. (Ding et al., "Yinyang K-means", ICML 2015. Its groups come from k-means on the initial centres;
ours are of one size, whole panels of the tile.) With all centres in one group, these are the bounds of
Hamerly ("Making k-means even faster", SDM 2010).

With a bound for each of few centres, a row that fails is compared with single centres in place; only rows
that fail for many centres, or that rounding leaves undecided, go through the tile. (Elkan, "Using the
triangle inequality to accelerate k-means", ICML 2003.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daskcluster.chunkwise.pruned import (
    ORDERED_AXES,
    close_together,
    every_so_many,
    one_blas_thread,
    principal_axes,
)
from daskcluster.chunkwise.statistics import StatefulReduction
from daskcluster.kernels.panels import PORTABLE
from daskcluster.kernels.quantized import project_points
from daskcluster.kernels.tile import group_size, pack, pack_groups
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
from daskcluster.methods.kmeans.kernels.groups import (
    Groups,
    filter_groups,
    reassign_groups_kernel,
)


def balanced_groups(centres: np.ndarray, size: int) -> tuple[np.ndarray, ...]:
    """Cut centres into groups of `size` (the last one may be smaller).

    Halved again and again along the axis of their largest variance, of the first principal axes, at a
    multiple of `size`.

    Parameters
    ----------
    centres : ndarray of shape (k, d)
    size : int

    Returns
    -------
    tuple of ndarray of int32
        Ascending within each group.

    Examples
    --------
    >>> import numpy as np
    >>> balanced_groups(np.array([[0.0], [9.0], [1.0], [8.0]]), 2)
    (array([0, 2], dtype=int32), array([1, 3], dtype=int32))
    """
    mean = centres.mean(axis=0)
    with one_blas_thread():
        axes = principal_axes(every_so_many(centres, _SAMPLED_CENTRES) - mean, ORDERED_AXES, 0.0)
        heads = centres if axes is None else project_points(centres, axes, mean)
    order = close_together(heads, size).astype(np.int32)
    return tuple(np.sort(order[first : first + size]) for first in range(0, len(order), size))


_SAMPLED_CENTRES = 1024
"""Centres, at most, whose principal axes are those along which all of them are halved."""
_WAITING_BYTES, _MOST_WAITING_BYTES = 1 << 20, 1 << 23
_LEAST_WAITING, _MOST_WAITING = 64, 1024
_WAITING = 4
"""Rows that wait, for each group, so that most groups find several of them: a block takes as long as a row.
"""
_FILTERED, _FILTERED_GROUP = 15.5, 0.5
_TOUCHED, _TOUCHED_GROUP = 53.0, 3.0
_MET = 1.5
"""Nanoseconds to filter a row, to assign one, and per centre that it is compared with; see
`daskcluster.methods.kmeans.chunkwise.kind`."""


@dataclass(frozen=True)
class _WithGroups(Bounded):
    """The accumulated drift of each group, (g,); or of each centre, if it has a bound of its own."""

    drift: np.ndarray


@dataclass(frozen=True)
class _Grouped(_WithGroups):
    """Centres are packed into panels group by group.

    `most` rows are held back until the groups are searched: they should stay in the cache.
    """

    groups: Groups
    most: int


def _prepare(params: BoundedParams) -> _Grouped:
    centres = params.centres
    panels, order, per_group = pack_groups(centres, params.groups)
    if panels.tile == PORTABLE:
        panels = pack(centres, tile=PORTABLE)  # it visits all centres, in their own order
    common = prepare(params, panels)
    group_of = np.empty(len(centres), np.int64)
    for number, group in enumerate(params.groups):
        group_of[group] = number
    row_bytes = centres.shape[1] * centres.itemsize + 13 * len(params.groups)
    wanted = max(_WAITING_BYTES // row_bytes, _WAITING * len(params.groups))
    most = min(max(wanted, _LEAST_WAITING), _MOST_WAITING, _MOST_WAITING_BYTES // row_bytes + 1)
    return _Grouped(
        **vars(common),
        groups=Groups(per_group, order, group_of),
        drift=params.group_drift,
        most=most,
    )


def _fresh(n_rows: int, prepared: _WithGroups) -> BoundState:
    return fresh_state(n_rows, len(prepared.drift))


def _failing(prepared: _WithGroups, state: BoundState, margin: np.ndarray) -> np.ndarray:
    failing = np.empty(state.n_rows, np.int64)
    drift = prepared.params.drift
    return failing[: filter_groups(*state.arrays, drift, prepared.drift, margin, failing)]


def _reassign(
    some: Gathered, prepared: _Grouped, into: Changes, state: BoundState
) -> tuple[np.ndarray, np.ndarray]:
    """Compare rows with the groups that they need."""
    panels, moved = prepared.panels, some.moved()
    reassign = reassign_groups_kernel(panels.tile, panels.dtype)
    computed, n_moved = reassign(
        some.listed, state.arrays, prepared.near, prepared.groups, prepared.params.drift,
        prepared.drift, prepared.margin, prepared.most, moved,
    )  # fmt: skip
    into.n_distances += computed
    return moved.which[:n_moved], moved.old[:n_moved]


_PASS = BoundedPass(_failing, _reassign)


def _step(params: BoundedParams, drift: Drift, gaps: Gaps) -> tuple[StatefulReduction, Any]:
    row_bytes = 8 + 4 * len(drift.groups)
    reduction = _PASS.reduction("assign within bounds of groups", row_bytes, _fresh, _prepare)
    return reduction, replace(params, groups=drift.groups, group_drift=drift.of_groups.copy())


def _cost(shape: CostModel, counts: Counts) -> float:
    n_groups = -(-shape.k // shape.group)
    met = max(0.0, counts.distances - counts.touched)
    filtered = _FILTERED + n_groups * _FILTERED_GROUP
    touched = _TOUCHED + n_groups * _TOUCHED_GROUP + shape.fetch()
    return filtered + counts.touched * touched + shape.met(met, _MET) + shape.decode(counts.read)


YINYANG = BoundKind(
    "yinyang",
    lambda n_clusters, dtype: 8 + 4 * -(-n_clusters // group_size(n_clusters, dtype)),
    _step,
    _cost,
    groups=lambda centres: balanced_groups(centres, group_size(len(centres), centres.dtype)),
    suits=lambda n_features, n_clusters, dtype: True,
    # Visiting a row within groups may cost less than comparing it with all centres.
    may_win=lambda shape: _cost(shape, Counts(1.0, 1.0)) < shape.all_fail(),
)

HAMERLY = BoundKind(
    "hamerly",
    lambda n_clusters, dtype: 12,
    _step,
    CostModel.one_bound,
    groups=lambda centres: (np.arange(len(centres), dtype=np.int32),),
    suits=lambda n_features, n_clusters, dtype: True,
)

# -- one bound per centre ------------------------------------------------------------------------------

_SMALL_SHARE, _FEW_CENTRES = 1 / 8, 64
_FILTERED_ALONE, _FILTERED_CENTRE = 10.0, 0.27
_TOUCHED_ALONE, _TOUCHED_CENTRE = 15.0, 0.63
"""Nanoseconds to filter a row, and to assign one."""
_MEASURED_ALONE, _MEASURED, _FETCH = 18.0, 0.05, 0.2
"""Per distance of a row to a centre where they stand, per feature of it, and per byte of the row."""


@dataclass(frozen=True)
class _Elkan(_WithGroups):
    error: np.ndarray


def _prepare_elkan(params: BoundedParams) -> _Elkan:
    error = rough_error(params.centres.shape[1], params.centres.dtype)
    return _Elkan(**vars(prepare(params)), drift=params.drift[OWN], error=error)


def _reassign_alone(
    some: Gathered, prepared: _Elkan, into: Changes, state: BoundState
) -> tuple[np.ndarray, np.ndarray]:
    """Compare rows with single centres in place; the remaining rows go through the tile."""
    panels, drift, moved = prepared.panels, prepared.params.drift, some.moved()
    computed, n_moved = probe_kernel(panels.tile, panels.dtype)(
        some.listed, state.arrays, prepared.near, prepared.params.halves, drift, prepared.margin,
        prepared.error, moved,
    )  # fmt: skip
    into.n_distances += computed
    return moved.which[:n_moved], moved.old[:n_moved]


_ELKAN_PASS = BoundedPass(_failing, _reassign_alone)


def _elkan_step(params: BoundedParams, drift: Drift, gaps: Gaps) -> tuple[StatefulReduction, Any]:
    row_bytes = 8 + 4 * len(params.centres)
    reduction = _ELKAN_PASS.reduction(
        "assign within bounds of centres", row_bytes, _fresh, _prepare_elkan
    )
    return reduction, replace(params, halves=gaps.between(params.centres))


def _elkan_cost(shape: CostModel, counts: Counts) -> float:
    filtered = _FILTERED_ALONE + shape.k * _FILTERED_CENTRE
    touched = _TOUCHED_ALONE + shape.k * _TOUCHED_CENTRE + shape.row_bytes * _FETCH
    measured = counts.distances * (_MEASURED_ALONE + shape.d * _MEASURED)
    return filtered + counts.touched * touched + measured + shape.decode(counts.read)


def _suits(n_features: int, n_clusters: int, dtype: np.dtype[Any]) -> bool:
    """Return True if centres are few and rows long compared to the bounds, where Elkan's is the fastest."""
    room = _SMALL_SHARE * n_features * dtype.itemsize
    return n_clusters <= _FEW_CENTRES and 8 + 4 * n_clusters <= room


ELKAN = BoundKind(
    "elkan",
    lambda n_clusters, dtype: 8 + 4 * n_clusters,
    _elkan_step,
    _elkan_cost,
    pairwise=True,
    suits=_suits,
    excludes_others=True,
)
