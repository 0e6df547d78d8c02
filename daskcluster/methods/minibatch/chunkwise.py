"""Steps of a mini-batch, or of single rows that move their nearest centre at once; dense or CSR.

A mini-batch step gives the same bits with any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk, compute_dtype
from daskcluster.chunkwise.centres import PreparedCentres, csr
from daskcluster.chunkwise.pruned import may_pay
from daskcluster.kernels import tile
from daskcluster.kernels.accumulate import group_by_label
from daskcluster.kernels.jit import read_only, weights_or_none
from daskcluster.kernels.panels import Panels
from daskcluster.kernels.sparse import SparsePanels, nearest_sparse, pack_sparse
from daskcluster.methods.minibatch.kernels import batch as minibatch
from daskcluster.methods.minibatch.kernels import stepping
from daskcluster.methods.minibatch.kernels.stepping import (
    COST,
    LARGEST,
    LIMIT,
    LOST,
    NORM,
    SWITCHED,
    Drifting,
)
from daskcluster.sparse_rows import Rows, SparseRows

RULES = {"count": minibatch.COUNT, "sqrt": minibatch.SQRT}
"""Learning rates: alpha_j = b_j / (v_j + b_j), the running mean, and alpha_j = sqrt(b_j / b)."""

_WORTH_A_THREAD = 1 << 26
"""Multiplications of a step from which on a second thread pays for being woken."""
_REPAID_PRODUCTS, _TAKEN_ROWS = 3e9, 1024
"""Products of a step from which on bounds of distances repay being set for it; and how many of its rows are
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
        Weights of all `rows`.
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
        Weight of the batch.
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
        self._packed: SparsePanels | None = None

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
        grouped, rate = (self._order, self._starts), (weight, RULES[self.rate], normalize)
        weights, out = weights_or_none(batch.weights), (self._costs, self._shifts)
        if isinstance(rows, SparseRows):
            room = None if self._packed is None else self._packed.data
            sparse, packed = csr(rows), pack_sparse(state.centres, room)
            self._packed = packed

            def label_sparse(first: int, last: int) -> None:
                part = self.labels[first:last]
                nearest_sparse(sparse, packed, part, listed=listed[first:last])

            def move_sparse(first: int, last: int) -> None:
                minibatch.move_centres_sparse(
                    sparse, listed, weights, grouped, rate, (first, last), packed.norms, arrays, out
                )

            return label_sparse, move_sparse
        many = self._work(batch) >= _REPAID_PRODUCTS and may_pay(state.centres)
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
                read_only(rows), listed, weights, grouped, rate, (first, last), arrays, out
            )

        return label, move


_N_STATE = 7


