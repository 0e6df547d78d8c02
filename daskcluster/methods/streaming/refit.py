"""Centres of a stream, recomputed on its summary; clusters keep their numbers."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, Self

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import nearest_with_distances, normalized_rows
from daskcluster.data.open import open_chunk
from daskcluster.engine.local import InlineEngine, LocalEngine
from daskcluster.methods.kmeans.estimator import KMeans
from daskcluster.methods.kmeans.initial import is_method, method_for
from daskcluster.methods.kmeans.local_search import LEAST_GAIN, swap_centres
from daskcluster.randomness import Key
from daskcluster.sparse_rows import dense_rows


def matched(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return the order of `new` that matches it to `old`: each new centre takes the place of an old one.

    The assignment has the least sum of squared distances (Kuhn 1955; Jonker and Volgenant 1987). Extra
    new centres come last, in their own order.

    Parameters
    ----------
    old : ndarray of shape (k, d)
    new : ndarray of shape (k', d)
        k' >= k.

    Returns
    -------
    ndarray of shape (k',), int64

    Notes
    -----
    Cost: k k' distances, and O(k^2 k') steps at most.

    Examples
    --------
    >>> import numpy as np
    >>> matched(np.array([[0.0], [9.0]]), np.array([[9.5], [4.0], [0.1]]))
    array([2, 0, 1])
    """
    from scipy.optimize import linear_sum_assignment

    _, order = linear_sum_assignment(squared_distances(old, new))
    others = np.setdiff1d(np.arange(len(new)), order)
    return np.concatenate([order, others]).astype(np.int64)


