"""Axes for the search by bounds in few dimensions, and whether it pays.

Labels do not depend on the axes (`daskcluster.kernels.pruned_search`), so axes are computed from the
centres alone, wherever centres are prepared. A sample of rows shows in how many dimensions the bounds leave
few centres: by counts, not by clocks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from daskcluster.kernels import tile
from daskcluster.kernels.panels import PORTABLE, common_offset
from daskcluster.kernels.projected_centres import (
    Errors,
    ProjectedCentres,
    errors_of,
    pack_projected,
    project_points,
    shift_centres,
)
from daskcluster.kernels.pruned_search import UNDECIDED, nearest_pruned

LEAST_CENTRES, LEAST_FEATURES = 512, 48
"""Below these, the search of all centres is always faster."""
LEAST_ROWS = 128
"""A task with fewer rows would not repay the sample."""
_SIZES = (16, 32, 48, 64, 96, 128, 192, 256)
"""Numbers of axes that are tried, rounded up to whole panels."""
_MOST_AXES, _MANY_CENTRES = 128, 8192
"""Finding more axes pays for many centres only."""
_SAMPLED_ROWS, _SAMPLED_BOUNDS = 32, 1 << 19
"""Most rows, and most bounds, of the sample."""
_SAMPLED_CENTRES, _PROBED_CENTRES, _PROBED_AXES = 1024, 256, 24
_OVERSAMPLED = 8
"""Of the randomised subspace iteration (Halko, Martinsson, Tropp 2011, algorithm 4.4); it has one step."""
_LEAST_PROBED, _LEAST_SHARE = 0.3, 0.5
"""Centres whose axes hold less of their squared lengths have no structure to use: first of the few axes of
a probe, which costs little, and then of all axes."""
_LEAST_GAIN = 0.75
_GIVEN_UP = 0.25
"""Largest share of rows that the search may give up before it is given up itself."""

_ALONE = threading.Lock()

# Costs in multiply-adds of the tile, measured with AVX-512 and AVX2.
_ROW, _PROJECTED, _SCANNED, _MEASURED, _LOOKED = 100, 2, 3, 20, 4000


class ProjectedSearch:
    """The search by bounds for one set of centres.

    Parameters
    ----------
    packed : ProjectedCentres
    """

    def __init__(self, packed: ProjectedCentres) -> None:
        self._packed = packed
        self._most = len(packed.centres) // _MEASURED
        self._rows, self._given_up = 0, 0

    @property
    def pays(self) -> bool:
        """False once too many rows needed the search of all centres."""
        return self._rows < LEAST_ROWS or self._given_up <= _GIVEN_UP * self._rows

    def nearest(self, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Label rows; return which of them need the search of all centres."""
        nearest_pruned(rows, self._packed, self._most, labels)
        left = np.flatnonzero(labels == UNDECIDED)
        self._rows += len(rows)
        self._given_up += len(left)
        return left


def projected_search(centres: np.ndarray, rows: np.ndarray) -> ProjectedSearch | None:
    """Return the search by bounds if it pays for rows like these; else None.

    Parameters
    ----------
    centres : ndarray of shape (k, d), float32 or float64, C-contiguous
    rows : ndarray of shape (n, d), dtype of the centres

    Notes
    -----
    Cost: about the time of searching 32 + 2 m rows, m the number of axes (at most 256).
    """
    with _one_blas_thread():
        plan = _plan(centres, rows)
        return None if plan is None else ProjectedSearch(plan[1]())


def cost_share(centres: np.ndarray, rows: np.ndarray) -> float:
    """Return the cost of the search that suits such rows, as a share of that of all centres; at most 1.

    Examples
    --------
    >>> import numpy as np
    >>> centres = np.random.default_rng(0).normal(size=(600, 60)).astype(np.float32)
    >>> cost_share(centres, centres)  # noise
    1.0
    """
    if not may_pay(centres):
        return 1.0
    with _one_blas_thread():
        plan = _plan(centres, rows)
        return 1.0 if plan is None else plan[0]


def may_pay(centres: np.ndarray) -> bool:
    """Return whether there are enough centres and features for the search by bounds."""
    k, d = centres.shape
    return search_bytes(k, d, centres.dtype) > 0


