"""Full-batch kernel k-means: Lloyd's algorithm in the space of a Gram function, without the Gram matrix.

``|phi(x) - C_j|^2 = K(x, x) - 2 P_xj + Q_j`` with P_xj the mean of K(x, y) over the cluster's rows y,
and Q_j the mean of P_yj over them. This needs only weighted sums of K over clusters, which are computed
for all rows from pairs of blocks of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from daskcluster.data.writer import ArraySink
from daskcluster.engine.engine import Placement
from daskcluster.errors import ModelFormatError
from daskcluster.estimators.loop import Limits, Stepped, run_loop
from daskcluster.events import IterationEnded, StopReason
from daskcluster.methods.kernel_kmeans.chunkwise import (
    GramCentres,
    GramFunction,
    GramSums,
    Points,
    gram_diagonal_rows,
    gram_sum_rows,
    nearest_of,
)
from daskcluster.methods.kernel_kmeans.graph import GraphGram
from daskcluster.methods.kernel_kmeans.minibatch.algorithm import joined
from daskcluster.sparse_rows import join_rows
from daskcluster.storage.document import Shapes, check_numbers, within
from daskcluster.typing import Dataset


@dataclass
class Members:
    """Centres as the means of rows.

    Attributes
    ----------
    terms : list of k pairs of ndarrays
        The rows of each centre and their shares of its weight.
    products : ndarray of shape (n, k)
        P_xj, the inner products of rows and centres.
    norms : ndarray of shape (k,)
        Q_j, the squared lengths of the centres.
    """

    terms: list[tuple[np.ndarray, np.ndarray]]
    products: np.ndarray
    norms: np.ndarray

    def nearest(self, diagonal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the nearest centre of every row, int64 (n,), and the squared distance to it."""
        return nearest_of(self.norms - 2.0 * self.products, diagonal)


@dataclass(frozen=True)
class Gone:
    """Centres of clusters that have lost all their weight; these centres do not move.

    Attributes
    ----------
    clusters, sizes : ndarrays of shape (g,), int64
        Their clusters, and the number of rows that each is a mean of.
    rows, factors : ndarrays of shape (m,), int64 and float64
        These rows and their shares, one centre after the other.
    norms : ndarray of shape (g,)
    products : ndarray of shape (n, g)
    """

    clusters: np.ndarray
    sizes: np.ndarray
    rows: np.ndarray
    factors: np.ndarray
    norms: np.ndarray
    products: np.ndarray

    @classmethod
    def of(cls, members: Members, totals: np.ndarray) -> Self | None:
        """Return the centres of clusters whose weight in `totals` (k,) is zero; None if there are none."""
        clusters = np.flatnonzero(totals <= 0.0)
        if not len(clusters):
            return None
        terms = [members.terms[j] for j in clusters]
        return cls(
            clusters,
            np.array([len(rows) for rows, _ in terms]),
            np.concatenate([rows for rows, _ in terms]),
            np.concatenate([factors for _, factors in terms]),
            members.norms[clusters],
            members.products[:, clusters],
        )

    def put(self, members: Members) -> None:
        """Copy these centres into `members`."""
        members.products[:, self.clusters], members.norms[self.clusters] = self.products, self.norms
        ends = np.cumsum(self.sizes)
        for j, first, last in zip(self.clusters, ends - self.sizes, ends, strict=True):
            members.terms[j] = self.rows[first:last], self.factors[first:last]


@dataclass(frozen=True)
class FullState:
    """State of the loop between two iterations.

    Centres are means of rows, so the labels determine them and their inner products with all rows.

    Attributes
    ----------
    seeds : ndarray of shape (k,), int64
        Rows whose images are the initial centres.
    assigned : ndarray of shape (n,), int64, or None
        Labels of the clusters whose means are the centres; None before the first iteration.
    gone : Gone or None
        Centres without rows, which the labels do not determine.
    history, reason
        See `daskcluster.estimators.loop.LoopState`.
    """

    seeds: np.ndarray
    assigned: np.ndarray | None = None
    gone: Gone | None = None
    history: Sequence[dict[str, Any]] = ()
    reason: StopReason | None = None

    @staticmethod
    def shapes(n_rows: int, k: int) -> Shapes:
        """Return the shapes of the arrays."""
        inner: Shapes = dict.fromkeys(("clusters", "sizes", "rows", "factors", "norms"), (None,))
        gone = within("gone", {**inner, "products": (n_rows, None)})
        return {"seeds": (k,), "assigned": (n_rows,), **gone}

    def check(self, n_rows: int) -> None:
        """Refuse row and cluster numbers that are out of range.

        Raises
        ------
        ModelFormatError
        """
        k, gone = len(self.seeds), self.gone
        check_numbers("seeds", self.seeds, n_rows)
        if self.assigned is not None:
            check_numbers("assigned", self.assigned, k)
        if gone is None:
            return
        check_numbers("gone_clusters", gone.clusters, k)
        check_numbers("gone_rows", gone.rows, n_rows)
        check_numbers("gone_sizes", gone.sizes, n_rows + 1)
        lengths = {len(gone.clusters), len(gone.sizes), len(gone.norms), gone.products.shape[1]}
        if len(lengths) > 1 or not gone.sizes.sum() == len(gone.rows) == len(gone.factors):
            raise ModelFormatError("the lengths of its arrays of empty clusters do not match.")


