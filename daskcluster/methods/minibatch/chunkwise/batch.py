"""A mini-batch step on rows in memory, dense or CSR: the same bits with any number of threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk, compute_dtype
from daskcluster.chunkwise.centres import PreparedCentres, csr
from daskcluster.chunkwise.pruned import may_pay
from daskcluster.kernels import sparse_search, tile
from daskcluster.kernels.accumulate import group_by_label
from daskcluster.methods.minibatch.kernels import batch as minibatch
from daskcluster.methods.minibatch.kernels import batch as minibatch_sparse
from daskcluster.sparse_rows import Rows, SparseRows

RULES = {"count": minibatch.COUNT, "sqrt": minibatch.SQRT}
"""Learning rates: alpha_j = b_j / (v_j + b_j), the running mean, and alpha_j = sqrt(b_j / b)."""

_WORTH_A_THREAD = 1 << 26
"""Multiplications of a step from which on a second thread pays for being woken."""
_MANY_ROWS, _TAKEN_ROWS = 6144, 1024
"""Rows of a batch from which on bounds of distances repay being set for each step; and how many of them are
copied at once."""
_ENTRY, _COORDINATE = 12.0, 200.0
"""How many of them a stored value of a sparse row takes as long as, for each centre, and a coordinate of a
centre that moves: memory is slow."""


@dataclass(frozen=True)
class Batch:
    """Rows of a step: a list of places in rows that lie in memory.

    Attributes
    ----------
    rows : Rows, shape (n, d)
        Never copied if they are C-contiguous float32 or float64, or CSR of these.
    listed : ndarray of shape (b,), int64
    weights : ndarray of shape (n,), float64, or None
        Of all `rows`.
    normalize : bool
        `ready` scales rows to length one (cosine metric).
    """

    rows: Rows
    listed: np.ndarray
    weights: np.ndarray | None = None
    normalize: bool = False

    def __len__(self) -> int:
        return len(self.listed)

    def ready(self, dtype: np.dtype[Any]) -> Batch:
        """Return the batch as the kernels take it: itself, or converted copies of its rows."""
        if not self.normalize and _fits(self.rows, dtype):
            return self
        converted = Chunk(self.rows[self.listed], normalize=self.normalize).computed()
        rows = converted.astype(dtype) if converted.dtype != dtype else converted
        weights = None if self.weights is None else self.weights[self.listed]
        return Batch(rows, np.arange(len(self)), weights)

    def listed_weights(self) -> np.ndarray:
        """Return the weights of the rows of the batch, float64 (b,)."""
        return np.ones(len(self)) if self.weights is None else self.weights[self.listed]

    def taken(self) -> Rows:
        """Return the rows of the batch, in the dtype in which they are computed."""
        taken = self.rows[self.listed]
        dtype = compute_dtype(taken.dtype)
        rows = taken.astype(dtype) if taken.dtype != dtype else taken
        return rows if isinstance(rows, SparseRows) else np.ascontiguousarray(rows)


def _fits(rows: Rows, dtype: np.dtype[Any]) -> bool:
    if isinstance(rows, SparseRows):
        return rows.dtype == dtype and rows.indices.dtype == np.int32
    return rows.dtype == dtype and rows.flags.c_contiguous


@dataclass
class MovingCentres:
    """Centres that mini-batches move, and what the learning rate remembers.

    Attributes
    ----------
    exact : ndarray of shape (k, d), float64
        Moved by each step. Rounded to the rows' dtype anew, never from rounded ones: a running mean
        of float32 centres would stand still after some million rows.
    centres : ndarray of shape (k, d)
        `exact` in the rows' dtype; rows are assigned to these.
    seen : ndarray of shape (k,), float64
        v_j, the weight of all rows that a cluster has had so far.
    costs : ndarray of shape (k,), float64
        Their weighted squared distances to the centre as it was when they came.
    """

    exact: np.ndarray
    centres: np.ndarray
    seen: np.ndarray
    costs: np.ndarray

    @classmethod
    def start(cls, centres: np.ndarray) -> MovingCentres:
        """Return centres to start from, of which nothing has been seen."""
        centres = np.array(centres, order="C")
        return cls(centres.astype(np.float64), centres, *np.zeros((2, len(centres))))

    def put(self, clusters: np.ndarray, rows: np.ndarray, seen: float) -> None:
        """Set some centres to given rows."""
        self.centres[clusters] = rows
        self.exact[clusters] = self.centres[clusters]
        self.seen[clusters], self.costs[clusters] = seen, 0.0


@dataclass
class StepOutcome:
    """Findings of one step, under the centres before it.

    Attributes
    ----------
    cost : float
        Weighted sum of squared distances of the batch to its nearest centres; NaN or infinite if a row
        is not finite.
    weight : float
        Of the batch.
    shift : float
        Squared length of all centres' ways together.
    """

    cost: float
    weight: float
    shift: float


@dataclass
class MiniBatchStepper:
    """Makes steps on batches of one kind of rows.

    Parameters
    ----------
    state : MovingCentres
        Moved by each step.
    rate : {"count", "sqrt"}
    n_threads : int
        At most two are used: rows are read at the speed of memory.
    """

    state: MovingCentres
    rate: str = "count"
    n_threads: int = 1
    labels: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))
    _order: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    _pool: ThreadPoolExecutor | None = None

    def __post_init__(self) -> None:
        k = len(self.state.centres)
        self._starts = np.empty(k + 1, np.int64)
        self._costs, self._shifts = np.empty(k), np.empty(k)
        self._packed: sparse_search.SparsePanels | None = None

    @contextmanager
    def threads(self) -> Iterator[MiniBatchStepper]:
        """Hold a helping thread while the context lasts, if more than one may be used."""
        if self.n_threads < 2:
            yield self
            return
        with ThreadPoolExecutor(1, thread_name_prefix="daskcluster-step") as self._pool:
            yield self
        self._pool = None

    def step(self, batch: Batch) -> StepOutcome:
        """Label the rows of `batch` and move the centres.

        ``labels`` are then those of the batch's rows, under the centres before the step. Normalized rows
        move centres to length one.
        """
        normalize, batch = batch.normalize, batch.ready(self.state.centres.dtype)
        b = len(batch)
        if len(self.labels) != b:
            self.labels, self._order = np.empty(b, np.int32), np.empty(b, np.int64)
        weight = float(b) if batch.weights is None else float(batch.listed_weights().sum())
        label, move = self._kernels(batch, weight, normalize)
        half = -(-b // 2)
        self._run(label, (0, half), (half, b), self._work(batch))
        group_by_label(self.labels, self._order, self._starts)
        k = len(self._costs)
        middle = int(np.searchsorted(self._starts, half))
        self._run(move, (0, min(middle, k)), (min(middle, k), k), self._work(batch))
        self.state.costs += self._costs
        return StepOutcome(float(self._costs.sum()), weight, float(self._shifts.sum()))

    def _work(self, batch: Batch) -> float:
        k, d = self.state.centres.shape
        if isinstance(batch.rows, SparseRows):
            stored = len(batch) * len(batch.rows.data) / max(1, len(batch.rows))
            return k * (_ENTRY * stored + _COORDINATE * d)
        return float(len(batch)) * k * d

    def _run(
        self,
        work: Callable[[int, int], None],
        one: tuple[int, int],
        other: tuple[int, int],
        n_products: float,
    ) -> None:
        if self._pool is None or n_products < _WORTH_A_THREAD:
            work(one[0], other[1])
            return
        future = self._pool.submit(work, *other)
        try:
            work(*one)
        finally:
            future.result()

    def _kernels(
        self, batch: Batch, weight: float, normalize: bool
    ) -> tuple[Callable[[int, int], None], Callable[[int, int], None]]:
        """Return functions of a range: one labels its positions, the other moves its centres."""
        state, listed, rows = self.state, batch.listed, batch.rows
        arrays = state.exact, state.centres, state.seen
        grouped, rule = (self._order, self._starts), RULES[self.rate]
        if isinstance(rows, SparseRows):
            room = None if self._packed is None else self._packed.data
            sparse, packed = csr(rows), sparse_search.pack_sparse(state.centres, room)
            self._packed = packed

            def label_sparse(first: int, last: int) -> None:
                part = self.labels[first:last]
                sparse_search.nearest_sparse(*sparse, packed, part, listed[first:last])

            def move_sparse(first: int, last: int) -> None:
                minibatch_sparse.move_centres_sparse(
                    *sparse, listed, batch.weights, grouped, weight, rule, (first, last),
                    packed.norms, arrays, self._costs, self._shifts, normalize=normalize,
                )  # fmt: skip

            return label_sparse, move_sparse
        many = len(batch) >= _MANY_ROWS and may_pay(state.centres)
        prepared = PreparedCentres(state.centres) if many else None
        panels = tile.pack(state.centres) if prepared is None else prepared.panels

        def label(first: int, last: int) -> None:
            if prepared is None:
                minibatch.nearest_listed(rows, listed[first:last], panels, self.labels[first:last])
                return
            for start in range(first, last, _TAKEN_ROWS):
                part = slice(start, min(start + _TAKEN_ROWS, last))
                prepared.nearest(rows[listed[part]], self.labels[part])

        def move(first: int, last: int) -> None:
            minibatch.move_centres(
                rows, listed, batch.weights, grouped, weight, rule, (first, last),
                arrays, self._costs, self._shifts, normalize=normalize,
            )  # fmt: skip

        return label, move
