"""The kinds of bounds, what they cost in memory, and which of them a budget allows."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from daskcluster.kernels.tile import group_size
from daskcluster.methods.kmeans.groups import balanced_groups
from daskcluster.typing import Dataset


class Bounds(enum.StrEnum):
    """How many lower bounds a row has beside its upper one."""

    HAMERLY = "hamerly"
    """One for all centres."""
    YINYANG = "yinyang"
    """One for each group of about ten centres."""
    ELKAN = "elkan"
    """One for each centre."""

    def groups(self, centres: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the groups of centres that have a bound of their own, if any."""
        if self is not Bounds.YINYANG:
            return ()
        return balanced_groups(centres, group_size(len(centres), centres.dtype))

    def n_lower(self, groups: Sequence[np.ndarray], n_clusters: int) -> tuple[int, ...]:
        """Return the shape of the lower bounds of a row."""
        return {Bounds.HAMERLY: (), Bounds.YINYANG: (len(groups),), Bounds.ELKAN: (n_clusters,)}[
            self
        ]

    def row_bytes(self, n_clusters: int, dtype: np.dtype[Any]) -> int:
        """Return the bytes of a row's state: its label, an upper bound and the lower ones."""
        if self is Bounds.HAMERLY:
            return 12
        if self is Bounds.ELKAN:
            return 8 + 4 * n_clusters
        return 8 + 4 * -(-n_clusters // group_size(n_clusters, dtype))


_SMALL_SHARE, _FEW_CENTRES = 1 / 8, 64
_LESS = (Bounds.ELKAN, Bounds.YINYANG, Bounds.HAMERLY)


def automatic(n_features: int, n_clusters: int, dtype: np.dtype[Any]) -> tuple[Bounds, ...]:
    """Return the kinds that are worth trying.

    Those of single centres are the fastest where these are few and rows are long beside the bounds, and
    only there: at most 64 centres, and an eighth of a row.

    Examples
    --------
    >>> [str(kind) for kind in automatic(784, 50, np.dtype(np.float32))]
    ['hamerly', 'yinyang', 'elkan']
    """
    room = _SMALL_SHARE * n_features * dtype.itemsize
    fits = n_clusters <= _FEW_CENTRES and Bounds.ELKAN.row_bytes(n_clusters, dtype) <= room
    return (Bounds.HAMERLY, Bounds.YINYANG, *((Bounds.ELKAN,) if fits else ()))


def within(
    kinds: Sequence[Bounds], room: int, n_rows: int, n_clusters: int, dtype: np.dtype[Any]
) -> tuple[Bounds, ...]:
    """Return those kinds whose state fits into `room` bytes."""
    return tuple(kind for kind in kinds if n_rows * kind.row_bytes(n_clusters, dtype) <= room)


def fallbacks(kind: Bounds) -> tuple[Bounds, ...]:
    """Return the kind itself and those that take its place where memory is short, in this order."""
    return _LESS[_LESS.index(kind) :]


def recent_bytes(
    kind: Bounds, room: int, dataset: Dataset, n_clusters: int, dtype: np.dtype[Any]
) -> int:
    """Return the bytes per row that may hold copies of rows whose bounds will fail soon.

    Half of what `room` leaves beside the bounds, the other half is for partitions that stay in memory;
    at most an eighth of a row. None where all rows are, or stay, in memory.
    """
    n, rows = dataset.n_rows, dataset.bytes_of((0, dataset.n_rows))
    left = room - n * kind.row_bytes(n_clusters, dtype)
    if dataset.in_memory or left >= rows or n == 0:
        return 0
    return max(0, min(rows // 8, left // 2) // n)
