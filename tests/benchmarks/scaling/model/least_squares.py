"""Rates from runs: the cost of each counted quantity, by non-negative least squares."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import nnls


def solve_rates(counts: Sequence[Sequence[float]], seconds: Sequence[float]) -> np.ndarray:
    """Return the seconds for each counted quantity, by relative least squares.

    Parameters
    ----------
    counts : sequence of rows, shape (n_runs, n_kinds)
        How often a run did each kind of thing.
    seconds : sequence of float, shape (n_runs,)
        What it took, > 0.

    Returns
    -------
    ndarray of shape (n_kinds,), all >= 0

    Examples
    --------
    >>> solve_rates([[1, 0], [1, 10], [2, 100]], [3.0, 23.0, 206.0]).round(6).tolist()
    [3.0, 2.0]
    """
    took = np.asarray(seconds, np.float64)
    shares = np.asarray(counts, np.float64) / took[:, None]
    # Columns of like size, so that none is lost to rounding.
    sizes = np.maximum(np.abs(shares).max(axis=0), np.finfo(np.float64).tiny)
    found: np.ndarray = nnls(shares / sizes, np.ones(len(took)))[0] / sizes
    return found


def largest_error(
    counts: Sequence[Sequence[float]], seconds: Sequence[float], rates: np.ndarray
) -> float:
    """Return the largest relative error of the rates over the runs."""
    took = np.asarray(seconds, np.float64)
    return float(np.abs(np.asarray(counts, np.float64) @ rates / took - 1.0).max())
