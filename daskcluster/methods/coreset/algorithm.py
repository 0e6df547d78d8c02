"""Lightweight coresets (Bachem, Lucic, Krause, KDD 2018).

Rows are drawn m times, independently and with replacement, from q(n) = w_n / 2W + w_n |x_n - u|^2 / 2 phi,
with u the weighted mean and phi the weighted spread about it; a draw of row n weighs w_n / (m q(n)). As
in the paper; row weights w and any number of chunks, workers and engines are ours, and the paper's
two passes are what it takes here, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.randomness import Key
from daskcluster.sampling import Draws, Moments, draw_about, measure
from daskcluster.sparse_rows import Rows, take_rows


@dataclass(frozen=True)
class Coreset:
    """Weighted rows that represent all rows of a dataset.

    Attributes
    ----------
    rows : Rows, shape (m, d)
        In the dtype of the source; a row drawn twice is included twice.
    weights : ndarray of shape (m,), float64
    indices : ndarray of shape (m,), int64
        Rows of the source, in the order of the draws: the first m' of them are a coreset of that size,
        once their weights are multiplied by m / m'.
    moments : Moments
        Of the source.
    """

    rows: Rows
    weights: np.ndarray
    indices: np.ndarray
    moments: Moments


def lightweight_coreset(
    rows: ScaledPlacement,
    size: int,
    seed: int,
    *,
    moments: Moments | None = None,
    measured: Callable[[Moments], None] = lambda moments: None,
) -> Coreset:
    """Draw a coreset of `size` rows.

    Parameters
    ----------
    rows : ScaledPlacement
    size : int
        m >= 1. With at least as many as there are rows, the rows themselves are the coreset.
    seed : int
    moments : Moments, optional
        Moments of the rows, if an earlier call measured them: the first pass is left out.
    measured : callable (Moments) -> None
        Called with the moments between the passes.

    Notes
    -----
    Cost: two passes, or one if rows have no weights and an earlier pass collected their statistics.
    Two copies of the coreset in memory while it is drawn.
    """
    if moments is None:
        moments = measure(rows)
        measured(moments)
    if size >= rows.placement.dataset.n_rows:
        return _whole(rows, moments)
    draws = draw_about(rows, moments.mean.astype(rows.dtype), moments, size, Key(seed, "coreset"))
    return _weighted(draws, moments)


def _weighted(draws: Draws, moments: Moments) -> Coreset:
    # w / (m q), and q is w times the rate: the weight of a draw depends on its distance alone.
    weights = 1.0 / (len(draws.picked) * draws.rates)
    return Coreset(
        take_rows(draws.rows, draws.picked),
        weights[draws.picked],
        draws.indices[draws.picked],
        moments,
    )


def _whole(rows: ScaledPlacement, moments: Moments) -> Coreset:
    dataset = rows.placement.dataset
    chunk = dataset.load((0, dataset.n_rows)).owned()
    weights = np.ones(chunk.n_rows) if chunk.weights is None else chunk.weights
    kept = np.flatnonzero(weights > 0.0)
    return Coreset(chunk.rows[kept], weights[kept], kept, moments)
