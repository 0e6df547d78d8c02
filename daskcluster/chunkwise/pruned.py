"""The search by bounds that is cheapest for centres and rows, if any pays.

Labels do not depend on it (`daskcluster.kernels.pruned_search`). A sample of rows shows how many centres
the bounds of each form would leave: by counts, not by clocks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from daskcluster.chunkwise.bound_costs import MEASURED, every_so_many, sample_of
from daskcluster.chunkwise.projection import most_axes, plan_projection
from daskcluster.chunkwise.quantization import may_quantize, quantized_cost
from daskcluster.kernels import tile
from daskcluster.kernels.candidates import UNDECIDED
from daskcluster.kernels.dot_product import best_dot
from daskcluster.kernels.panels import PORTABLE, Panels
from daskcluster.kernels.pruned_search import BoundedCentres, nearest_pruned
from daskcluster.kernels.quantized_centres import quantize_centres

_LEAST_ROWS, _LEAST_PRODUCTS = 512, 1 << 27
"""The search of fewer rows, or products, would not repay the sample."""
_LEVELLED_ROWS = 4096
"""Rows, at most, whose coordinates set the levels of quantized ones."""
_LEAST_GAIN = 0.75
_GIVEN_UP = 0.25
"""Largest share of rows that the search may give up before it is given up itself."""

_ALONE = threading.Lock()


class PrunedSearch:
    """The search by bounds for one set of centres.

    Parameters
    ----------
    packed : BoundedCentres
    """

    def __init__(self, packed: BoundedCentres) -> None:
        self._packed = packed
        self._most = len(packed.centres) // MEASURED
        self._rows, self._given_up = 0, 0

    @property
    def pays(self) -> bool:
        """False once too many rows needed the search of all centres."""
        return self._rows < _LEAST_ROWS or self._given_up <= _GIVEN_UP * self._rows

    def nearest(self, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Label rows; return which of them need the search of all centres."""
        nearest_pruned(rows, self._packed, self._most, labels)
        left = np.flatnonzero(labels == UNDECIDED)
        self._rows += len(rows)
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
        plan = _plan(centres, rows)
        packed = None if plan is None else plan[1](panels)
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
        plan = _plan(centres, rows)
    return 1.0 if plan is None else plan[0]


def may_pay(centres: np.ndarray) -> bool:
    """Return whether there are enough centres and features for a search by bounds."""
    k, d = centres.shape
    return search_bytes(k, d, centres.dtype) > 0


def repays_sample(centres: np.ndarray, n_rows: int) -> bool:
    """Return whether so many rows took about as long as a sample would."""
    return n_rows >= _LEAST_ROWS and n_rows * centres.size >= _LEAST_PRODUCTS


def search_bytes(n_clusters: int, n_features: int, dtype: np.dtype[Any]) -> int:
    """Return the most memory that a search by bounds takes; 0 where none pays.

    Shifted centres while the forms are compared, and projected or quantized ones.

    Examples
    --------
    >>> search_bytes(1000, 768, np.dtype("f4")), search_bytes(10, 16, np.dtype("f4"))
    (4104000, 0)
    """
    most = most_axes(n_clusters, n_features)
    projected = (most + 2) * dtype.itemsize if most else 0
    quantized = n_features + 8 if may_quantize(n_clusters, n_features) else 0
    if not (projected or quantized):
        return 0
    return n_clusters * (n_features * dtype.itemsize + max(projected, quantized))


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    # Threads of BLAS spin for a while after their work, on the cores of the threads that search.
    with _ALONE, _blas().limit(limits=1, user_api="blas"), np.errstate(all="ignore"):
        yield


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


_Plan = tuple[float, Callable[[Panels], BoundedCentres | None]]
"""Cost of a search that pays, as a share of that of all centres, and what packs the centres for it."""


def _plan(centres: np.ndarray, rows: np.ndarray) -> _Plan | None:
    (k, d), suited = centres.shape, tile.working_tile(len(centres), centres.dtype)
    if suited == PORTABLE:
        return None
    sample, whole = sample_of(centres, rows), k * d * centres.itemsize / 4
    if not sample.is_finite:
        return None
    plans: list[_Plan] = []
    if (dot := best_dot(suited.name)) and may_quantize(k, d):
        levelled = every_so_many(rows, _LEVELLED_ROWS)
        pack = partial(quantize_centres, centres, rows=levelled, dot=dot)
        plans.append((quantized_cost(sample, suited.height, dot), pack))
    if (projection := plan_projection(sample, suited)) is not None:
        cost = projection.cost * centres.itemsize / 4

        def project(panels: Panels) -> BoundedCentres:
            return projection.pack(centres, sample, suited)

        plans.append((cost, project))
    cost, made = min(plans, key=lambda plan: plan[0], default=(np.inf, None))
    return (cost / whole, made) if made is not None and cost < _LEAST_GAIN * whole else None
