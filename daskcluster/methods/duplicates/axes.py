"""Axes along which rows of a cell differ most, and how many of them are worth a first comparison."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.methods.duplicates.chunkwise import Rule
from daskcluster.methods.duplicates.kernels.bounds import most_level

_LEAST_FEATURES, _STEP = 64, 16
_MOST_SHARE = 0.7
"""With more of the features, the first comparison would not repay the second."""
MOST_ROWS, _SLICE_ROWS = 8192, 512
_PANEL, _CANDIDATE = 4000.0, 8000.0
"""Products in the time of a lane of a panel that is looked through, and of a pair whose features are all
compared."""


def choose_axes(rows: np.ndarray, centres: np.ndarray, rule: Rule) -> np.ndarray:
    """Return orthonormal axes (d, m), or none (m = 0) if comparing all features is as cheap.

    The axes are the principal ones of a sample of rows (n, d) about the centres of their cells (k, d).
    Pairs do not depend on them.

    Notes
    -----
    Cost: n d^2 products of at most 8,192 rows, and eigenvectors of a matrix of d features. Memory: these
    rows once more, and four matrices of d x d in float64.
    """
    rows = rows[:: max(1, len(rows) // MOST_ROWS)]
    none = np.empty((rows.shape[1], 0), rows.dtype)
    if rows.shape[1] < _LEAST_FEATURES or len(rows) < _LEAST_FEATURES:
        return none
    labels = np.empty(len(rows), np.int32)
    PreparedCentres(centres).nearest(np.ascontiguousarray(rows), labels)
    # By cell, so that neighbours are pairs of one cell.
    order = np.argsort(labels, kind="stable")
    labels, about = labels[order], rows[order]
    about -= centres[labels]
    moments = np.zeros((rows.shape[1], rows.shape[1]))
    for part in _slices(about):
        moments += part.T @ part
    axes = np.linalg.eigh(moments)[1][:, ::-1]
    pairs = np.flatnonzero(labels[1:] == labels[:-1])
    if not len(pairs):
        return none
    length = math.sqrt(float(np.trace(moments)) / len(about))
    furthest = np.concatenate([np.abs(part @ axes).max(axis=1) for part in _slices(about)])
    loss = float(furthest.mean()) / most_level() / math.sqrt(12.0)
    sizes = np.arange(_STEP, rows.shape[1] + 1, _STEP)
    limits = rule.radius**2 + 4.0 * loss * np.sqrt(sizes) * length
    left = np.zeros(len(sizes))
    for first in range(0, len(pairs), _SLICE_ROWS):
        these = pairs[first : first + _SLICE_ROWS]
        gaps = (about[these + 1] - about[these]).astype(np.float64) @ axes
        left += (np.cumsum(np.square(gaps), axis=1)[:, sizes - 1] <= limits).sum(axis=0)
    left /= len(pairs)
    costs = sizes + _PANEL * np.minimum(1.0, 14.0 * left) + _CANDIDATE * left
    best = int(np.argmin(costs))
    if costs[best] > _MOST_SHARE * rows.shape[1]:
        return none
    return np.ascontiguousarray(axes[:, : sizes[best]].astype(rows.dtype))


def _slices(rows: np.ndarray) -> Iterator[np.ndarray]:
    for first in range(0, len(rows), _SLICE_ROWS):
        yield rows[first : first + _SLICE_ROWS].astype(np.float64)
