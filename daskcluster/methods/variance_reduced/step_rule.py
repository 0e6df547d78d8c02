"""The steps of an epoch: how many, and at which learning rate if it follows the curvature.

Tan, Ma, Dai and Qian ("Barzilai-Borwein step size for stochastic gradient descent", 2016) have this rate
for variance reduced gradients: |s|^2 / |s.y| over the number of rows, with s the movement of the centres
from one epoch to the next, and y that of the mean gradient. A pass has both at hand: the gradient of a
centre is its distance from the mean of its cluster, in proportion to the weight of the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

DOUBLING_MOST = 2.0
"""Epochs that double stop growing at this multiple of the rows, the largest that the paper tries."""


@dataclass(frozen=True)
class StepRule:
    """Number of steps of an epoch.

    Attributes
    ----------
    epoch_size : float or "doubling"
        T as a multiple of the rows, or 2^s in epoch s = 1, 2, ..., to twice the rows at most.
    n_partitions : int
        Of the inner loop.
    """

    epoch_size: float | str = 1.0
    n_partitions: int = 1

    def n_steps(self, epoch: int, n_rows: int) -> int:
        """Return T of `epoch`, which counts from 1.

        Examples
        --------
        >>> [StepRule("doubling").n_steps(s, 10) for s in (1, 3, 9)]
        [2, 8, 20]
        """
        if isinstance(self.epoch_size, str):
            most = DOUBLING_MOST * n_rows
            return int(min(most, 2 ** min(epoch, int(most).bit_length())))
        return round(self.epoch_size * n_rows)


@dataclass(frozen=True)
class Secant:
    """Where an epoch began.

    Attributes
    ----------
    centres, gradient : ndarray of shape (k, d), float64
        Centres, and the mean gradient of half the inertia there.
    """

    centres: np.ndarray
    gradient: np.ndarray

    @classmethod
    def of(cls, centres: np.ndarray, means: np.ndarray, weights: np.ndarray) -> Secant:
        """Return that of centres, with the means and weights of their clusters."""
        here = centres.astype(np.float64)
        return cls(here, weights[:, None] * (here - means) / float(weights.sum()))

    def rate(self, before: Secant, n_rows: int) -> float | None:
        """Return the rate that follows from the last two epochs; None if nothing moved.

        Examples
        --------
        >>> import numpy as np
        >>> weights = np.array([30.0, 10.0])
        >>> first, second = (Secant.of(np.full((2, 1), x), np.zeros((2, 1)), weights) for x in (4, 3))
        >>> second.rate(first, 40)  # K / n
        0.05
        """
        moved, turned = self.centres - before.centres, self.gradient - before.gradient
        square, product = float((moved * moved).sum()), abs(float((moved * turned).sum()))
        if not product > 0.0:
            return None
        # Few digits, which do not depend on how sums were rounded.
        return float(f"{square / product / n_rows:.3g}")


def secant_bytes(n_clusters: int, n_features: int) -> int:
    """Return the bytes of a `Secant`."""
    return 2 * 8 * n_clusters * n_features
