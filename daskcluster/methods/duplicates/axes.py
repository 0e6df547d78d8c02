"""Axes along which rows of a cell differ most, and how many of them are worth a first comparison."""

from __future__ import annotations

import numpy as np

from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.methods.duplicates.chunkwise import Rule
from daskcluster.methods.duplicates.kernels.bounds import most_level

_LEAST_FEATURES, _STEP = 64, 16
_MOST_SHARE = 0.7
"""With more of the features, the first comparison would not repay the second."""
_ROWS = 8192
_PANEL, _CANDIDATE = 4000.0, 8000.0
"""Products in the time of a lane of a panel that is looked through, and of a pair whose features are all
compared."""


def choose_axes(rows: np.ndarray, centres: np.ndarray, rule: Rule) -> np.ndarray:
    """Return orthonormal axes (d, m), or none (m = 0) if comparing all features is as cheap.

    The axes are the principal ones of a sample of rows (n, d) about the centres of their cells (k, d).
    Pairs do not depend on them.

    Notes
    -----
    Cost: n d^2 products of at most 8,192 rows, and the eigenvectors of a matrix of d features.
    """
    rows = rows[:: max(1, len(rows) // _ROWS)]
    none = np.empty((rows.shape[1], 0), rows.dtype)
    if rows.shape[1] < _LEAST_FEATURES or len(rows) < _LEAST_FEATURES:
        return none
    labels = np.empty(len(rows), np.int32)
    PreparedCentres(centres).nearest(np.ascontiguousarray(rows), labels)
    about = (rows - centres[labels]).astype(np.float64)
    axes = np.linalg.eigh(about.T @ about)[1][:, ::-1]
    about = about[np.argsort(labels, kind="stable")] @ axes
    labels = np.sort(labels)
    pairs = np.flatnonzero(labels[1:] == labels[:-1])
    if not len(pairs):
        return none
    gaps = np.cumsum(np.square(about[pairs + 1] - about[pairs]), axis=1)
    length = float(np.sqrt(np.square(about).sum(axis=1).mean()))
    loss = float(np.abs(about).max(axis=1).mean()) / most_level() / np.sqrt(12.0)
    sizes = np.arange(_STEP, rows.shape[1] + 1, _STEP)
    limits = rule.radius**2 + 4.0 * loss * np.sqrt(sizes) * length
    left = (gaps[:, sizes - 1] <= limits).mean(axis=0)
    costs = sizes + _PANEL * np.minimum(1.0, 14.0 * left) + _CANDIDATE * left
    best = int(np.argmin(costs))
    if costs[best] > _MOST_SHARE * rows.shape[1]:
        return none
    return np.ascontiguousarray(axes[:, : sizes[best]].astype(rows.dtype))