_BLOCK_BYTES = 64 << 20
_LEAST_BLOCK = 1024


@dataclass
class StreamedGram:
    """Gram matrix of the rows of a placement, computed in one pass per 64 MB of rows.

    Parameters
    ----------
    placement : Placement
    gram : GramFunction
    n_values : int
        Number of Gram values computed so far.
    """

    placement: Placement
    gram: GramFunction
    n_values: int = 0

    @property
    def n_rows(self) -> int:
        return self.placement.dataset.n_rows

    @cached_property
    def diagonal(self) -> np.ndarray:
        """K(x, x), float64 (n,)."""
        none = np.empty(0, np.int64)
        nothing = GramSums(self.gram, Points(None, none), np.empty(0), none, 1)
        return self._map(gram_diagonal_rows, nothing, np.empty(self.n_rows))

    def columns(self, which: np.ndarray) -> np.ndarray:
        """Return K(x, y) for all rows x and the rows y in `which` (m,), float64 (n, m)."""
        rows = None
        if not self.gram.is_precomputed:
            parts = [self._points(int(at), int(at) + 1).rows for at in which]
            rows = join_rows([part for part in parts if part is not None])
        m = len(which)
        sums = GramSums(self.gram, Points(rows, which), np.ones(m), np.arange(m), m)
        return self._map(gram_sum_rows, sums, np.empty((self.n_rows, m)))

    def sums(self, factors: np.ndarray, groups: np.ndarray, n_groups: int) -> np.ndarray:
        """Return sums over rows y of ``factors[y] K(x, y)``, y in group ``groups[y]``, (n, n_groups)."""
        total = np.zeros((self.n_rows, n_groups))
        for first, last in self.blocks():
            kept = first + np.flatnonzero(factors[first:last])
            if not len(kept):
                continue
            points = self._points(first, last).take(kept - first)
            sums = GramSums(self.gram, points, factors[kept], groups[kept], n_groups)
            total += self._map(gram_sum_rows, sums, np.empty_like(total))
        return total

    def blocks(self) -> list[tuple[int, int]]:
        """Return the ranges of rows that passes compare with all rows; they depend on the dataset only."""
        n = self.n_rows
        step = n if self.gram.is_precomputed else block_rows(self.placement.dataset)
        return [(first, min(first + step, n)) for first in range(0, n, step)]

    def centres(self, members: Members) -> GramCentres:
        """Return the means of rows as centres, with all rows as points in memory."""
        points = self._points(0, self.n_rows)
        terms = [(points.take(which), factors) for which, factors in members.terms]
        return GramCentres(joined(self.gram, terms), members.norms)

    def _points(self, first: int, last: int) -> Points:
        indices = np.arange(first, last)
        if self.gram.is_precomputed:
            return Points(None, indices)
        chunk = self.placement.dataset.load((first, last))
        return Points(self.gram.chunk(chunk).computed(), indices)

    def _map(self, fn: object, sums: GramSums, out: np.ndarray) -> np.ndarray:
        self.placement.map_rows(
            fn,  # type: ignore[arg-type]
            ArraySink(out),
            sums,
            name="inner products",
        )
        self.n_values += self.n_rows * max(1, len(sums.points))
        return out


GramMatrix = StreamedGram | GraphGram
"""The matrix of K(x, y) for all rows x and y: the operations that kernel k-means needs."""


