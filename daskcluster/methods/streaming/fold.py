"""State of a stream: the summary of its rows, the current centres, and the test for drift.

The state depends only on the rows and their order: centres are recomputed at leaves that the rows
determine, whatever the sizes of the batches. `StreamFold.current` is computed from the state and does not
change it. Clusters keep their numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self, TypeVar

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import nearest_with_distances
from daskcluster.data.open import open_chunk, open_source
from daskcluster.engine.local import InlineEngine, LocalEngine
from daskcluster.engine.memory import Footprint
from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.plan import Plan
from daskcluster.events import Callback, DriftFound, publish
from daskcluster.kernels import distance
from daskcluster.methods.kmeans.algorithm import LEAST_GAIN, swap_centres
from daskcluster.methods.kmeans.estimator import KMeans
from daskcluster.methods.kmeans.fit import pass_flop
from daskcluster.methods.kmeans.initial import is_method, method_for
from daskcluster.methods.streaming.tree import (
    PIECE_BYTES,
    CoresetTree,
    LeafSettings,
    Node,
    Piece,
    Position,
    StreamRows,
    joined_rows,
)
from daskcluster.models.fitted import KMeansModel
from daskcluster.randomness import Key
from daskcluster.sparse_rows import INDEX_DTYPE, Rows, SparseRows
from daskcluster.storage.document import (
    Document,
    read_count,
    read_mapping,
    read_number,
    read_records,
    state_of,
    stored_kind,
)
from daskcluster.typing import Dataset

_MOST_SEARCHES = 8
"""Maximum number of local searches, each followed by Lloyd's algorithm. Usually two or three suffice."""
_SHORT_PASS = 1 << 27
"""Multiplications per pass up to which one thread is used; they take a few milliseconds."""


@dataclass(frozen=True)
class StreamCentres:
    """Centres of a stream, with statistics of their clusters on the summary.

    Attributes
    ----------
    centres : ndarray of shape (k, d)
    births : ndarray of shape (k,), int64
        Number of rows of the stream when each cluster was created.
    weights, costs : ndarray of shape (k,), float64
        Weight and inertia of each cluster when the centres were computed.
    sizes : ndarray of shape (k,), int64
        Number of rows of the summary in each cluster.
    n_rows : int
        Number of rows of the stream when the centres were computed.
    n_iter : int
    stop_reason, seeding : str
    """

    centres: np.ndarray
    births: np.ndarray
    weights: np.ndarray
    costs: np.ndarray
    sizes: np.ndarray
    n_rows: int
    n_iter: int
    stop_reason: str
    seeding: str

    @property
    def inertia(self) -> float:
        return float(self.costs.sum())

    def reordered(self, order: np.ndarray) -> Self:
        """Return the same clusters with other numbers: cluster ``order[i]`` becomes cluster i."""
        names = "centres", "births", "weights", "costs", "sizes"
        return replace(self, **{name: getattr(self, name)[order] for name in names})


def births_after(before: StreamCentres | None, centres: np.ndarray, n_rows: int) -> np.ndarray:
    """Return the births of centres: those of the same clusters in `before`, `n_rows` for new clusters."""
    if before is None:
        return np.full(len(centres), n_rows, np.int64)
    squares = np.empty((len(centres), len(centres)))
    distance.sqdist_all(np.ascontiguousarray(centres), before.centres, squares)
    return np.where(squares.argmin(axis=1) == np.arange(len(centres)), before.births, n_rows)


