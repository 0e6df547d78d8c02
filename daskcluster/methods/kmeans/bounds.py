"""The kinds of bounds, and the choice among them by algorithm name and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.events import Callback, Notice, publish
from daskcluster.host import format_bytes
from daskcluster.methods.kmeans.assignment import Assignment, BoundedAssignment, FullAssignment
from daskcluster.methods.kmeans.auto import AutoAssignment
from daskcluster.methods.kmeans.chunkwise.elkan import ELKAN
from daskcluster.methods.kmeans.chunkwise.hamerly import HAMERLY
from daskcluster.methods.kmeans.chunkwise.kind import BoundKind
from daskcluster.methods.kmeans.chunkwise.sparse_hamerly import SPARSE_HAMERLY
from daskcluster.methods.kmeans.chunkwise.yinyang import YINYANG
from daskcluster.methods.kmeans.parameters import EXACT
from daskcluster.typing import Dataset

BOUNDS = {kind.name: kind for kind in (ELKAN, YINYANG, HAMERLY)}
"""By name, from most bounds a row to fewest: where one takes too much memory, the next takes its place."""


def register_bounds(kind: BoundKind, about: str) -> None:
    """Register another kind of bounds as ``KMeans(algorithm=kind.name)``.

    Parameters
    ----------
    kind : BoundKind
        If its state does not fit into memory, the existing kinds take its place.
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
    """Return the kind and those that take its place when memory is short, in this order."""
    kinds = tuple(BOUNDS.values())
    return kinds[kinds.index(kind) :] if kind in kinds else (kind,)


def recent_bytes(
    kind: BoundKind, room: int, dataset: Dataset, n_clusters: int, dtype: np.dtype[Any]
) -> int:
    """Return the bytes per row that may hold copies of rows whose bounds will fail soon.

    Half of the `room` that the bounds leave; the other half is for partitions that stay in memory;
    at most an eighth of a row. None where all rows are, or stay, in memory.
    """
    n, rows = dataset.n_rows, dataset.bytes_of((0, dataset.n_rows))
    left = room - n * kind.row_bytes(n_clusters, dtype)
    if dataset.in_memory or left >= rows or n == 0:
        return 0
    return max(0, min(rows // 8, left // 2) // n)


@dataclass(frozen=True)
class AssignmentChoice:
    """Chooses the assignment: with bounds, as far as memory allows.

    Parameters
    ----------
    algorithm : {"auto", "lloyd", "elkan", "hamerly", "yinyang"}
    n_clusters : int
    bounds_memory : int or "auto"
        Bytes that bounds may take.
    callbacks : sequence of callables
        Called with a `Notice` if another kind takes the place of the requested one.
    sparse : bool
        Rows are CSR.
    parameter : str
        Name of the caller's parameter, for notices.
    """

    algorithm: str
    n_clusters: int
    bounds_memory: int | str
    callbacks: Sequence[Callback] = ()
    sparse: bool = False
    parameter: str = "algorithm"

    def __call__(self, rows: ScaledPlacement, labels: np.ndarray | None = None) -> Assignment:
        """Return the assignment of `rows`; `labels` as for `FullAssignment`."""
        name = self.algorithm
        if name == "lloyd":
            return FullAssignment(rows, labels, by_changes=True, plans=True)
        if name == "auto":
            d = rows.placement.dataset.n_features
            kinds = automatic(d, self.n_clusters, rows.dtype)
            return AutoAssignment(
                rows,
                self._within((SPARSE_HAMERLY,) if self.sparse else kinds, rows),
                labels,
                recent_bytes=lambda kind: self._recent_bytes(kind, rows),
                reads=_is_read_again(rows),
            )
        if self.sparse and name != SPARSE_HAMERLY.name:
            self._notice(
                f"{self.parameter}={name!r} is for dense rows; hamerly takes its place, with the same "
                "result."
            )
        return self._bounded(SPARSE_HAMERLY if self.sparse else BOUNDS[name], rows, labels)

    def _bounded(
        self, wanted: BoundKind, rows: ScaledPlacement, labels: np.ndarray | None
    ) -> Assignment:
        kinds = self._within(fallbacks(wanted), rows)
        if not kinds or kinds[0] is not wanted:
            n_rows = rows.placement.dataset.n_rows
            needed = n_rows * wanted.row_bytes(self.n_clusters, rows.dtype)
            self._notice(
                f"{self.parameter}={wanted.name!r} needs {format_bytes(needed)} for its bounds, of which "
                f"{format_bytes(self._room(rows))} are there; {kinds[0] if kinds else 'lloyd'} "
                "takes its place, with the same result. Raise bounds_memory or the memory limit."
            )
        if not kinds:
            return FullAssignment(rows, labels, by_changes=True, plans=True)
        recent = self._recent_bytes(kinds[0], rows)
        return BoundedAssignment(rows, kinds[0], labels, recent_bytes=recent)

    def _recent_bytes(self, kind: BoundKind, rows: ScaledPlacement) -> int:
        if self.sparse:
            return 0  # copies of rows are dense arrays
        room, k = self._room(rows), self.n_clusters
        return recent_bytes(kind, room, rows.placement.dataset, k, rows.dtype)

    def _within(self, kinds: Sequence[BoundKind], rows: ScaledPlacement) -> tuple[BoundKind, ...]:
        n_rows = rows.placement.dataset.n_rows
        return within(kinds, self._room(rows), n_rows, self.n_clusters, rows.dtype)

    def _room(self, rows: ScaledPlacement) -> int:
        room = rows.placement.state_room()
        return room if self.bounds_memory == "auto" else min(room, int(self.bounds_memory))

    def _notice(self, text: str) -> None:
        publish(self.callbacks, Notice(text))


def _is_read_again(rows: ScaledPlacement) -> bool:
    dataset = rows.placement.dataset
    size = dataset.bytes_of((0, dataset.n_rows))
    return not dataset.in_memory and size > rows.placement.state_room()
