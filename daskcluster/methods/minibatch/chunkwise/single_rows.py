"""Single-row steps: every row moves its nearest centre at once (stochastic k-means), dense or CSR."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.chunkwise.centres import csr
from daskcluster.kernels import sparse_search
from daskcluster.kernels.sparse_search import SparsePanels
from daskcluster.kernels.tile import Panels
from daskcluster.methods.minibatch.chunkwise.batch import Batch, MovingCentres, StepOutcome
from daskcluster.methods.minibatch.kernels import batch as minibatch
from daskcluster.methods.minibatch.kernels import stepping
from daskcluster.methods.minibatch.kernels.drifting import (
    COST,
    LARGEST,
    LIMIT,
    LOST,
    NORM,
    SWITCHED,
    Drifting,
)
from daskcluster.sparse_rows import SparseRows

_N_STATE = 7


class DriftingCentres:
    """Moving centres, with their starting points.

    Parameters
    ----------
    start : ndarray of shape (k, d)
        Not changed.
    dtype : dtype, optional
        Of the rows: that of `start`, if it is not given.
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
            sparse_search.pack_sparse(rounded) if sparse else stepping.pack_for_steps(rounded)
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
        if isinstance(self._panels, Panels):
            assert isinstance(batch.rows, np.ndarray)
            stepping.run_steps(
                batch.rows, batch.listed, table, weights, rate, self._panels, self._state
            )
        else:
            assert isinstance(batch.rows, SparseRows)
            stepping.run_sparse_steps(
                *csr(batch.rows), batch.listed, table, weights, rate, self._panels, self._state
            )


def label_batch(batch: Batch, panels: Panels | SparsePanels) -> np.ndarray:
    """Return the nearest of packed centres for every row of `batch`, int32 (b,)."""
    labels = np.empty(len(batch), np.int32)
    if isinstance(panels, Panels):
        assert isinstance(batch.rows, np.ndarray)
        minibatch.nearest_listed(batch.rows, batch.listed, panels, labels)
    else:
        assert isinstance(batch.rows, SparseRows)
        sparse_search.nearest_sparse(*csr(batch.rows), panels, labels, batch.listed)
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
