"""Mini-batch kernel k-means (B. Jourdan and G. Schwartzman, "Mini-batch kernel k-means", 2024).

A step labels a batch of rows with their nearest centres in the space of the Gram function, and each
centre moves towards the mean of its rows: C <- (1 - alpha) C + alpha cm(B). Centres are stored either as
windows of the last batches (Algorithm 2, `daskcluster.methods.kernel.minibatch.centres`), at a cost
independent of n, or as inner products with all rows (Algorithm 1,
`daskcluster.methods.kernel.minibatch.centres`).

Differences from the paper: batches are drawn without replacement, pass after pass, unless ``replacement``
asks for the paper's draws; a fit stops early when a step improves its own batch by *less* than tol (the
paper's test has the other sign).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from daskcluster.estimators.loop import Limits, Stepped, run_loop
from daskcluster.events import KernelStepEnded, StopReason
from daskcluster.methods.kernel.chunkwise import GramCentres, nearest_of
from daskcluster.methods.kernel.minibatch.centres import GramBatch, Meter, MovingGramCentres
from daskcluster.methods.minibatch.algorithm import refuse_bad_batch
from daskcluster.methods.minibatch.batches import Batches


@dataclass(frozen=True)
class KernelSteps:
    """The steps so far.

    Attributes
    ----------
    seen : ndarray of shape (k,), float64
        Total weight of the rows of each cluster, over all batches.
    history, reason
        See `daskcluster.estimators.loop.LoopState`.
    """

    seen: np.ndarray
    history: Sequence[dict[str, Any]] = ()
    reason: StopReason | None = None


@dataclass
class KernelResult:
    """Centres in the space of a Gram function, and the history of the loop."""

    centres: GramCentres
    n_iter: int
    stop_reason: StopReason
    history: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, centres: GramCentres, end: Any) -> KernelResult:
        """Return the result of a loop that ended, from its state."""
        return cls(centres, len(end.history), end.reason, list(end.history))


def learning_rates(rate: str, counts: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Return alpha of every cluster: sqrt(b_j / b), or b_j / (v_j + b_j); 0 without rows.

    Parameters
    ----------
    rate : {"sqrt", "count"}
    counts : ndarray of shape (k,)
        b_j, the weight of each cluster's rows in the batch.
    seen : ndarray of shape (k,)
        v_j, the weight of its rows in earlier batches.

    Examples
    --------
    >>> import numpy as np
    >>> learning_rates("sqrt", np.array([1.0, 3.0, 0.0]), np.zeros(3)).round(3)
    array([0.5  , 0.866, 0.   ])
    """
    alphas = np.zeros(len(counts))
    filled = counts > 0.0
    divisor = counts.sum() if rate == "sqrt" else (seen + counts)[filled]
    alphas[filled] = counts[filled] / divisor
    return np.sqrt(alphas) if rate == "sqrt" else alphas


def minibatch_kernel(
    batches: Batches,
    moving: MovingGramCentres,
    steps: KernelSteps,
    limits: Limits,
    *,
    rate: str,
    dtype: Any,
    tol: float = 0.0,
    keep: Callable[[KernelSteps], None] | None = None,
    validate: Callable[[MovingGramCentres], float] | None = None,
) -> KernelSteps:
    """Move centres by one batch after another.

    Parameters
    ----------
    batches : Batches
    moving : MovingGramCentres
    steps : KernelSteps
        Earlier steps; `moving` are the centres after them and `batches` those that follow.
    limits : Limits
        Its callbacks hear a `KernelStepEnded` for each batch.
    rate : {"sqrt", "count"}
    dtype : dtype
        Dtype in which rows are computed.
    tol : float
        Stop when a step lowers the mean cost of its batch by less than this; 0 never stops.
    keep : callable (steps) -> None, optional
        Called after each step with all steps so far.
    validate : callable (moving) -> float, optional
        Evaluates the new centres; its time does not count.

    Returns
    -------
    KernelSteps
        All steps; `moving` are the centres after them.

    Raises
    ------
    InvalidDataError
        A row of a batch is not finite.
    """

    def step(state: KernelSteps) -> Stepped[KernelSteps]:
        before = Meter(moving.meter.n_values, moving.meter.seconds)
        drawn = batches.next()
        refuse_bad_batch(drawn, batches.row_of, " of those seen so far")
        batch = GramBatch.of(drawn, batches.rows_of_last(), moving.gram, dtype)
        labels, costs = _nearest(moving, batch)
        counts = np.bincount(labels, batch.weights, minlength=moving.k)
        moving.move(batch, labels, learning_rates(rate, counts, state.seen))
        reason = None
        if tol > 0.0:
            improvement = _mean(costs, batch) - _mean(_nearest(moving, batch)[1], batch)
            reason = StopReason.TOLERANCE if improvement < tol else None
        facts = {
            "inertia": float((batch.weights * costs).sum()),
            "shift": 0.0,
            "n_touched": len(batch),
            "n_distances": moving.meter.n_values - before.n_values,
            "batch_size": len(batch),
            "n_points": moving.n_points,
            "gram_seconds": moving.meter.seconds - before.seconds,
        }
        weight = float(batch.weights.sum())
        return Stepped(replace(state, seen=state.seen + counts), facts, weight, reason=reason)

    of_state = None if validate is None else lambda _: validate(moving)
    return run_loop(step, steps, KernelStepEnded, limits, keep=keep, validate=of_state)


def _nearest(moving: MovingGramCentres, batch: GramBatch) -> tuple[np.ndarray, np.ndarray]:
    return nearest_of(moving.relative(batch), batch.diagonal)


def _mean(costs: np.ndarray, batch: GramBatch) -> float:
    weight = batch.weights.sum()
    return float((batch.weights * costs).sum() / weight) if weight > 0.0 else 0.0