def is_the_same(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return, for each of `new`, whether the old centre of the same number is the nearest, bool (k',).

    Examples
    --------
    >>> import numpy as np
    >>> is_the_same(np.array([[0.0], [9.0]]), np.array([[1.0], [2.0], [8.0]]))
    array([ True, False, False])
    """
    same = np.zeros(len(new), bool)
    same[: len(old)] = squared_distances(old, new).argmin(axis=0)[: len(old)] == np.arange(len(old))
    return same


def squared_distances(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return |o - n|^2 for all pairs, float64 (k, k'), by direct differences."""
    found = np.empty((len(old), len(new)))
    wide = new.astype(np.float64)
    for number, centre in enumerate(old.astype(np.float64)):
        difference = wide - centre
        found[number] = (difference * difference).sum(axis=1)
    return found


_MOST_SEARCHES = 8
"""Maximum number of local searches, each followed by Lloyd's algorithm. Usually two or three suffice."""
_CANDIDATES = 8
_SHORT_PASS = 1 << 27
"""Multiplications per pass up to which one thread is used; they take a few milliseconds."""
_LEAST_GAIN = 0.3


@dataclass(frozen=True)
class RefitSettings:
    """Settings of the search for centres by k-means.

    Attributes
    ----------
    n_clusters, max_clusters : int
    init : object
    max_iter : int
    tol : float
    metric : str
    chain_length : int
    seed : int
    """

    n_clusters: int
    max_clusters: int
    init: Any
    max_iter: int
    tol: float
    metric: str
    chain_length: int
    seed: int

    @property
    def finds(self) -> type[StreamCentres]:
        return StreamCentres

    def seek(
        self,
        rows: Chunk,
        before: StreamCentres | None,
        n_rows: int,
        *,
        fresh: bool = False,
        grow: bool = False,
    ) -> StreamCentres | None:
        """Return the centres of a summary; None if it has fewer rows than clusters.

        Parameters as in `Search.seek`. With `fresh`, and always for the initial centres, local searches
        try to leave the local minimum. With `grow`, clusters are added, up to `max_clusters`, as long as
        each lowers the cost of the summary substantially.

        Notes
        -----
        Cost: k-means of m rows in memory, and once more for each cluster that is tried; with `fresh`, also
        for each local search, including the last, unsuccessful one.
        """
        wanted = self.n_clusters if before is None else len(before.centres)
        if rows.n_rows < wanted:
            return None
        task = _Refit(rows, self, n_rows)
        if before is None:
            return task.started()
        best, start = task.refined(before.centres, before), before.centres
        while grow and len(best.centres) < self.max_clusters:
            # Start from the old centres: a refined one may have left its cluster for the new rows.
            more = task.with_one_more(best, start, before)
            if more is None:
                break
            best, start = more, more.centres
        return task.searched(best, before) if fresh else best


class Search(Protocol):
    """A search for the centres of a stream; its results depend only on its arguments and settings."""

    @property
    def init(self) -> Any:
        """The initialization of the first centres."""
        ...

    @property
    def finds(self) -> type[StreamCentres]:
        """The class of the centres that `seek` returns."""
        ...

    def seek(
        self,
        rows: Chunk,
        before: StreamCentres | None,
        n_rows: int,
        *,
        fresh: bool = False,
        grow: bool = False,
    ) -> StreamCentres | None:
        """Return the centres of weighted rows, starting from `before`; None if there are too few rows.

        Parameters
        ----------
        rows : Chunk
            Rows with weights.
        before : StreamCentres, optional
            The previous centres.
        n_rows : int
            Number of rows of the stream so far.
        fresh : bool
            Search more widely instead of only refining the previous centres.
        grow : bool
            Allow more clusters than before.
        """
        ...


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
        k = len(self.centres)
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        of_clusters = {
            name: value[order]
            for name, value in values.items()
            if isinstance(value, np.ndarray) and len(value) == k
        }
        return replace(self, **of_clusters)

    def nearest(self, chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
        """Return the label (n,), int32, and the squared distance (n,), float64, of every row."""
        return nearest_with_distances(chunk, self.centres)


def births_after(before: StreamCentres | None, centres: np.ndarray, n_rows: int) -> np.ndarray:
    """Return the births of centres: those of the same clusters in `before`, `n_rows` for new clusters."""
    births = np.full(len(centres), n_rows, np.int64)
    if before is not None:
        same = np.flatnonzero(is_the_same(before.centres, centres))
        births[same] = before.births[same]
    return births


@dataclass(frozen=True)
class _Refit:
    rows: Chunk
    settings: RefitSettings
    n_rows: int

    def started(self) -> StreamCentres:
        """Return the initial centres."""
        init = self.settings.init
        # "auto" would choose by dataset class; the summary is always in memory.
        given = "k-means++" if isinstance(init, str) and init == "auto" else init
        found = self._found(given, self.settings.n_clusters, None)
        # Given centres are only refined.
        return self.searched(found, None) if is_method(init) else found

    def refined(self, centres: np.ndarray, before: StreamCentres) -> StreamCentres:
        return self._found(centres, len(centres), before)

    def searched(self, best: StreamCentres, before: StreamCentres | None) -> StreamCentres:
        """Return the centres after local searches, which end when one lowers the inertia too little."""
        for attempt in range(min(_MOST_SEARCHES, self.settings.max_iter)):
            seed = Key(self.settings.seed, f"local search {attempt}", self.n_rows).derived_seed()
            moved = swap_centres(self.rows, best.centres, seed)
            found = self._found(moved, len(moved), before)
            if found.inertia > (1.0 - LEAST_GAIN / len(moved)) * best.inertia:
                break
            best = found
        return best

    def with_one_more(
        self, best: StreamCentres, start: np.ndarray, before: StreamCentres
    ) -> StreamCentres | None:
        """Return centres with one cluster more than `start`; None if they are hardly better than `best`."""
        k = len(start)
        centre = self._far_row(start)
        if centre is None or self.rows.n_rows <= k:
            return None
        found = self._found(np.vstack([start, centre[None]]), k + 1, before)
        # Splitting any cluster lowers the cost by up to 2 / k; separating distinct groups lowers it more.
        gain = min(_LEAST_GAIN, 2.0 / k)
        return found if found.inertia <= (1.0 - gain) * best.inertia else None

    def _far_row(self, start: np.ndarray) -> np.ndarray | None:
        """Return the best of several rows drawn by their costs: the one that lowers the cost most."""
        _, distances = nearest_with_distances(self.rows, start)
        weights = self.rows.weights
        assert weights is not None
        masses = np.cumsum(distances * weights)
        if not masses[-1] > 0.0:
            return None
        generator = Key(self.settings.seed, "one more", self.n_rows).generator()
        drawn = np.searchsorted(masses, generator.random(_CANDIDATES) * masses[-1], side="right")
        chosen = dense_rows(self.rows.rows[np.minimum(drawn, len(masses) - 1)])
        candidates = np.ascontiguousarray(chosen, start.dtype)
        if self.rows.normalize:
            candidates = normalized_rows(candidates)
        left = []
        for candidate in candidates:
            _, to_candidate = nearest_with_distances(self.rows, candidate[None])
            left.append(float((np.minimum(distances, to_candidate) * weights).sum()))
        return candidates[int(np.argmin(left))]

    def _found(self, init: Any, n_clusters: int, before: StreamCentres | None) -> StreamCentres:
        settings, (n, d) = self.settings, self.rows.rows.shape
        # Short passes take one thread, as handing them over would take longer.
        is_short = n * d * n_clusters <= _SHORT_PASS
        kmeans = KMeans(
            n_clusters,
            init=init,
            n_init=1,
            max_iter=settings.max_iter,
            tol=settings.tol,
            metric=settings.metric,
            chain_length=settings.chain_length,
            random_state=int(Key(settings.seed, "refit", self.n_rows).generator().integers(2**31)),
            engine=InlineEngine() if is_short else LocalEngine(),
        )
        from sklearn.exceptions import ConvergenceWarning  # deferred: workers do not need it

        with warnings.catch_warnings():
            # A summary may have few distinct rows; users cannot act on the warning.
            warnings.simplefilter("ignore", ConvergenceWarning)
            kmeans.fit(open_chunk(self.rows))
        found = StreamCentres(
            kmeans.cluster_centers_,
            np.full(n_clusters, self.n_rows, np.int64),
            kmeans.cluster_weights_,
            kmeans.cluster_costs_,
            kmeans.cluster_sizes_,
            self.n_rows,
            kmeans.n_iter_,
            kmeans.stop_reason_,
            method_for(settings.init, in_memory=True) if before is None else before.seeding,
        )
        if before is None:
            return found
        return replace(found, births=births_after(before, found.centres, self.n_rows))
