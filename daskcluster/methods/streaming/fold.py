"""State of a stream: the summary of its rows, the current centres, and the test for drift.

The state depends only on the rows and their order: centres are recomputed at leaves that the rows
determine, whatever the sizes of the batches. `StreamFold.current` is computed from the state and does not
change it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from daskcluster.data.open import open_source
from daskcluster.events import Callback, DriftFound, publish
from daskcluster.methods.kmeans.initial import is_method
from daskcluster.methods.streaming.drift import Drift, measure_fit
from daskcluster.methods.streaming.refit import Search, StreamCentres
from daskcluster.methods.streaming.tree.node import LeafSettings, Node
from daskcluster.methods.streaming.tree.pieces import Piece, Position
from daskcluster.methods.streaming.tree.stream_rows import StreamRows, joined_rows
from daskcluster.methods.streaming.tree.tree import Carried, CoresetTree
from daskcluster.sparse_rows import Rows
from daskcluster.typing import Dataset

FoundT = TypeVar("FoundT", bound=StreamCentres)

REFIT_SHARE = 6
"""Centres are recomputed when the weight of new rows times this reaches the weight of all rows."""

FRESH_SHARE = 2
"""Likewise for a local search, which is also made when new rows no longer fit."""

_MOST_HISTORY = 100


@dataclass(frozen=True)
class FoldSettings:
    """Settings of a stream, which together with the rows determine its state.

    Attributes
    ----------
    leaf : LeafSettings
    refit : Search
    drift_threshold : float
    """

    leaf: LeafSettings
    refit: Search
    drift_threshold: float

    def comparable(self) -> LeafSettings:
        """Return the settings that must be equal for two streams to be merged."""
        return replace(self.leaf, seed=0)


@dataclass
class StreamFold:
    """The state of a stream.

    Attributes
    ----------
    settings : FoldSettings
    tree : CoresetTree
    fitted : StreamCentres or None
        The current centres, from the last leaf at which they were recomputed.
    drift : Drift
    since, since_fresh : float
        Weight of the rows since that leaf, and since the last local search.
    history : list of dict
        A record for each of the last hundred times that centres were recomputed.
    most_found : int
        Maximum number of centres stored for `take_found`.
    """

    most_found: ClassVar[int] = _MOST_HISTORY

    settings: FoldSettings
    tree: CoresetTree
    fitted: StreamCentres | None = None
    drift: Drift = field(default_factory=Drift)
    since: float = 0.0
    since_fresh: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)
    _current: StreamCentres | None = field(default=None, repr=False)
    _found: list[StreamCentres] = field(default_factory=list, repr=False)

    @classmethod
    def empty(cls, settings: FoldSettings) -> Self:
        return cls(settings, CoresetTree(settings.leaf))

    @property
    def n_rows(self) -> int:
        return self.tree.n_rows

    def position(self) -> Position:
        """Return the position of the next row."""
        return Position(self.tree.n_leaves, self.tree.tail_rows, self.tree.now)

    def add(self, rows: StreamRows, callbacks: Sequence[Callback] = ()) -> None:
        """Fold rows in."""
        self._push(((node, ()) for node in self.tree.fill(rows)), callbacks)

    def add_piece(self, piece: Piece, callbacks: Sequence[Callback] = ()) -> None:
        """Fold in a piece that a worker has summarised."""
        self._push(piece.leaves_into(self.tree), callbacks)

    def _push(self, leaves: Iterable[tuple[Node, Carried]], callbacks: Sequence[Callback]) -> None:
        for node, carried in leaves:
            became_high = self._measure(node)
            opening = self._opening()
            self.tree.push(node, carried)
            self.since += node.weight
            self.since_fresh += node.weight
            if became_high:
                publish(callbacks, self._event())
            if self.fitted is None or became_high or self._is_due():
                self._seek(opening)
        self._current = None

    def _measure(self, node: Node) -> bool:
        """Measure the error of a leaf under the current centres; return whether it has just become high."""
        if self.fitted is None or not node.weight > 0.0:
            return False
        was_high = self.drift.is_high
        leaf = self.settings.leaf.chunk(node.rows, node.weights)
        found = measure_fit(leaf, self.fitted.centres)
        self.drift = self.drift.after(found, self.settings.drift_threshold)
        return self.drift.is_high and not was_high

    def _event(self) -> DriftFound:
        drift = self.drift
        assert drift.error is not None
        assert drift.baseline is not None
        return DriftFound(self.n_rows, drift.error, drift.baseline, tuple(drift.counts.tolist()))

    def _is_due(self) -> bool:
        return self.since * REFIT_SHARE >= self.tree.weight

    def _opening(self) -> Rows | None:
        """Return all rows so far while the first leaf is open, which is always made in this process."""
        is_first = self.tree.n_leaves == 0 and self.tree.tail
        return joined_rows(self.tree.tail).rows if is_first else None

    def _numbered(self, found: FoundT | None, opening: Rows | None, rows: Rows) -> FoundT | None:
        """Return the initial centres, numbered in the order in which their clusters' first rows arrived.

        The order is that of `opening`, or, after the first leaf, of `rows`, on which centres were found.
        So the numbers do not depend on the number of rows at that time, unless the clusters differ.
        Centres given as `init` keep their numbers, and so do later centres.
        """
        if found is None or self.fitted is not None or not is_method(self.settings.refit.init):
            return found
        came = rows if opening is None else opening
        labels, _ = found.nearest(self.settings.leaf.chunk(came))
        first = np.full(len(found.centres), len(labels))
        np.minimum.at(first, labels, np.arange(len(labels)))
        return found.reordered(np.argsort(first, kind="stable"))

    def _seek(self, opening: Rows | None = None) -> None:
        if not self.tree.kept_rows:
            return
        rows, weights = self.tree.summary()
        high = self.drift.is_high
        fresh = high or self.since_fresh * FRESH_SHARE >= self.tree.weight
        chunk = self.settings.leaf.chunk(rows, weights)
        found = self.settings.refit.seek(chunk, self.fitted, self.n_rows, fresh=fresh, grow=high)
        found = self._numbered(found, opening, rows)
        if found is None:
            return
        self.since = 0.0
        if fresh:
            self.since_fresh = 0.0
        self._take_over(found)

    def _take_over(self, found: StreamCentres) -> None:
        """Make `found` the current centres and record them in the history."""
        self.fitted = found
        self._found = [*self._found[-self.most_found :], found]
        record = {
            "iteration": 1 + (self.history[-1]["iteration"] if self.history else 0),
            "n_rows": self.n_rows,
            "n_clusters": len(found.centres),
            "inertia": found.inertia,
            "n_iter": found.n_iter,
            "drift": self.drift.ratio,
        }
        self.history = [*self.history, record][-_MOST_HISTORY:]

    def current(self) -> StreamCentres | None:
        """Return the current centres, refined on all rows so far; None if there are too few rows."""
        if self._current is None and self.tree.kept_rows:
            if self.fitted is not None and self.fitted.n_rows == self.n_rows:
                self._current = self.fitted
            else:
                rows, weights = self.tree.summary()
                chunk = self.settings.leaf.chunk(rows, weights)
                found = self.settings.refit.seek(chunk, self.fitted, self.n_rows)
                self._current = self._numbered(found, self._opening(), rows)
        return self._current

    def take_found(self) -> list[StreamCentres]:
        """Return the centres that were recomputed since the last call, in order."""
        found, self._found = self._found, []
        return found

    def absorb(self, other: StreamFold) -> None:
        """Merge the rows of another stream that ran in parallel, and recompute the centres."""
        self.tree.absorb(other.tree)
        self.since = self.since_fresh = self.tree.weight
        self._current = None
        if self.fitted is None:
            self.fitted = other.fitted
        if self.fitted is not None:
            self._seek()

    def twin(self) -> Self:
        """Return an independent copy, which shares arrays; these are never changed in place."""
        tree = CoresetTree(self.tree.settings)
        tree.__dict__.update(self.tree.__dict__, nodes=list(self.tree.nodes))
        return replace(self, tree=tree)

    def summary(self) -> Dataset:
        """Return weighted rows that represent all remembered rows."""
        rows, weights = self.tree.summary()
        return open_source(rows, weights=weights)

    @property
    def n_kept(self) -> int:
        """Number of rows of the summary."""
        return len(self.tree.summary()[0]) if self.tree.kept_rows else 0

    @property
    def remembered(self) -> float:
        """Weight of all rows after forgetting."""
        return self.tree.weight