def block_rows(dataset: Dataset) -> int:
    """Return the number of rows of a block; an iteration takes a pass for each block."""
    row_bytes = max(1, dataset.bytes_of((0, dataset.n_rows)) // dataset.n_rows)
    return max(_LEAST_BLOCK, _BLOCK_BYTES // row_bytes)


@dataclass
class FullResult:
    """Centres, labels under them, and the state that they are computed from.

    Attributes
    ----------
    members : Members
    labels : ndarray of shape (n,), int64
    costs : ndarray of shape (n,)
        Squared distances to the nearest centres.
    state : FullState
        Determines the other attributes; see `restored`.
    """

    members: Members
    labels: np.ndarray
    costs: np.ndarray
    state: FullState

    def inertia(self, weights: np.ndarray) -> float:
        """Return the weighted sum of the costs."""
        return float((weights * self.costs).sum())


def members_of(
    gram: GramMatrix, labels: np.ndarray, weights: np.ndarray, before: Members
) -> Members:
    """Return the means of clusters; a cluster without weight keeps its centre of `before`."""
    k = len(before.norms)
    totals = np.bincount(labels, weights, minlength=k)
    filled = totals[labels] > 0.0
    factors = np.where(filled, weights / np.where(filled, totals[labels], 1.0), 0.0)
    products = gram.sums(factors, labels, k)
    norms = np.bincount(labels, factors * products[np.arange(len(labels)), labels], minlength=k)
    empty = totals <= 0.0
    products[:, empty], norms[empty] = before.products[:, empty], before.norms[empty]
    rows = [np.flatnonzero((labels == j) & (factors > 0.0)) for j in range(k)]
    terms = [before.terms[j] if empty[j] else (rows[j], factors[rows[j]]) for j in range(k)]
    return Members(terms, products, norms)


def restored(gram: GramMatrix, state: FullState, weights: np.ndarray) -> FullResult:
    """Return the centres and labels of a state. Cost: n^2 Gram values; n k before the first iteration."""
    diagonal, seeds = gram.diagonal, state.seeds
    if state.assigned is None:
        terms = [(seeds[j : j + 1], np.ones(1)) for j in range(len(seeds))]
        members = Members(terms, gram.columns(seeds), diagonal[seeds])
    else:
        none, k = (np.empty(0, np.int64), np.empty(0)), len(seeds)
        before = Members([none] * k, np.zeros((gram.n_rows, k)), np.zeros(k))
        if state.gone is not None:
            state.gone.put(before)
        members = members_of(gram, state.assigned, weights, before)
    return FullResult(members, *members.nearest(diagonal), state)


def full_batch(
    gram: GramMatrix,
    resumed: FullState,
    weights: np.ndarray,
    limits: Limits,
    *,
    tol: float = 0.0,
    keep: Callable[[FullState], None] | None = None,
    validate: Callable[[Members], float] | None = None,
) -> FullResult:
    """Run Lloyd's algorithm in the space of K.

    Parameters
    ----------
    gram : GramMatrix
    resumed : FullState
        State to start or resume from; ``FullState(seeds)`` starts with rows as centres.
    weights : ndarray of shape (n,)
    limits : Limits
        Its callbacks hear an `IterationEnded` in each iteration.
    tol : float
        Stop when an iteration lowers the inertia by at most this fraction; 0 runs until no label changes.
    keep : callable (state) -> None, optional
        Called with the state after each iteration.
    validate : callable (members) -> float, optional
        Evaluates the new centres; its time does not count.

    Notes
    -----
    Cost: n^2 Gram values per iteration, in one pass per 64 MB of rows; resuming costs one extra iteration.
    Memory: 16 n k bytes.
    """
    before = restored(gram, resumed, weights)

    def step(state: FullState) -> Stepped[FullState]:
        nonlocal before
        values, k = gram.n_values, len(state.seeds)
        members = members_of(gram, before.labels, weights, before.members)
        labels, costs = members.nearest(gram.diagonal)
        facts = {
            "inertia": before.inertia(weights),
            "shift": 0.0,
            "n_empty": int((np.bincount(before.labels, minlength=k) == 0).sum()),
            "n_touched": gram.n_rows,
            "n_distances": gram.n_values - values,
        }
        gone = Gone.of(members, np.bincount(before.labels, weights, minlength=k))
        state = replace(state, assigned=before.labels, gone=gone)
        has_moved = bool((labels != before.labels).any())
        inertia, before = facts["inertia"], FullResult(members, labels, costs, state)
        fall = inertia - before.inertia(weights) if tol > 0.0 else 1.0
        return Stepped(state, facts, float(weights.sum()), has_moved, fall, tol * inertia)

    of_state = None if validate is None else lambda _: validate(before.members)
    end = run_loop(step, resumed, IterationEnded, limits, keep=keep, validate=of_state)
    return replace(before, state=end)