@dataclass(frozen=True)
class RefitSettings:
    """Settings of the search for centres by k-means.

    Attributes
    ----------
    n_clusters : int
    init : object
    search : mapping
        Other parameters of `daskcluster.KMeans`.
    seed : int
    """

    n_clusters: int
    init: Any
    search: Mapping[str, Any]
    seed: int

    def seek(
        self,
        rows: Chunk,
        before: StreamCentres | None,
        n_rows: int,
        *,
        fresh: bool = False,
    ) -> StreamCentres | None:
        """Return the centres of a summary; None if it has fewer rows than clusters.

        Parameters
        ----------
        rows : Chunk
            Rows with weights.
        before : StreamCentres, optional
            The previous centres, from which the search starts.
        n_rows : int
            Number of rows of the stream so far.
        fresh : bool
            Also try to leave the local minimum by local searches, as is always done for initial centres.

        Notes
        -----
        Cost: k-means of m rows in memory, and once more for each cluster that is tried; with `fresh`, also
        for each local search, including the last, unsuccessful one.
        """
        k = self.n_clusters if before is None else len(before.centres)
        if rows.n_rows < k:
            return None
        if before is None:
            # "auto" would choose by dataset class; the summary is always in memory.
            is_auto = isinstance(self.init, str) and self.init == "auto"
            best = self._found(rows, "k-means++" if is_auto else self.init, k, None, n_rows)
            fresh = is_method(self.init)  # given centres are only refined
        else:
            best = self._found(rows, before.centres, k, before, n_rows)
        for attempt in range(min(_MOST_SEARCHES, self.search["max_iter"]) if fresh else 0):
            seed = Key(self.seed, f"local search {attempt}", n_rows).derived_seed()
            moved = swap_centres(rows, best.centres, seed)
            found = self._found(rows, moved, k, before, n_rows)
            if found.inertia > (1.0 - LEAST_GAIN / k) * best.inertia:
                break
            best = found
        return best

    def _found(
        self, rows: Chunk, init: Any, n_clusters: int, before: StreamCentres | None, n_rows: int
    ) -> StreamCentres:
        """Return the centres that k-means of the summary finds from `init`."""
        from sklearn.exceptions import ConvergenceWarning  # deferred: workers do not need it

        # Short passes take one thread, as handing them over would take longer.
        is_short = rows.n_rows * rows.rows.shape[1] * n_clusters <= _SHORT_PASS
        kmeans = KMeans(
            n_clusters,
            init=init,
            n_init=1,
            **self.search,
            random_state=int(Key(self.seed, "refit", n_rows).generator().integers(2**31)),
            engine=InlineEngine() if is_short else LocalEngine(),
        )
        with warnings.catch_warnings():  # a summary may have few distinct rows
            warnings.simplefilter("ignore", ConvergenceWarning)
            kmeans.fit(open_chunk(rows))
        return StreamCentres(
            kmeans.cluster_centers_,
            births_after(before, kmeans.cluster_centers_, n_rows),
            kmeans.cluster_weights_,
            kmeans.cluster_costs_,
            kmeans.cluster_sizes_,
            n_rows,
            kmeans.n_iter_,
            kmeans.stop_reason_,
            method_for(self.init, in_memory=True) if before is None else before.seeding,
        )


MEMORY = 8
"""Number of leaves that the baseline averages over, approximately."""


def measure_fit(rows: Chunk, centres: np.ndarray) -> tuple[float, np.ndarray]:
    """Return how well weighted rows fit centres.

    Returns
    -------
    error : float
        Weighted mean of squared distances to the nearest centres.
    counts : ndarray of shape (k,), float64
        Weight of the rows of each centre.

    Examples
    --------
    >>> import numpy as np
    >>> rows = Chunk(np.array([[0.0], [1.0], [9.0]]), weights=np.array([1.0, 1.0, 2.0]))
    >>> measure_fit(rows, np.array([[0.0], [9.0]]))
    (0.25, array([2., 2.]))
    """
    labels, distances = nearest_with_distances(rows, centres)
    weights = rows.masses
    total = float(weights.sum())
    counts = np.bincount(labels, weights, minlength=len(centres))
    return float((distances * weights).sum()) / total if total > 0.0 else 0.0, counts


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
    ...     drift = drift.after(error, np.ones(1), threshold=1.5)
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

    def after(self, error: float, counts: np.ndarray, threshold: float) -> Drift:
        """Return the state after one more leaf; see `measure_fit`."""
        baseline = self.baseline
        if self.error is not None:
            share = 1.0 / min(self.n_leaves, MEMORY)
            baseline = (
                self.error if baseline is None else baseline + share * (self.error - baseline)
            )
        found = Drift(error, baseline, self.n_leaves + 1, False, counts)
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