def search_bytes(n_clusters: int, n_features: int, dtype: np.dtype[Any]) -> int:
    """Return the most memory that the search by bounds takes; 0 where it never pays.

    Shifted centres while axes are found, and projected ones.

    Examples
    --------
    >>> search_bytes(1000, 768, np.dtype("f4")), search_bytes(1000, 16, np.dtype("f4"))
    (4104000, 0)
    """
    if n_clusters < LEAST_CENTRES or n_features < LEAST_FEATURES:
        return 0
    most = min(n_features // 3, _SIZES[-1])
    return n_clusters * (n_features + most + 2) * dtype.itemsize


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    # Threads of BLAS spin for a while after their work, on the cores of the threads that search.
    with _ALONE, _blas().limit(limits=1, user_api="blas"), np.errstate(all="ignore"):
        yield


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


_Plan = tuple[float, Callable[[], ProjectedCentres]]
"""Cost of a search that pays, as a share of that of all centres, and what packs the centres for it."""


def _plan(centres: np.ndarray, rows: np.ndarray) -> _Plan | None:
    (k, d), suited = centres.shape, tile.working_tile(len(centres), centres.dtype)
    most = min(d // 3, _MOST_AXES if k < _MANY_CENTRES else _SIZES[-1])
    sizes = sorted({-(-m // suited.height) * suited.height for m in _SIZES if m <= most})
    if suited == PORTABLE or not sizes:
        return None
    offset = common_offset(centres)
    if not _has_structure(_some(centres, _PROBED_CENTRES) - offset):
        return None
    axes = principal_axes(_some(centres, _SAMPLED_CENTRES) - offset, sizes[-1], _LEAST_SHARE)
    if axes is None:
        return None
    shifted, squares = np.empty_like(centres), np.empty(k)
    shift_centres(centres, offset, shifted, squares)
    errors = errors_of(axes, float(squares.max()))
    if not squares.max() < errors.most:
        return None
    some = _some(rows, max(1, min(_SAMPLED_ROWS, _SAMPLED_BOUNDS // k))) - offset
    heads = np.empty((k, sizes[-1]), centres.dtype)
    costs = _costs(some, shifted, squares, axes, sizes, suited.height, errors, heads)
    m = min(costs, key=lambda m: (costs[m], m), default=0)
    if not m or costs[m] >= _LEAST_GAIN * k * d:
        return None
    found = np.ascontiguousarray(axes[:, :m]), heads[:, :m], squares, suited
    return costs[m] / (k * d), partial(pack_projected, centres, offset, *found)


def _some(points: np.ndarray, most: int) -> np.ndarray:
    """Return every so many of the points, at most `most`."""
    count = min(len(points), most)
    return points[np.arange(count) * len(points) // count]


def _has_structure(shifted: np.ndarray) -> bool:
    return principal_axes(shifted, _PROBED_AXES, _LEAST_PROBED) is not None


def principal_axes(points: np.ndarray, most: int, least: float) -> np.ndarray | None:
    """Return the axes of the largest second moments, (d, most), if they hold a share `least` of all.

    The moments are about zero, as scores are, and not about the mean.

    Examples
    --------
    >>> import numpy as np
    >>> points = np.random.default_rng(0).normal(size=(99, 9)) * 0.5 ** np.arange(9)
    >>> axes = principal_axes(points, 2, 0.5)
    >>> bool(abs(axes[0, 0]) > 0.9), principal_axes(points, 2, 0.99) is None
    (True, True)
    """
    d = points.shape[1]
    total = float(np.square(points, dtype=np.float64).sum())
    if not 0.0 < total < np.inf:
        return None
    start = np.random.default_rng(0).standard_normal((d, min(d, most + _OVERSAMPLED)))
    basis = np.linalg.qr(points.T @ (points @ start.astype(points.dtype)))[0]
    inside = points @ basis
    values, turn = np.linalg.eigh((inside.T @ inside).astype(np.float64))
    if not values[::-1][:most].sum() >= least * total:
        return None
    return (basis.astype(np.float64) @ turn[:, ::-1][:, :most]).astype(points.dtype)


def _costs(
    rows: np.ndarray,
    shifted: np.ndarray,
    squares: np.ndarray,
    axes: np.ndarray,
    sizes: list[int],
    height: int,
    errors: Errors,
    heads: np.ndarray,
) -> dict[int, float]:
    """Return the cost per row of the search with each number of axes, up to the cheapest and beyond.

    They are those of a sample of shifted rows; none if rows are not finite. OUT: heads: the coordinates of
    the centres on the axes that were tried.
    """
    (k, d), kind = shifted.shape, shifted.dtype
    coordinates, lengths = rows @ axes, np.square(rows, dtype=np.float64).sum(axis=1)
    if not (np.isfinite(coordinates).all() and np.isfinite(lengths).all()):
        return {}
    kept, rest = np.zeros(len(rows)), squares.copy()
    bounds = np.repeat((-0.5 * squares).astype(kind)[None], len(rows), axis=0)
    costs, before = dict[int, float](), 0
    reach = errors.margin * errors.largest * (np.sqrt(lengths) + 0.5 * errors.largest)
    limits = (rows @ shifted.T + bounds).max(axis=1) - reach  # of the best score
    for m in sizes:
        found = project_points(shifted, np.ascontiguousarray(axes[:, before:m]))
        heads[:, before:m], part = found, coordinates[:, before:m]
        bounds += part @ found.T
        kept += np.square(part, dtype=np.float64).sum(axis=1)
        rest -= np.square(found, dtype=np.float64).sum(axis=1)
        left = np.sqrt(np.maximum(lengths - kept, 0.0)).astype(kind)[:, None]
        upper = bounds + left * np.sqrt(np.maximum(rest, 0.0)).astype(kind)
        measured, looked = _survivors(upper, limits, height)
        costs[m] = d * (_ROW + _PROJECTED * m) + k * (m + 1 + _SCANNED)
        costs[m] += measured * _MEASURED * d + looked * _LOOKED
        before = m
        if costs[m] > 1.2 * min(costs.values()):
            break
    return costs


def _survivors(upper: np.ndarray, limits: np.ndarray, height: int) -> tuple[float, float]:
    """Return how many centres, and panels with any of them, have bounds above the limit of a row."""
    left = upper >= limits[:, None]
    panels = np.add.reduceat(left, np.arange(0, left.shape[1], height), axis=1) > 0
    return float(left.sum(axis=1).mean()), float(panels.sum(axis=1).mean())
