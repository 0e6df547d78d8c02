"""Weight, mean and spread of all rows, from the pass that every fit makes first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskcluster.chunkwise.moments import MOMENTS, MomentParams
from daskcluster.engine.scaled import ScaledPlacement


@dataclass(frozen=True)
class Moments:
    """What is known of all rows together.

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
    survey if it is the first.

    Examples
    --------
    >>> from daskcluster.data.open import open_dataset
    >>> from daskcluster.engine.local import LocalEngine
    >>> with LocalEngine().place(open_dataset([[0.0], [4.0]], weights=[3.0, 1.0])) as placement:
    ...     found = measure(ScaledPlacement(placement))
    >>> found.weight, found.mean, found.spread
    (4.0, array([1.]), 12.0)
    """
    if rows.placement.dataset.weights is None:
        survey = rows.known()
        weight, sums, spread = float(survey.n_rows), survey.sums, survey.spread.value
    else:
        found = rows.reduce(MOMENTS, MomentParams)
        survey = rows.known()
        weight, sums = float(survey.weight.value), found.totals[0]
        spread = float(survey.weighted_spread.value)
    mean = sums / weight
    offset = mean - survey.origin
    return Moments(weight, mean, max(0.0, spread - weight * float((offset * offset).sum())))