class DriftingCentres:
    """Moving centres, with their starting points.

    Parameters
    ----------
    start : ndarray of shape (k, d)
        Not changed.
    dtype : dtype, optional
        Type of the rows: that of `start`, if it is not given.
    limit : float
        How far one may drift before it counts as lost.
    seen : ndarray of shape (k,), float64, optional
        IN/OUT. Weight that each has seen: rows then move their winner by 1 / (weight seen), their own
        included, and there is no learning rate.
    sparse : bool
        Rows are CSR.

    Examples
    --------
    >>> import numpy as np
    >>> centres = DriftingCentres(np.array([[0.0], [8.0]]), seen=np.ones(2))
    >>> centres.run_steps(Batch(np.array([[2.0], [4.0]]), np.array([0, 1])))
    >>> centres.now()
    array([[2.],
           [8.]])
    """

    def __init__(
        self,
        start: np.ndarray,
        dtype: Any = None,
        *,
        limit: float = math.inf,
        seen: np.ndarray | None = None,
        sparse: bool = False,
    ) -> None:
        k, d = start.shape
        rounded = np.array(start, start.dtype if dtype is None else dtype, order="C")
        self._panels: Panels | SparsePanels = (
            pack_sparse(rounded) if sparse else stepping.pack_for_steps(rounded)
        )
        offset = (
            self._panels.offset if isinstance(self._panels, Panels) else np.zeros(d, rounded.dtype)
        )
        sgd_state = np.zeros(_N_STATE)
        wide = np.array(start, np.float64)
        sgd_state[NORM] = _longest(wide - offset)
        sgd_state[LARGEST] = _longest(wide)
        sgd_state[LIMIT] = limit
        self._state = Drifting(
            wide,
            np.zeros((k, d)),
            np.ones(k),
            np.zeros(k),
            np.zeros(k),
            np.empty(0) if seen is None else seen,
            self._panels.data,
            np.ascontiguousarray(offset),
            np.empty(d),
            sgd_state,
        )

    @property
    def lost(self) -> bool:
        """True if a centre drifted too far; steps stopped there."""
        return bool(self._state.sgd_state[LOST] > 0.0)

    @property
    def n_switched(self) -> int:
        """Steps whose row had changed centres."""
        return int(self._state.sgd_state[SWITCHED])

    @property
    def cost(self) -> float:
        """Weighted sum of the rows' squared distances, each to the centre that it moved, before it did."""
        return float(self._state.sgd_state[COST])

    def drift(self) -> np.ndarray:
        """Return how far centres are from where they started, float64 (k, d)."""
        return np.asarray(self._state.scale[:, None] * self._state.drift)

    def now(self) -> np.ndarray:
        """Return the centres, float64 (k, d)."""
        return self._state.start + self.drift()

    def run_steps(self, batch: Batch, table: np.ndarray | None = None, rate: float = 0.0) -> None:
        """Take a step with every row of `batch`, in its order.

        Parameters
        ----------
        batch : Batch
            `Batch.ready` for the dtype of the centres.
        table : ndarray of shape (b,), int32, optional
            The centre that each row had when the epoch began; needed without ``seen``.
        rate : float
        """
        weights = None if batch.weights is None else batch.listed_weights()
        rows = csr(batch.rows) if isinstance(batch.rows, SparseRows) else read_only(batch.rows)
        stepping.run_steps(rows, batch.listed, table, weights, rate, self._panels, self._state)


def label_batch(batch: Batch, panels: Panels | SparsePanels) -> np.ndarray:
    """Return the nearest of packed centres for every row of `batch`, int32 (b,)."""
    labels = np.empty(len(batch), np.int32)
    if isinstance(panels, Panels):
        assert isinstance(batch.rows, np.ndarray)
        minibatch.nearest_listed(batch.rows, batch.listed, panels, labels)
    else:
        assert isinstance(batch.rows, SparseRows)
        nearest_sparse(csr(batch.rows), panels, labels, listed=batch.listed)
    return labels


def _longest(vectors: np.ndarray) -> float:
    return float(np.sqrt((vectors * vectors).sum(axis=1)).max(initial=0.0))


RUN_ROWS = 1024
"""Rows per run of single-row steps."""


@dataclass
class SingleRowStepper:
    """Takes a step with each row of a batch, one after the other.

    Bottou and Bengio, "Convergence properties of the k-means algorithms" (NIPS 1995): the nearest centre
    follows the row by w / v_j, where v_j is the weight of all its rows so far, this one included. So a
    centre is the mean of the rows that it has had.

    Parameters
    ----------
    state : MovingCentres
        Moved by each row.
    """

    state: MovingCentres

    @contextmanager
    def threads(self) -> Iterator[SingleRowStepper]:
        """Hold nothing: a step waits for the one before."""
        yield self

    def step(self, batch: Batch) -> StepOutcome:
        """Take the steps of `batch`; its cost is that of each row to its centre before it moved it."""
        state = self.state
        batch = batch.ready(state.centres.dtype)
        moving = DriftingCentres(
            state.exact,
            state.centres.dtype,
            seen=state.seen,
            sparse=isinstance(batch.rows, SparseRows),
        )
        moving.run_steps(batch)
        drift = moving.drift()
        state.exact += drift
        before = state.centres.copy()
        state.centres[:] = state.exact
        way = state.centres.astype(np.float64) - before
        weight = float(batch.listed_weights().sum())
        return StepOutcome(moving.cost, weight, float((way * way).sum()))