T = TypeVar("T")

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
    refit : RefitSettings
    drift_threshold : float
    """

    leaf: LeafSettings
    refit: RefitSettings
    drift_threshold: float


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
    """

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

    def add_piece(self, piece: Piece, callbacks: Sequence[Callback] = ()) -> None:
        """Fold in a piece that a worker has summarised."""
        for node, carried in piece.leaves_into(self.tree):
            drift = self._measure(node)
            if drift is not None:
                publish(callbacks, drift)
            opening = self._opening()
            self.tree.push(node, carried)
            self.since += node.weight
            self.since_fresh += node.weight
            is_due = self.since * REFIT_SHARE >= self.tree.weight
            if self.fitted is None or drift is not None or is_due:
                self._seek(opening)
        self._current = None

    def _measure(self, node: Node) -> DriftFound | None:
        """Measure the error of a leaf under the current centres; return an event if it just became high."""
        if self.fitted is None or not node.weight > 0.0:
            return None
        was_high = self.drift.is_high
        leaf = self.settings.leaf.chunk(node.rows, node.weights)
        error, counts = measure_fit(leaf, self.fitted.centres)
        self.drift = self.drift.after(error, counts, self.settings.drift_threshold)
        if was_high or not self.drift.is_high:
            return None
        assert self.drift.baseline is not None
        return DriftFound(self.n_rows, error, self.drift.baseline, tuple(counts.tolist()))

    def _opening(self) -> Rows | None:
        """Return all rows so far while the first leaf is open, which is always made in this process."""
        is_first = self.tree.n_leaves == 0 and self.tree.tail
        return joined_rows(self.tree.tail).rows if is_first else None

    def _sought(self, opening: Rows | None, *, fresh: bool = False) -> StreamCentres | None:
        """Return the centres of the summary; see `RefitSettings.seek`.

        Initial centres are numbered in the order in which the first rows of their clusters arrived. The
        order is that of `opening`, or, after the first leaf, of the rows on which centres were found. So
        the numbers do not depend on the number of rows at that time, unless the clusters differ. Centres
        given as `init` keep their numbers, and so do later centres.
        """
        (rows, weights), leaf, refit = self.tree.summary(), self.settings.leaf, self.settings.refit
        found = refit.seek(leaf.chunk(rows, weights), self.fitted, self.n_rows, fresh=fresh)
        if found is None or self.fitted is not None or not is_method(refit.init):
            return found
        came = rows if opening is None else opening
        labels, _ = nearest_with_distances(leaf.chunk(came), found.centres)
        first = np.full(len(found.centres), len(labels))
        np.minimum.at(first, labels, np.arange(len(labels)))
        return found.reordered(np.argsort(first, kind="stable"))

    def _seek(self, opening: Rows | None = None) -> None:
        if not self.tree.kept_rows:
            return
        fresh = self.drift.is_high or self.since_fresh * FRESH_SHARE >= self.tree.weight
        found = self._sought(opening, fresh=fresh)
        if found is None:
            return
        self.since = 0.0
        if fresh:
            self.since_fresh = 0.0
        self.fitted = found
        self._found = [*self._found[-_MOST_HISTORY:], found]
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
                self._current = self._sought(self._opening())
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


KIND = "stream"

_OF_A_NODE = ("level", "first", "stop", "oldest", "newest")

Arrays = dict[str, np.ndarray]


def document_of(fold: StreamFold) -> Document:
    """Return the state as a document."""
    tree, body, arrays = fold.tree, dict[str, Any](), Arrays()
    body["clock"] = {
        "n_leaves": tree.n_leaves,
        "n_rows": tree.n_rows,
        "now": tree.now,
        "since": fold.since,
        "since_fresh": fold.since_fresh,
    }
    body["nodes"] = [
        {**{name: getattr(node, name) for name in _OF_A_NODE}, "n_rows": len(node.rows)}
        for node in tree.nodes
    ]
    body["nodes_rows"] = _pack("nodes", [node.rows for node in tree.nodes], arrays)
    _put(arrays, "nodes_weights", [node.weights for node in tree.nodes])
    tails = [joined_rows(tree.tail)] if tree.tail else []
    body["tail_rows"] = _pack("tail", [each.rows for each in tails], arrays)
    _put(arrays, "tail_weights", [each.weights for each in tails if each.weights is not None])
    _put(arrays, "tail_ticks", [each.ticks for each in tails if each.ticks is not None])
    body["drift"] = fold.drift.body()
    _put(arrays, "drift_counts", [fold.drift.counts])
    body["history"] = fold.history
    if fold.fitted is not None:
        values = {each.name: getattr(fold.fitted, each.name) for each in fields(fold.fitted)}
        of_clusters = [name for name, value in values.items() if isinstance(value, np.ndarray)]
        arrays |= {f"fitted_{name}": values.pop(name) for name in of_clusters}
        body["fitted"] = values
    return Document(KIND, body, arrays)


