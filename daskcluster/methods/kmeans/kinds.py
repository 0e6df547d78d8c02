"""The kinds of bounds there are, and which of them memory allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from daskcluster.methods.kmeans.chunkwise.elkan import ELKAN
from daskcluster.methods.kmeans.chunkwise.hamerly import HAMERLY
from daskcluster.methods.kmeans.chunkwise.kind import BoundKind
from daskcluster.methods.kmeans.chunkwise.yinyang import YINYANG
from daskcluster.methods.kmeans.parameters import EXACT
from daskcluster.typing import Dataset

BOUNDS = {kind.name: kind for kind in (ELKAN, YINYANG, HAMERLY)}
"""By name, from most bounds a row to fewest: where one takes too much memory, the next takes its place."""


def register_bounds(kind: BoundKind, about: str) -> None:
    """Let ``KMeans(algorithm=kind.name)`` keep one more kind of bounds.

    Parameters
    ----------
    kind : BoundKind
        Where its state does not fit into memory, those that are there already take its place.
    about : str
        A few words for help.
    """
    others = {name: each for name, each in BOUNDS.items() if name != kind.name}
    BOUNDS.clear()
    BOUNDS.update({kind.name: kind, **others})
    EXACT[kind.name] = about


def automatic(n_features: int, n_clusters: int, dtype: np.dtype[Any]) -> tuple[BoundKind, ...]:
    """Return the kinds that ``algorithm="auto"`` considers, those with fewest bounds first.

    Examples
    --------
    >>> [str(kind) for kind in automatic(784, 50, np.dtype(np.float32))]
    ['hamerly', 'yinyang', 'elkan']
    """
    return tuple(
        kind for kind in reversed(BOUNDS.values()) if kind.suits(n_features, n_clusters, dtype)
    )


def within(
    kinds: Sequence[BoundKind], room: int, n_rows: int, n_clusters: int, dtype: np.dtype[Any]
) -> tuple[BoundKind, ...]:
    """Return those kinds whose state fits into `room` bytes."""
    return tuple(kind for kind in kinds if n_rows * kind.row_bytes(n_clusters, dtype) <= room)


def fallbacks(kind: BoundKind) -> tuple[BoundKind, ...]:
    """Return the kind itself and those that take its place where memory is short, in this order."""
    kinds = tuple(BOUNDS.values())
    return kinds[kinds.index(kind) :]


def recent_bytes(
    kind: BoundKind, room: int, dataset: Dataset, n_clusters: int, dtype: np.dtype[Any]
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
