"""Assignment with one lower bound per group of centres, for many centres in many dimensions.

As in `hamerly`, but a row that fails is compared only with groups whose bounds fail, so
the tile computes a part of the distances. (Ding et al., "Yinyang K-means", ICML 2015. Its groups come
from k-means on the initial centres; ours are of one size, whole panels of the tile.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.chunkwise.statistics import StatefulReduction
from daskcluster.kernels.panels import PORTABLE
from daskcluster.kernels.tile import group_size, pack, pack_groups
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
from daskcluster.methods.kmeans.chunkwise.kind import BoundKind, Counts, Shape
from daskcluster.methods.kmeans.drift import Drift, Gaps
from daskcluster.methods.kmeans.kernels.groups import Groups, filter_groups, reassign_groups_kernel

_POWER_STEPS = 20


def balanced_groups(centres: np.ndarray, size: int) -> tuple[np.ndarray, ...]:
    """Cut centres into groups of `size` (the last one may be smaller).

    Halved again and again along the direction of their largest spread, at a multiple of `size`.

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
    wide = centres.astype(np.float64)
    found: list[np.ndarray] = []
    _halve(wide, np.arange(len(wide), dtype=np.int32), size, found)
    # A group that is not full must be the last one: the others fill whole panels.
    found.sort(key=lambda group: (-len(group), int(group[0])))
    return tuple(found)


def _halve(centres: np.ndarray, members: np.ndarray, size: int, found: list[np.ndarray]) -> None:
    n_groups = -(-len(members) // size)
    if n_groups == 1:
        found.append(np.sort(members))
        return
    points = centres[members] - centres[members].mean(axis=0)
    along = (points * _main_direction(points)).sum(axis=1)
    order = np.argsort(along, kind="stable")
    cut = n_groups // 2 * size
    _halve(centres, members[order[:cut]], size, found)
    _halve(centres, members[order[cut:]], size, found)


def _main_direction(points: np.ndarray) -> np.ndarray:
    """Return roughly the first principal direction, by power iteration from the longest point."""
    direction, room = points[np.argmax((points * points).sum(axis=1))], np.empty_like(points)
    for _ in range(_POWER_STEPS):
        along = np.multiply(points, direction, out=room).sum(axis=1)
        grown = np.multiply(points, along[:, None], out=room).sum(axis=0)
        length = np.sqrt((grown * grown).sum())
        if not 0.0 < length < np.inf:
            break
        direction = grown / length
    return direction


_WAITING_BYTES = 1 << 20
_LEAST_WAITING, _MOST_WAITING = 64, 1024
_FILTERED, _FILTERED_GROUP = 10.0, 1.1
_TOUCHED, _TOUCHED_GROUP = 36.0, 10.0
_MET = 0.95
"""Nanoseconds to filter a row, to assign one, and per centre that it is compared with; see
`daskcluster.methods.kmeans.chunkwise.kind`."""


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
class _Grouped(Bounded):
    """Centres are packed into panels group by group.

    `most` rows are held back until the groups are searched: they should stay in the cache.
    """

    groups: Groups
    drift: np.ndarray
    most: int


def _prepare(params: GroupedParams) -> _Grouped:
    centres = params.bounded.centres
    panels, order, per_group = pack_groups(centres, params.groups)
    if panels.tile == PORTABLE:
        panels = pack(centres, tile=PORTABLE)  # it visits all centres, in their own order
    common = prepare(params.bounded, panels)
    group_of = np.empty(len(centres), np.int64)
    for number, group in enumerate(params.groups):
        group_of[group] = number
    row_bytes = centres.shape[1] * centres.itemsize + 13 * len(params.groups)
    most = min(max(_WAITING_BYTES // row_bytes, _LEAST_WAITING), _MOST_WAITING)
    return _Grouped(
        **vars(common),
        groups=Groups(per_group, order, group_of),
        drift=params.drift,
        most=most,
    )


def _fresh(n_rows: int, prepared: _Grouped) -> BoundState:
    return fresh_state(n_rows, prepared.params, len(prepared.drift))


def _failing(prepared: _Grouped, state: BoundState, margin: np.ndarray) -> np.ndarray:
    failing = np.empty(state.n_rows, np.int64)
    drift = prepared.params.drift
    return failing[: filter_groups(*state.arrays, drift, prepared.drift, margin, failing)]


def _reassign(
    some: Gathered, prepared: _Grouped, into: Changes, state: BoundState
) -> tuple[np.ndarray, np.ndarray]:
    params, panels = prepared.params, prepared.panels
    reassign = reassign_groups_kernel(panels.tile, panels.dtype)
    moved = some.moved()
    computed, n_moved = reassign(
        some.listed, state.arrays, prepared.near, prepared.groups, params.drift, prepared.drift,
        prepared.margin, prepared.most, moved,
    )  # fmt: skip
    into.n_distances += computed
    return moved.which[:n_moved], moved.old[:n_moved]


_PASS = BoundedPass(_failing, _reassign)


def _groups(centres: np.ndarray) -> tuple[np.ndarray, ...]:
    return balanced_groups(centres, group_size(len(centres), centres.dtype))


def _n_lower(n_groups: int, n_clusters: int) -> tuple[int, ...]:
    return (n_groups,)


def _row_bytes(n_clusters: int, dtype: np.dtype[Any]) -> int:
    return 8 + 4 * -(-n_clusters // group_size(n_clusters, dtype))


def _step(params: BoundedParams, drift: Drift, gaps: Gaps) -> tuple[StatefulReduction, Any]:
    row_bytes = 8 + 4 * len(drift.groups) + params.recent_bytes
    reduction = _PASS.reduction("assign within bounds of groups", row_bytes, _fresh, _prepare)
    return reduction, GroupedParams(params, drift.groups, drift.of_groups.copy())


def _cost(shape: Shape, counts: Counts) -> float:
    n_groups = -(-shape.k // shape.group)
    met = max(0.0, counts.distances - counts.touched)
    filtered = _FILTERED + n_groups * _FILTERED_GROUP
    touched = _TOUCHED + n_groups * _TOUCHED_GROUP + shape.fetch()
    tile = shape.met(met, _MET)
    return filtered + counts.touched * touched + tile + shape.decode(counts.read)


def _suits(n_features: int, n_clusters: int, dtype: np.dtype[Any]) -> bool:
    return True


def _may_win(shape: Shape) -> bool:
    """Return True if visiting a row within groups may cost less than comparing it with all centres."""
    return _cost(shape, Counts(1.0, 1.0)) < shape.all_fail()


YINYANG = BoundKind(
    "yinyang",
    _row_bytes,
    _step,
    _cost,
    groups=_groups,
    n_lower=_n_lower,
    suits=_suits,
    may_win=_may_win,
)
