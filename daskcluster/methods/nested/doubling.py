"""The rule that decides whether a batch doubles (Newling and Fleuret 2016, section 3.2.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.assign import SCORE, ScoreStatistics, score_block
from daskcluster.chunkwise.statistics import Additive, Reduction
from daskcluster.kernels.accumulate import accumulate_values
from daskcluster.kernels.sum_grid import SumGrid

_MARGIN, _MARGIN_OF_SPREAD = 1e-6, 1e-9
"""More than the rounding of the inertia that follows from the statistics."""


def standard_error(
    sse: np.ndarray, votes: np.ndarray, definition: str = "paper", sizes: np.ndarray | None = None
) -> np.ndarray:
    """Return sigma(j) of each cluster.

    The spread of fewer than two votes is unknown and counts as 0, so such a cluster delays the
    doubling as long as its centre moves.

    Parameters
    ----------
    sse : ndarray of shape (k,)
        Sums of squared distances to the centres before they moved.
    votes : ndarray of shape (k,)
        v(j); see `effective_votes` for weighted rows.
    definition : {"paper", "code"}
        sqrt(sse / (v (v - 1))) or sqrt(sse / (v - 1)).
    sizes : ndarray of shape (k,), optional
        m(j), the effective number of rows where weights are uneven, by default the votes; see
        `effective_sizes`. With it, sse / v is the variance of m - 1 degrees of freedom, and sigma(j) is
        sqrt(sse / (v (m - 1))) or sqrt(sse m / (v (m - 1))).

    Examples
    --------
    >>> import numpy as np
    >>> standard_error(np.array([12.0, 12.0, 5.0]), np.array([4.0, 1.0, 0.0])).tolist()
    [1.0, 0.0, 0.0]
    >>> standard_error(np.array([12.0]), np.array([4.0]), "code").tolist()
    [2.0]
    >>> standard_error(np.array([12.0]), np.array([4.0]), sizes=np.array([2.0])).round(3).tolist()
    [1.732]
    """
    sizes = votes if sizes is None else sizes
    known = (sizes >= 2.0) & (votes > 0.0)
    v, m = np.where(known, votes, 2.0), np.where(known, sizes, 2.0)
    divisor = v * (m - 1.0) if definition == "paper" else (m - 1.0) * (v / m)
    return np.where(known, np.sqrt(np.maximum(sse, 0.0) / divisor), 0.0)


def doubling_ratio(errors: np.ndarray, moved: np.ndarray) -> float:
    """Return min sigma(j) / p(j) over the clusters whose centres moved; infinity if none has.

    A centre that stood still has no veto for any sigma; one that moved although its rows lie in one
    point (sigma 0) has it for any rho.

    Parameters
    ----------
    errors, moved : ndarrays of shape (k,)
        sigma(j) and p(j).

    Examples
    --------
    >>> import numpy as np
    >>> doubling_ratio(np.array([1.0, 0.0, 3.0]), np.array([0.5, 0.0, 1.0]))
    2.0
    >>> doubling_ratio(np.array([0.0]), np.array([0.1])), doubling_ratio(np.array([0.0]), np.array([0.0]))
    (0.0, inf)
    """
    going = moved > 0.0
    return float((errors[going] / moved[going]).min(initial=np.inf))


def effective_votes(weights: np.ndarray, n_rows: int) -> tuple[np.ndarray, float]:
    """Return votes that count rows, and the factor from weights to votes.

    Weights are votes, but their unit is arbitrary: scaled so that those of the batch sum to its
    rows, they count what "two votes" means, and equal weights are no weights.

    Parameters
    ----------
    weights : ndarray of shape (k,)
        Weights of the clusters.
    n_rows : int
        Number of rows of the batch.

    Examples
    --------
    >>> import numpy as np
    >>> effective_votes(np.array([30.0, 10.0]), 4)
    (array([3., 1.]), 0.1)
    """
    total = float(weights.sum())
    factor = n_rows / total if total > 0.0 else 0.0
    return weights * factor, factor


def effective_sizes(weights: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Return Kish's effective number of rows of each cluster, (sum w)^2 / sum w^2; 0 without weight.

    The mean of rows with uneven weights varies as that of so many rows of one weight.

    Parameters
    ----------
    weights, squares : ndarrays of shape (k,)
        Sums of w and of w^2 over the rows of each cluster.

    Examples
    --------
    >>> import numpy as np
    >>> effective_sizes(np.array([4.0, 4.0, 0.0]), np.array([4.0, 10.0, 0.0])).tolist()
    [4.0, 1.6, 0.0]
    """
    filled = squares > 0.0
    return np.where(filled, weights * weights / np.where(filled, squares, 1.0), 0.0)


@dataclass(frozen=True)
class DoublingRule:
    """Rule that decides whether a batch doubles.

    Attributes
    ----------
    rho : float
    definition : {"paper", "code"}
        See `standard_error`.
    """

    rho: float = 100.0
    definition: str = "paper"

    def ratio(
        self,
        sse: np.ndarray,
        votes: np.ndarray,
        moved: np.ndarray,
        sizes: np.ndarray | None = None,
    ) -> float:
        """Return the ratio that is compared with rho."""
        return doubling_ratio(standard_error(sse, votes, self.definition, sizes), moved)

    def at_most(
        self,
        inertia: float,
        spread: float,
        votes: np.ndarray,
        moved: np.ndarray,
        sizes: np.ndarray | None = None,
    ) -> float:
        """Return an upper bound of `ratio` that needs no rows.

        No cluster has more than the inertia of the whole batch. Far from the end that refuses
        most doublings, and the rows need not be measured for it.

        Parameters
        ----------
        inertia, spread : float
            Inertia and spread of the batch: sum of squared distances to the centres, and to the origin of
            its statistics, in units of votes.
        votes, moved : ndarrays of shape (k,)
        sizes : ndarray of shape (k,), optional
            At most the effective numbers of rows, where weights are uneven.
        """
        most = inertia * (1.0 + _MARGIN) + spread * _MARGIN_OF_SPREAD
        least = None if sizes is None else np.maximum(sizes, 2.0)  # of fewer rows sigma counts as 0
        return self.ratio(np.full(len(votes), most), votes, moved, least)

    def allows(self, ratio: float) -> bool:
        return ratio > self.rho


@dataclass
class SpreadStatistics(Additive):
    """Costs of clusters and squares of their weights, exact on two grids.

    Attributes
    ----------
    score : ScoreStatistics
    squares : ndarray of shape (2, k)
        Sum of (w / largest weight)^2 over the rows of each cluster: high and low parts.
    """

    score: ScoreStatistics
    squares: np.ndarray


def _zero(prepared: Any) -> SpreadStatistics:
    score = SCORE.zero(prepared)
    return SpreadStatistics(score, np.zeros((2, len(score.sizes))))


def _spread_chunk(chunk: Chunk, prepared: Any, into: SpreadStatistics) -> None:
    scale = prepared.params.scale
    grid = SumGrid.of(1.0, scale.n_rows)
    for block in chunk.cache_blocks(least=prepared.params.centres.dtype):
        labels, _ = score_block(block, prepared, into.score)
        if block.weights is not None:
            relative = block.weights / scale.max_weight
            accumulate_values(relative * relative, labels, grid, *into.squares)


SPREAD = Reduction(
    name="score",
    prepare=SCORE.prepare,
    zero=_zero,
    chunk=_spread_chunk,
)
"""`daskcluster.chunkwise.assign.AssignParams` -> `SpreadStatistics`."""
