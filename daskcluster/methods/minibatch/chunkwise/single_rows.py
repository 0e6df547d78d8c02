"""Mini-batches of one row: every row moves its nearest centre at once (stochastic k-means)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from daskcluster.methods.minibatch.chunkwise.batch import Batch, MovingCentres, StepOutcome
from daskcluster.methods.minibatch.chunkwise.drifting import DriftingCentres
from daskcluster.sparse_rows import SparseRows

RUN_ROWS = 1024
"""Rows that step one after the other before anybody looks."""


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
        moving.walk(batch)
        drift = moving.drift()
        state.exact += drift
        before = state.centres.copy()
        state.centres[:] = state.exact
        way = state.centres.astype(np.float64) - before
        weight = float(batch.listed_weights().sum())
        return StepOutcome(moving.cost, weight, float((way * way).sum()))
