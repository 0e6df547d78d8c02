"""Nested mini-batch k-means (Newling and Fleuret, "Nested mini-batch k-means", NIPS 2016).

Batches M(1) in M(2) in ... in all rows; a row votes once, at its nearest centre; centres are the means of
the votes; a batch doubles when its centres move less than chance would explain.

What differs from the paper's Algorithm 5:

- In the paper, a row withdraws its last vote before it casts a new one, so S, v and sse of a round are sums
  over the batch under the centres of that round. Here they are computed from batch and centres: no votes
  are stored between rounds, and all ways to find the nearest centres (all distances, or bounds of any
  kind) give the same bits. A doubling starts with new bounds: to copy those of the old rows took as long as
  it saved.
- sse is measured only where it may decide; see `DoublingRule.at_most`.
- Once the batch is all rows this is Lloyd's loop, with its stopping rules and its relocation of empty
  clusters. Before, an empty cluster keeps its centre.
- By default the first centres do not vote. With the paper's S(j) = x, v(j) = 1 a first centre is a row that
  counts twice, to the end, so no cluster is ever empty and none is relocated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.assign import AssignParams, Score, ScoreStatistics
from daskcluster.chunkwise.statistics import Additive, KMeansStatistics, Reduction
from daskcluster.engine.scaled import ScaledPlacement, score_rows
from daskcluster.estimators.loop import Limits, Stepped, run_loop
from daskcluster.events import RoundEnded, StopReason
from daskcluster.kernels.accumulate import accumulate_values
from daskcluster.kernels.sum_grid import SumGrid
from daskcluster.methods.kmeans.algorithm import (
    CentresStep,
    inertia_from,
    lloyd_step,
    squared_movement,
    total_weight,
    updated,
)
from daskcluster.methods.kmeans.assignment import Assignment
from daskcluster.methods.kmeans.chunkwise.kind import lengths
from daskcluster.methods.nested.batches import NestedBatches

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


class _Spread:
    def __init__(self, params: AssignParams) -> None:
        self.params, self.score = params, Score(params)

    def zero(self) -> SpreadStatistics:
        score = self.score.zero()
        return SpreadStatistics(score, np.zeros((2, len(score.sizes))))

    def add(self, chunk: Chunk, into: SpreadStatistics) -> None:
        scale = self.params.scale
        grid = SumGrid.of(1.0, scale.n_rows)
        for block in chunk.cache_blocks(least=self.params.centres.dtype):
            labels, _ = self.score.add_block(block, into.score)
            if block.weights is not None:
                relative = block.weights / scale.max_weight
                accumulate_values(relative * relative, labels, grid, *into.squares)


SPREAD = Reduction("score", prepare=_Spread)
"""`daskcluster.chunkwise.assign.AssignParams` -> `SpreadStatistics`."""


Choice = Callable[[ScaledPlacement, np.ndarray | None], Assignment]


@dataclass(frozen=True)
class NestedState:
    """State of the loop between two rounds. Rows have no state of their own.

    Attributes
    ----------
    batch : int
        Number of the batch, from 0.
    doubles : bool
        The next round begins with the next batch.
    centres : ndarray of shape (k, d)
    seeds : ndarray of shape (k, d), or None
        The first centres, where they vote.
    history, reason
        See `daskcluster.estimators.loop.LoopState`.
    """

    batch: int
    doubles: bool
    centres: np.ndarray
    seeds: np.ndarray | None = None
    history: Sequence[dict[str, Any]] = ()
    reason: StopReason | None = None


@dataclass
class Nested:
    """Moves centres to the means of ever larger batches until nothing moves.

    Parameters
    ----------
    batches : NestedBatches
        At that of the state to begin with.
    choose : callable (ScaledPlacement, labels) -> Assignment
        Chooses the assignment of the rows of a batch.
    rule : DoublingRule
    tol : float
        As for `daskcluster.methods.kmeans.algorithm.lloyd`; it counts once the batch is all rows.
    """

    batches: NestedBatches
    choose: Choice
    rule: DoublingRule
    tol: float = 1e-4

    def run(
        self,
        begin: NestedState,
        limits: Limits,
        *,
        keep: Callable[[NestedState], None] | None = None,
        validate: Callable[[NestedState], float] | None = None,
    ) -> NestedState:
        """Return the state after the last round; callbacks hear a `RoundEnded` in each."""
        batches, self.seeds, self.doubles = self.batches, begin.seeds, begin.doubles
        self._assign = self.choose(batches.rows, batches.labels)
        with closing(self):
            return run_loop(
                self.next,
                replace(begin, centres=np.ascontiguousarray(begin.centres, batches.rows.dtype)),
                RoundEnded,
                limits,
                keep=keep,
                bytes_read=lambda: batches.bytes_read,
                validate=validate,
            )

    def next(self, state: NestedState) -> Stepped[NestedState]:
        """Make one step of the centres."""
        batches, centres = self.batches, state.centres
        if self.doubles:
            self.doubles = False
            self._assign.close()
            self.batches.double()
            self.batches.rows.known()
            self._assign = self.choose(self.batches.rows, self.batches.labels)
        ratio: float | None = None
        if batches.is_whole and self.seeds is None:
            step = lloyd_step(batches.rows, centres, self._assign, batches.labels)
        elif batches.is_whole:
            step, _ = self._step(centres)
        else:
            batches.rows.known()  # so that bounds hold from the first round on
            step, statistics = self._step(centres)
            ratio, measured = self._ratio(centres, step, statistics)
            self.doubles = self.rule.allows(ratio)
            step = replace(step, n_distances=step.n_distances + measured)
        shown = ratio if ratio is not None and np.isfinite(ratio) else None
        made = Stepped(
            replace(state, batch=batches.number, doubles=self.doubles, centres=step.centres),
            {**step.facts(), "batch_size": batches.size, "doubling_ratio": shown},
            total_weight(batches.rows),
        )
        if batches.is_whole:  # before, some rows have not voted yet
            made.moved, made.shift = not np.array_equal(step.centres, centres), step.shift
            made.threshold = self.tol * batches.rows.known().mean_variance if self.tol > 0 else 0.0
        return made

    def close(self) -> None:
        self._assign.close()

    def _step(self, centres: np.ndarray) -> tuple[CentresStep, KMeansStatistics]:
        """Let the rows of a batch vote, and move the centres."""
        rows = self.batches.rows
        assigned = self._assign(centres)
        inertia = inertia_from(assigned.statistics, centres, rows)
        votes = self._with_seeds(assigned.statistics)
        moved_to = updated(votes, centres, rows)
        step = CentresStep(
            moved_to,
            inertia,
            squared_movement(centres, moved_to),
            int((votes.weights <= 0.0).sum()),
            assigned.n_touched,
            assigned.n_distances,
        )
        return step, votes

    def _with_seeds(self, statistics: KMeansStatistics) -> KMeansStatistics:
        if self.seeds is None:
            return statistics
        weight = float(statistics.weights.sum()) / max(1, self.batches.size)
        statistics.sums += weight * self.seeds
        counts = statistics.counts.astype(np.float64) + weight
        return replace(statistics, counts=counts)

    def _ratio(
        self, centres: np.ndarray, step: CentresStep, statistics: KMeansStatistics
    ) -> tuple[float, int]:
        """Return min sigma(j) / p(j), or a bound that refuses the doubling; and the number of distances."""
        rows, rule = self.batches.rows, self.rule
        moved = lengths(centres, step.centres)
        weights = statistics.weights
        n_votes = self.batches.size + (0 if self.seeds is None else len(centres))
        votes, factor = effective_votes(weights, n_votes)
        spread = rows.known().total_spread
        largest = rows.scale.max_weight
        uneven = rows.scale.weighted and float(weights.sum()) != n_votes * largest
        least = weights / largest if uneven and largest > 0.0 else None
        ratio = rule.at_most(step.inertia * factor, spread * factor, votes, moved, least)
        if not moved.any() or not rule.allows(ratio):
            return ratio, 0
        labels = self.batches.labels
        measured = self.batches.size * (1 if labels is not None else len(centres))
        if least is None:
            found = score_rows(rows, centres, labels, labelled=labels is not None)
            return rule.ratio(found.costs.sum(axis=0) * factor, votes, moved), measured
        spreads: SpreadStatistics = self.batches.rows.reduce(
            SPREAD,
            lambda scale: AssignParams(centres, scale, labels, labelled=labels is not None),
        )
        squares = spreads.squares.sum(axis=0)
        if self.seeds is not None:
            squares += (float(weights.sum()) / n_votes / largest) ** 2
        sizes = effective_sizes(least, squares)
        return rule.ratio(spreads.score.costs.sum(axis=0) * factor, votes, moved, sizes), measured
