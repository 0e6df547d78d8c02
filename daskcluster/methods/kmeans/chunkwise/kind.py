"""What a kind of bounds is: all that differs between Hamerly's, Yinyang's and Elkan's, as one object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.chunkwise.reduction import StatefulReduction
from daskcluster.methods.kmeans.chunkwise.bounded import BoundedParams
from daskcluster.methods.kmeans.costs import Counts, Shape
from daskcluster.methods.kmeans.drift import Drift, Gaps


def _no_groups(centres: np.ndarray) -> tuple[np.ndarray, ...]:
    return ()


def _one(n_groups: int, n_clusters: int) -> tuple[int, ...]:
    return ()


def _never(n_features: int, n_clusters: int, dtype: np.dtype[Any]) -> bool:
    return False


def _always(shape: Shape) -> bool:
    return True


@dataclass(frozen=True, eq=False)
class BoundKind:
    """A kind of bounds, which `daskcluster.methods.kmeans.kinds.register_bounds` makes an ``algorithm`` of.

    Attributes
    ----------
    name : str
        In ``algorithm=``, on the command line and in events.
    row_bytes : callable (n_clusters, dtype) -> int
        Bytes of a row's state: its label, an upper bound and the lower ones.
    step : callable (BoundedParams, Drift, Gaps) -> (StatefulReduction, params)
        The pass that brings labels and bounds up to date, and what it is called with.
    cost : callable (Shape, Counts) -> float
        Nanoseconds of a row in such a pass, by its counts.
    groups : callable (centres) -> tuple of ndarray of int32
        Groups of centres that have a lower bound of their own; none by default.
    n_lower : callable (n_groups, n_clusters) -> tuple of int
        Shape of the lower bounds of a row; one bound by default.
    pairwise : bool
        A pass uses the distances between all centres.
    suits : callable (n_features, n_clusters, dtype) -> bool
        Whether ``algorithm="auto"`` considers it; by default it does not.
    may_win : callable (Shape) -> bool
        Whether it is worth trying there; by default it is.
    excludes_others : bool
        Where it suits, no other kind is tried.
    """

    name: str
    row_bytes: Callable[[int, np.dtype[Any]], int]
    step: Callable[[BoundedParams, Drift, Gaps], tuple[StatefulReduction, Any]]
    cost: Callable[[Shape, Counts], float]
    groups: Callable[[np.ndarray], tuple[np.ndarray, ...]] = _no_groups
    n_lower: Callable[[int, int], tuple[int, ...]] = _one
    pairwise: bool = False
    suits: Callable[[int, int, np.dtype[Any]], bool] = _never
    may_win: Callable[[Shape], bool] = _always
    excludes_others: bool = False

    def __str__(self) -> str:
        return self.name