def fold_of(document: Document, settings: FoldSettings) -> StreamFold:
    """Return the state that `document` describes for a stream with `settings`.

    Raises
    ------
    ModelFormatError
        `document` is not the state of a stream.
    """
    body, arrays = document.body, document.arrays
    fold = StreamFold.empty(settings)
    tree, clock = fold.tree, read_mapping(body, "clock")
    tree.n_leaves, tree.n_rows = read_count(clock, "n_leaves"), read_count(clock, "n_rows")
    tree.now, fold.since = read_number(clock, "now"), read_number(clock, "since")
    fold.since_fresh = read_number(clock, "since_fresh")
    rows = _unpack("nodes", read_mapping(body, "nodes_rows"), arrays, settings)
    tree.nodes = _nodes(read_records(body, "nodes"), rows, arrays)
    tail = _unpack("tail", read_mapping(body, "tail_rows"), arrays, settings)
    if len(tail):
        tree.tail = (StreamRows(tail, arrays.get("tail_weights"), arrays.get("tail_ticks")),)
    counts = arrays.get("drift_counts", np.empty(0))
    fold.drift = _restored(Drift, read_mapping(body, "drift"), {"counts": counts})
    fold.history = list(read_records(body, "history"))
    if "fitted" in body:
        own = {name[7:]: array for name, array in arrays.items() if name.startswith("fitted_")}
        fold.fitted = _restored(StreamCentres, read_mapping(body, "fitted"), own)
    return fold


def _restored(kind: type[T], body: Mapping[str, Any], arrays: Mapping[str, Any]) -> T:
    """Return a dataclass from its plain fields and its arrays."""
    whole = {**body, **dict.fromkeys(arrays, "array")}
    shapes = {name: values.shape for name, values in arrays.items()}
    return state_of(kind, Document(stored_kind(kind), whole, dict(arrays)), shapes)


def _nodes(records: Sequence[Mapping[str, Any]], rows: Rows, arrays: Arrays) -> list[Node]:
    nodes, at = [], 0
    for record in records:
        stop = at + read_count(record, "n_rows")
        weights = arrays["nodes_weights"][at:stop] if stop > at else np.empty(0)
        level, first, last = (read_count(record, name) for name in ("level", "first", "stop"))
        oldest, newest = (read_number(record, name) for name in ("oldest", "newest"))
        nodes.append(Node(level, first, last, rows[at:stop], weights, oldest, newest))
        at = stop
    return nodes


def _put(arrays: Arrays, name: str, parts: Sequence[np.ndarray]) -> None:
    """Store the concatenated parts as one array, unless it is empty: documents have no empty arrays."""
    if sum(map(len, parts)):
        arrays[name] = np.concatenate(parts)


def _pack(name: str, parts: Sequence[Rows], arrays: Arrays) -> dict[str, Any]:
    """Put rows into `arrays`; return the metadata for `_unpack`."""
    filled = [part for part in parts if len(part)]
    if not filled:
        return {"n_rows": 0, "n_features": 1, "sparse": False}
    rows = joined_rows([StreamRows(part) for part in filled]).rows
    metadata = {"n_rows": len(rows), "n_features": int(rows.shape[1]), "sparse": False}
    if not isinstance(rows, SparseRows):
        arrays[f"{name}_rows"] = rows
        return metadata
    arrays[f"{name}_indptr"] = rows.offsets
    if len(rows.data):
        arrays |= {f"{name}_data": rows.data, f"{name}_indices": rows.indices.astype(np.int64)}
    return {**metadata, "sparse": True}


def _unpack(name: str, metadata: Mapping[str, Any], arrays: Arrays, settings: FoldSettings) -> Rows:
    n_features, dtype = read_count(metadata, "n_features"), settings.leaf.dtype
    if not read_count(metadata, "n_rows"):
        return np.empty((0, n_features), dtype)
    if not metadata["sparse"]:
        return arrays[f"{name}_rows"]
    data = arrays.get(f"{name}_data", np.empty(0, dtype))
    indices = arrays.get(f"{name}_indices", np.empty(0, np.int64)).astype(INDEX_DTYPE)
    return SparseRows(data, indices, arrays[f"{name}_indptr"], n_features)


def fold_of_model(model: KMeansModel, settings: FoldSettings) -> StreamFold:
    """Return a stream whose rows so far are the centres of `model`, with the weights of their clusters."""
    fold = StreamFold.empty(settings)
    kept = np.flatnonzero(model.weights > 0.0)
    fold.tree.nodes = [Node(0, 0, 1, model.centres[kept], model.weights[kept], 0.0, 0.0)]
    fold.tree.n_leaves, fold.tree.n_rows = 1, model.n_rows
    fold.history = list(model.history)
    own = {each.name for each in fields(StreamCentres)} - {"births"}
    births = np.zeros(model.n_clusters, np.int64)
    fold.fitted = StreamCentres(births=births, **{name: getattr(model, name) for name in own})
    return fold
