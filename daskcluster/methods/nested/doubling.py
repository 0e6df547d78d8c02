"""When a nested batch is doubled: once its centres move less than chance would have them differ.

Newling and Fleuret ("Nested mini-batch k-means", NIPS 2016, section 3.3.1): with sigma(j) the standard
error of the mean of cluster j, and p(j) what its centre has just moved, the batch doubles if
sigma(j) / p(j) > rho for every j. Until then its rows still have something to say.

What the paper leaves open is written out here, one function each. The authors' program divides the
sum of squares by v - 1 only, which is the spread of a cluster and not that of its mean: its rho stands for
rho sqrt(v) of the paper. ``"code"`` is that; the paper's is the default, for it means the same for
clusters of all sizes. Where the program takes the thousandth part of the clusters for outliers
(from a thousand clusters on), here all of them have a veto.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_MARGIN, _MARGIN_OF_SPREAD = 1e-6, 1e-9
"""More than the rounding of the inertia that follows from the statistics."""


def standard_error(sse: np.ndarray, votes: np.ndarray, definition: str = "paper") -> np.ndarray:
    """Return sigma(j) of each cluster.

    The spread of less than two votes is not known: it counts as 0, so that such a cluster holds the
    doubling up for as long as its centre moves.

    Parameters
    ----------
    sse : ndarray of shape (k,)
        Sums of squared distances to the centres before they moved.
    votes : ndarray of shape (k,)
        v(j); see `effective_votes` for weighted rows.
    definition : {"paper", "code"}
        sqrt(sse / (v (v - 1))) or sqrt(sse / (v - 1)).

    Examples
    --------
    >>> import numpy as np
    >>> standard_error(np.array([12.0, 12.0, 5.0]), np.array([4.0, 1.0, 0.0])).tolist()
    [1.0, 0.0, 0.0]
    >>> standard_error(np.array([12.0]), np.array([4.0]), "code").tolist()
    [2.0]
    """
    known = votes >= 2.0
    v = np.where(known, votes, 2.0)
    divisor = v * (v - 1.0) if definition == "paper" else v - 1.0
    return np.where(known, np.sqrt(np.maximum(sse, 0.0) / divisor), 0.0)


def doubling_ratio(errors: np.ndarray, moved: np.ndarray) -> float:
    """Return min sigma(j) / p(j) over the clusters whose centres moved; infinity if none has.

    A centre that stood still has no veto, whatever its sigma; one that moved although its rows lie in one
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
    """Return votes that count rows, and the factor that makes them of weights.

    Weights are votes, but their unit is arbitrary: scaled so that those of the batch sum to its
    rows, they count what "two votes" means, and equal weights are no weights.

    Parameters
    ----------
    weights : ndarray of shape (k,)
        Of the clusters.
    n_rows : int
        Of the batch.

    Examples
    --------
    >>> import numpy as np
    >>> effective_votes(np.array([30.0, 10.0]), 4)
    (array([3., 1.]), 0.1)
    """
    total = float(weights.sum())
    factor = n_rows / total if total > 0.0 else 0.0
    return weights * factor, factor


@dataclass(frozen=True)
class DoublingRule:
    """Whether a batch is doubled.

    Attributes
    ----------
    rho : float
    definition : {"paper", "code"}
        See `standard_error`.
    """

    rho: float = 100.0
    definition: str = "paper"

    def ratio(self, sse: np.ndarray, votes: np.ndarray, moved: np.ndarray) -> float:
        """Return what has to exceed rho."""
        return doubling_ratio(standard_error(sse, votes, self.definition), moved)

    def at_most(self, inertia: float, spread: float, votes: np.ndarray, moved: np.ndarray) -> float:
        """Return an upper bound of `ratio`, from what is known without looking at a row.

        No cluster has more than the inertia of the whole batch. Far from the end that refuses
        most doublings, and the rows need not be measured for it.

        Parameters
        ----------
        inertia, spread : float
            Of the batch: sum of squared distances to the centres, and to the origin of its statistics,
            in units of votes.
        votes, moved : ndarrays of shape (k,)
        """
        most = inertia * (1.0 + _MARGIN) + spread * _MARGIN_OF_SPREAD
        return self.ratio(np.full(len(votes), most), votes, moved)

    def allows(self, ratio: float) -> bool:
        return ratio > self.rho
