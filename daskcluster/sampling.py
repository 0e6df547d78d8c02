"""Draws of rows with replacement from the distribution of lightweight coresets, and data moments."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from daskcluster.chunkwise.labelled import MEAN, OneCluster, SumsParams
from daskcluster.chunkwise.seeding import DRAWS, RANKS, Candidates, DrawParams
from daskcluster.elementary import log1p
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidDataError
from daskcluster.randomness import Key
from daskcluster.sparse_rows import Rows, take_rows


@dataclass(frozen=True)
class Moments:
    """Totals over all rows.

    Attributes
    ----------
    weight : float
        Total row weight W; the number of rows, where they have no weights.
    mean : ndarray of shape (d,), float64
        Weighted.
    spread : float
        Weighted sum of squared distances to the mean, by the parallel axis theorem: approximate
        where the first rows of the dataset are far from the mean.
    """

    weight: float
    mean: np.ndarray
    spread: float

    def spread_about(self, point: np.ndarray) -> float:
        """Return the weighted sum of squared distances to `point` (d,)."""
        offset = self.mean - point
        return self.spread + self.weight * float((offset * offset).sum())


def measure(rows: ScaledPlacement) -> Moments:
    """Return the moments of all rows.

    Notes
    -----
    Cost: none if rows have no weights and a pass has been made; else one pass, which carries the
    data statistics if it is the first.

    Examples
    --------
    >>> from daskcluster.data.open import open_source
    >>> from daskcluster.engine.local import LocalEngine
    >>> with LocalEngine().place(open_source([[0.0], [4.0]], weights=[3.0, 1.0])) as placement:
    ...     found = measure(ScaledPlacement(placement))
    >>> found.weight, found.mean, found.spread
    (4.0, array([1.]), 12.0)
    """
    if rows.placement.dataset.weights is None:
        data_statistics = rows.known()
        weight, sums, spread = (
            float(data_statistics.n_rows),
            data_statistics.sums,
            data_statistics.spread.value,
        )
    else:
        found = rows.reduce(MEAN, lambda scale: SumsParams(OneCluster(), 1, scale))
        data_statistics = rows.known()
        weight, sums = float(data_statistics.weight.value), found.totals[0]
        spread = float(data_statistics.weighted_spread.value)
    mean = sums / weight
    offset = mean - data_statistics.origin
    return Moments(weight, mean, max(0.0, spread - weight * float((offset * offset).sum())))


_SPREAD_ERROR = 1.001
"""phi is known before the pass up to rounding; the pass is repeated if it was wrong by this factor."""
_MOST_PASSES = 16


@dataclass(frozen=True)
class Draws:
    """m draws of c distinct rows.

    Attributes
    ----------
    picked : ndarray of shape (m,), int64
        Which of the c rows each draw is, in the order of the draws: any run of them is a sample, too.
    indices : ndarray of shape (c,), int64
        Global row indices, ascending.
    sqdist, weights : ndarray of shape (c,), float64
        Squared distances to the point, and row weights.
    rates : ndarray of shape (c,), float64
        q / w, the probability of a draw per unit of weight.
    rows : Rows, shape (c, d)
        As the source has them.
    """

    picked: np.ndarray
    indices: np.ndarray
    sqdist: np.ndarray
    weights: np.ndarray
    rates: np.ndarray
    rows: Rows


def draw_about(
    rows: ScaledPlacement, point: np.ndarray, moments: Moments, size: int, key: Key
) -> Draws:
    """Draw `size` rows, independently and with replacement.

    Parameters
    ----------
    rows : ScaledPlacement
    point : ndarray of shape (d,)
        p, in the compute dtype.
    moments : Moments
        Moments of the same rows.
    size : int
        m >= 1.
    key : Key

    Returns
    -------
    Draws
        Where all rows stand at `point`, q is in proportion to the weights.

    Notes
    -----
    Cost: one pass, one distance a row; about m rows travel. A second pass in two rare cases: fewer
    than m arrivals in time (one in a billion), or weights under which rounding spoils phi.
    """
    spread = moments.spread_about(point.astype(np.float64))
    for _ in range(_MOST_PASSES):
        params = _params(rows, point, moments.weight, spread, size, key)
        found: Candidates = rows.placement.reduce(DRAWS, params)
        true = found.spread.value
        if spread <= _SPREAD_ERROR * true and true <= _SPREAD_ERROR * spread:
            draws = _first_arrivals(found, params, size)
            if draws is not None:
                total = params.offset * moments.weight + params.slope * true
                return replace(draws, rates=draws.rates / total)
            # The rows of arrivals do not depend on their times: to start again introduces no bias.
            key = replace(key, iteration=key.iteration + 1)
        spread = true
    raise InvalidDataError(
        f"{size} rows could not be drawn in {_MOST_PASSES} passes: the sum of their squared distances, "
        f"{spread!r}, changes from pass to pass; the rows must not change while they are read."
    )


def _params(
    rows: ScaledPlacement, point: np.ndarray, weight: float, spread: float, size: int, key: Key
) -> DrawParams:
    slope = 0.5 / spread if spread > np.finfo(np.float64).tiny else 0.0
    offset = (0.5 if slope else 1.0) / weight
    horizon = size + 6.0 * math.sqrt(size) + 16.0
    return DrawParams(point, offset, slope, horizon, key, rows.scale)


def _first_arrivals(found: Candidates, params: DrawParams, size: int) -> Draws | None:
    """Return the first `size` arrivals; None if there are fewer before the horizon."""
    if not found.parts:
        return None
    indices, ranks, sqdist, weights, rows = found.joined()
    per_weight = params.offset + params.slope * sqdist
    rates = weights * per_weight
    # The other bits of the rows' numbers: what is drawn here depends on the rows alone, too.
    generator = replace(params.key, stage=f"{params.key.stage}, arrivals").generator()
    uniforms = (ranks + generator.random(len(ranks))) / RANKS
    first = -log1p(-uniforms) / rates
    left = np.maximum(0.0, params.horizon - first)
    # What comes after the first arrival is a Poisson process again.
    again = generator.poisson(left * rates)
    owner = np.repeat(np.arange(len(indices)), again)
    later = first[owner] + generator.random(len(owner)) * left[owner]
    inside = np.flatnonzero(first < params.horizon)
    owners, times = np.concatenate([inside, owner]), np.concatenate([first[inside], later])
    if len(owners) < size:
        return None
    order = np.argsort(times, kind="stable")[:size]
    drawn = owners[order]
    is_drawn = np.zeros(len(indices), bool)
    is_drawn[drawn] = True
    distinct, picked = np.flatnonzero(is_drawn), np.cumsum(is_drawn)[drawn] - 1
    return Draws(
        picked.astype(np.int64),
        indices[distinct],
        sqdist[distinct],
        weights[distinct],
        per_weight[distinct],
        take_rows(rows, distinct),
    )
