"""The search by bounds that is cheapest for centres and rows, if any pays.

Labels do not depend on it (`daskcluster.kernels.pruned_search`). A sample of rows shows how many centres
the bounds of each form would leave: by counts, not by clocks.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from daskcluster.chunkwise.bound_costs import (
    MOST_LEFT,
    Left,
    Sample,
    every_so_many,
    expected_loss,
    panels_with,
    sample_bytes,
    sample_of,
    search_cost,
)
from daskcluster.chunkwise.projection import most_axes, plan_projection
from daskcluster.kernels import tile
from daskcluster.kernels.candidates import UNDECIDED, errors_of
from daskcluster.kernels.dot_product import best_dot
from daskcluster.kernels.panels import Panels, common_offset
from daskcluster.kernels.projected_centres import Projection
from daskcluster.kernels.pruned_search import PrunedCentres, nearest_pruned, nearest_two_pruned
from daskcluster.kernels.quantized_centres import first_terms, quantize_centres

_LEAST_CENTRES, _LEAST_SCORES = 128, 1 << 14
"""With fewer centres, or products for a row, the search of all centres is over before any bound pays."""
_LEAST_ROWS, _LEAST_PRODUCTS = 512, 1 << 27
"""The search of fewer rows, or products, would not repay the sample."""
LEVELLED_ROWS, _PROJECTED_ROWS = 4096, 1024
"""Rows, at most, whose coordinates set the levels of quantized ones; fewer where they must be projected."""
_SAMPLED_CENTRES = 4096
"""Centres, at most, whose extent stands for that of all while costs are counted."""
_LEAST_GAIN = 0.75
_GIVEN_UP = 0.25
"""Largest share of rows that the search may give up before it is given up itself."""

_ALONE = threading.Lock()


class PrunedSearch:
    """The search by bounds for one set of centres.

    Parameters
    ----------
    packed : PrunedCentres
    """

    def __init__(self, packed: PrunedCentres) -> None:
        self._packed = packed
        self._most = len(packed.centres) // MOST_LEFT
        self._rows, self._given_up = 0, 0

    @property
    def pays(self) -> bool:
        """False once too many rows needed the search of all centres."""
        return self._rows < _LEAST_ROWS or self._given_up <= _GIVEN_UP * self._rows

    def nearest(self, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Label rows; return which of them need the search of all centres."""
        nearest_pruned(rows, self._packed, self._most, labels)
        return self._left(labels)

    def nearest_two(
        self, rows: np.ndarray, labels: np.ndarray, second: np.ndarray, scores: np.ndarray | None
    ) -> np.ndarray:
        """Label rows twice; return which of them need the search of all centres."""
        nearest_two_pruned(rows, self._packed, self._most, labels, second, scores)
        return self._left(labels)

    def _left(self, labels: np.ndarray) -> np.ndarray:
        left = np.flatnonzero(labels == UNDECIDED)
        self._rows += len(labels)
        self._given_up += len(left)
        return left


def pruned_search(centres: np.ndarray, panels: Panels, rows: np.ndarray) -> PrunedSearch | None:
    """Return the search by bounds that is cheapest for rows like these; None if none pays.

    Parameters
    ----------
    centres : ndarray of shape (k, d), float32 or float64, C-contiguous
    panels : Panels
        The same centres.
    rows : ndarray of shape (n, d), dtype of the centres

    Notes
    -----
    Cost: about the time of searching a hundred rows, and with projections 2 m more, m the number of axes.
    """
    with _one_blas_thread():
        plan = _plan(centres, rows, panels.offset)
        packed = None if plan is None else plan.pack(centres, panels, rows)
    return None if packed is None else PrunedSearch(packed)


def cost_share(centres: np.ndarray, rows: np.ndarray) -> float:
    """Return the cost of the search that suits such rows, as a share of that of all centres; at most 1.

    Examples
    --------
    >>> import numpy as np
    >>> centres = np.random.default_rng(0).normal(size=(60, 60)).astype(np.float32)
    >>> cost_share(centres, centres)  # too few centres
    1.0
    """
    if not may_pay(centres):
        return 1.0
    with _one_blas_thread():
        plan = _plan(centres, rows, common_offset(centres))
    return 1.0 if plan is None else plan.share


