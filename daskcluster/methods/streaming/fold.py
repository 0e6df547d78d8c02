"""State of a stream: the summary of its rows, the current centres, and the test for drift.

The state depends only on the rows and their order: centres are recomputed at leaves that the rows
determine, whatever the sizes of the batches. `StreamFold.current` is computed from the state and does not
change it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import nearest_with_distances
from daskcluster.data.open import open_source
from daskcluster.engine.memory import Footprint
from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.plan import Plan
from daskcluster.events import Callback, DriftFound, publish
from daskcluster.methods.kmeans.fit import pass_flop
from daskcluster.methods.kmeans.initial import is_method, method_for
from daskcluster.methods.streaming.refit import Search, StreamCentres
from daskcluster.methods.streaming.tree.pieces import PIECE_BYTES, Piece, Position
from daskcluster.methods.streaming.tree.tree import (
    Carried,
    CoresetTree,
    LeafSettings,
    Node,
    StreamRows,
    joined_rows,
)
from daskcluster.sparse_rows import Rows
from daskcluster.storage.document import read_count, read_number
from daskcluster.typing import Dataset

MEMORY = 8
"""Number of leaves that the baseline averages over, approximately."""


@dataclass(frozen=True)
class LeafFit:
    """How well the rows of a leaf fit centres.

    Attributes
    ----------
    error : float
        Weighted mean of squared distances to the nearest centres.
    counts : ndarray of shape (k,), float64
        Weight of the rows of each centre.
    """

    error: float
    counts: np.ndarray


def measure_fit(rows: Chunk, centres: np.ndarray) -> LeafFit:
    """Return how well weighted rows fit centres.

    Examples
    --------
    >>> import numpy as np
    >>> rows = Chunk(np.array([[0.0], [1.0], [9.0]]), weights=np.array([1.0, 1.0, 2.0]))
    >>> measure_fit(rows, np.array([[0.0], [9.0]]))
    LeafFit(error=0.25, counts=array([2., 2.]))
    """
    labels, distances = nearest_with_distances(rows, centres)
    weights = rows.weights
    assert weights is not None
    total = float(weights.sum())
    counts = np.bincount(labels, weights, minlength=len(centres))
    return LeafFit(float((distances * weights).sum()) / total if total > 0.0 else 0.0, counts)


@dataclass(frozen=True)
class Drift:
    """The error of new rows under the old centres, compared with earlier rows.

    Attributes
    ----------
    error : float or None
        Mean squared distance of the last leaf to the centres before it.
    baseline : float or None
        Mean error of the leaves before the last one.
    n_leaves : int
        Number of leaves measured.
    is_high : bool
        Whether the error of the last leaf exceeded `baseline` times the threshold.
    counts : ndarray of shape (k,)
        Weight of the last leaf's rows in each cluster.

    Examples
    --------
    >>> import numpy as np
    >>> drift = Drift()
    >>> for error in (1.0, 1.2, 0.9, 4.0):
    ...     drift = drift.after(LeafFit(error, np.ones(1)), threshold=1.5)
    >>> drift.is_high, round(drift.ratio, 1)
    (True, 3.9)
    """

    error: float | None = None
    baseline: float | None = None
    n_leaves: int = 0
    is_high: bool = False
    counts: np.ndarray = field(default_factory=lambda: np.empty(0))

    @property
    def ratio(self) -> float | None:
        """The error divided by its baseline."""
        if self.error is None or not self.baseline:
            return None
        return self.error / self.baseline

    def after(self, fit: LeafFit, threshold: float) -> Drift:
        """Return the state after one more leaf."""
        baseline = self.baseline
        if self.error is not None:
            share = 1.0 / min(self.n_leaves, MEMORY)
            baseline = (
                self.error if baseline is None else baseline + share * (self.error - baseline)
            )
        found = Drift(fit.error, baseline, self.n_leaves + 1, False, fit.counts)
        ratio = found.ratio
        return replace(found, is_high=ratio is not None and ratio > threshold)

    def body(self) -> dict[str, Any]:
        """Return all attributes except `counts` as plain values."""
        return {
            "error": self.error,
            "baseline": self.baseline,
            "ratio": self.ratio,
            "n_leaves": self.n_leaves,
            "is_high": self.is_high,
        }

    @classmethod
    def of(cls, body: Mapping[str, Any], counts: np.ndarray) -> Drift:
        """Return the drift that `body` and `counts` describe."""
        error, baseline = (
            None if body.get(name) is None else read_number(body, name)
            for name in ("error", "baseline")
        )
        return cls(error, baseline, read_count(body, "n_leaves"), bool(body["is_high"]), counts)


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
            is_due = self.since * REFIT_SHARE >= self.tree.weight
            if self.fitted is None or became_high or is_due:
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


def plan_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return the projected cost of a fit with `parameters` on `dataset`: one pass, in pieces."""
    check_enough_rows(dataset, int(parameters["n_clusters"]))
    return Plan(
        seeding=method_for(parameters["init"], in_memory=True),
        passes_seeding=0,
        restarts=1,
        passes_at_most=1,
        footprint=Footprint(thread_bytes=PIECE_BYTES),
        flop=pass_flop(dataset, 1),
    )