def may_pay(centres: np.ndarray) -> bool:
    """Return whether there are enough centres and features for a search by bounds."""
    k, d = centres.shape
    return search_bytes(k, d, centres.dtype) > 0


def repays_sample(centres: np.ndarray, n_rows: int) -> bool:
    """Return whether so many rows took about as long as a sample would."""
    return n_rows >= _LEAST_ROWS and n_rows * centres.size >= _LEAST_PRODUCTS


def search_bytes(n_clusters: int, n_features: int, dtype: np.dtype[Any]) -> int:
    """Return the most memory that a search by bounds takes; 0 where none pays.

    Bounds of a sample while the forms are compared, and quantized centres.

    Examples
    --------
    >>> search_bytes(1000, 768, np.dtype("f4")), search_bytes(10, 16, np.dtype("f4"))
    (5904000, 0)
    """
    if n_clusters < _LEAST_CENTRES or n_clusters * n_features < _LEAST_SCORES:
        return 0
    coordinates = 2 * most_axes(n_clusters, n_features) * dtype.itemsize
    centres = n_clusters * (3 * n_features + coordinates + 16)
    return centres + sample_bytes(n_clusters, dtype.itemsize)


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    # Threads of BLAS spin for a while after their work, on the cores of the threads that search.
    with _ALONE, _blas().limit(limits=1, user_api="blas"), np.errstate(all="ignore"):
        yield


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


@dataclass(frozen=True)
class _Plan:
    """A search that pays: its cost as a share of that of all centres, and axes and order, if it has any."""

    share: float
    dot: int
    projection: Projection | None
    order: np.ndarray | None

    def pack(self, centres: np.ndarray, panels: Panels, rows: np.ndarray) -> PrunedCentres | None:
        """Return the centres packed for it."""
        some, heads, order = every_so_many(rows, LEVELLED_ROWS), None, self.order
        if self.projection is not None:
            few = every_so_many(rows, _PROJECTED_ROWS)
            heads = quantize_centres(centres, panels, few, self.dot, self.projection, order)
        features = quantize_centres(
            centres, panels, some, self.dot, order=order, in_lines=heads is not None
        )
        if features is None or (heads is None) != (self.projection is None):
            return None
        return PrunedCentres(centres, panels.offset, first_terms(panels), features, heads, order)


def _plan(centres: np.ndarray, rows: np.ndarray, offset: np.ndarray) -> _Plan | None:
    (k, d), suited = centres.shape, tile.working_tile(len(centres), centres.dtype)
    dot, height = best_dot(suited.name), suited.height
    if not dot:
        return None
    sample, whole = sample_of(centres, rows, offset), k * d * centres.itemsize / 4
    if not sample.is_finite:
        return None
    left, projection, order = _left_by_features(sample, dot), None, None
    n_left, panels = left.sum(axis=1), np.arange(k) // height
    cost = search_cost(sample, Left(panels_with(left, panels), 0 * n_left, n_left), d, dot)
    projected = plan_projection(sample, left, height, dot)
    if projected is not None and projected[0] < cost:
        cost, projection, order = projected
    return _Plan(cost / whole, dot, projection, order) if cost < _LEAST_GAIN * whole else None


def _left_by_features(sample: Sample, dot: int) -> np.ndarray:
    """Return which centres the bounds of quantized features leave, (m, k), bool.

    Bounds are taken to be the scores; what quantizing may take from them lowers the limits.
    """
    some = sample.shifted(_SAMPLED_CENTRES)
    mean = some.mean(axis=0)
    some -= mean
    longest = float(np.sqrt(np.square(some).sum(axis=1).max()))
    loss = expected_loss(sample.rows - mean, float(np.abs(some).max()), longest, dot)
    limits = sample.limits(
        errors_of(some.shape[1], mean.dtype, float(np.sqrt(sample.squares.max())))
    )
    return np.asarray(sample.scores >= (limits - loss)[:, None])
