"""Neighbours of rows: pairs at most as far apart as one of them is from its g-th nearest row.

Distances estimated from products and norms only rule pairs out. The other pairs are decided by differences
in float64, which are bit-identical from either side, and all ties are neighbours. So neighbours do not
depend on the rounding of products, on the order of the rows, or on chunks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskcluster.methods.kernel.chunkwise.gram import rows_for_callers, squared_lengths
from daskcluster.sparse_rows import Rows, SparseRows

_ESTIMATES = 4 << 20
"""Number of products computed at a time."""
_DIFFERENCES = 4 << 20
"""Number of differences of features computed at a time."""
_PANEL = 4096


@dataclass(frozen=True)
class Pairs:
    """Pairs of neighbours, sorted by rows and then by points.

    Attributes
    ----------
    n_rows : int
    rows, points : ndarrays of shape (p,), int64
    gaps : ndarray of shape (p,), float64
        Squared distances.
    """

    n_rows: int
    rows: np.ndarray
    points: np.ndarray
    gaps: np.ndarray

    def take(self, which: np.ndarray) -> Pairs:
        """Return some of the pairs."""
        return Pairs(self.n_rows, self.rows[which], self.points[which], self.gaps[which])

    def matrix(self, n_points: int) -> Any:
        """Return a CSR array (n_rows, n_points) with ones at the pairs."""
        from scipy.sparse import csr_array

        ends = np.searchsorted(self.rows, np.arange(self.n_rows + 1))
        return csr_array((np.ones(len(self.rows)), self.points, ends), (self.n_rows, n_points))


@dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """The rows of a fit and the radii of their neighbourhoods.

    Attributes
    ----------
    points : Rows, shape (n, d)
        Ready for the kernels.
    radii : ndarray of shape (n,), float64
        Squared distance of each to its g-th nearest row; the row itself is the first.
    n_neighbors : int
        g.

    Examples
    --------
    The new row 5 lies within the radius of 9, so 9 is a neighbour too.

    >>> import numpy as np
    >>> points = np.array([[3.0], [4.0], [9.0]])
    >>> known = Neighbourhoods(points, nearest(points, points, 2)[1], 2)
    >>> known.radii
    array([ 1.,  1., 25.])
    >>> known.pairs(np.array([[5.0]])).points
    array([0, 1, 2])
    """

    points: Rows
    radii: np.ndarray
    n_neighbors: int
    norms: np.ndarray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "norms", squared_lengths(self.points))

    def pairs(self, rows: Rows) -> Pairs:
        """Return the points that are neighbours of rows; `rows` are ready for the kernels.

        A point is a neighbour if it is among the g nearest points of the row, or if the row is within the
        radius of the point. So rows of the fit have the same neighbours as in the fit.

        Notes
        -----
        Cost: n distances per row. Memory: about 100 MB, plus the pairs.
        """
        step = max(1, _ESTIMATES // max(1, len(self.points)))
        parts = []
        for first in range(0, len(rows), step):
            part = like(rows[first : first + step], self.points)
            found, own = _candidates(part, self, self.radii)
            kept = found.gaps <= np.maximum(own[found.rows], self.radii[found.points])
            parts.append((first, found.take(kept)))
        return _joined(parts, len(rows))


def nearest(rows: Rows, points: Rows, n_neighbors: int) -> tuple[Pairs, np.ndarray]:
    """Return the `n_neighbors` nearest points of every row, and the squared distance of the last of them.

    Points at the same distance as the last one are included.

    Parameters
    ----------
    rows, points : Rows
        Both dense or both CSR.
    n_neighbors : int

    Returns
    -------
    Pairs
    ndarray of shape (n,), float64
    """
    known = Neighbourhoods(points, np.empty(0), n_neighbors)
    step, parts, radii = max(1, _ESTIMATES // len(points)), [], np.empty(len(rows))
    for first in range(0, len(rows), step):
        found, own = _candidates(rows[first : first + step], known, None)
        radii[first : first + step] = own
        parts.append((first, found.take(found.gaps <= own[found.rows])))
    return _joined(parts, len(rows)), radii


def _joined(parts: list[tuple[int, Pairs]], n_rows: int) -> Pairs:
    if not parts:
        return Pairs(0, np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
    rows = np.concatenate([first + part.rows for first, part in parts])
    points, gaps = (
        np.concatenate([getattr(part, name) for _, part in parts]) for name in ("points", "gaps")
    )
    return Pairs(n_rows, rows, points, gaps)


def _candidates(
    rows: Rows, known: Neighbourhoods, radii: np.ndarray | None
) -> tuple[Pairs, np.ndarray]:
    """Return pairs that include all neighbours, and each row's squared distance to its g-th nearest."""
    g, own = known.n_neighbors, squared_lengths(rows)
    estimates = _estimates(rows, own, known)
    slack = rounding(own, known.norms, known.points.shape[1])
    threshold = (np.partition(estimates, g - 1, axis=1)[:, g - 1] + slack)[:, None]
    if radii is not None:
        threshold = np.maximum(threshold, radii + slack[:, None])
    i, j = np.nonzero(estimates <= threshold)
    gaps = squared_gaps(rows, i, known.points, j)
    return Pairs(len(rows), i, j, gaps), nth_of_each(i, gaps, len(rows), g)


def _estimates(rows: Rows, lengths: np.ndarray, known: Neighbourhoods) -> np.ndarray:
    wide, found = _wide(rows), np.empty((len(rows), len(known.points)))
    for first in range(0, len(known.points), _PANEL):
        panel = _wide(known.points[first : first + _PANEL])
        products = wide @ panel.T
        products = products if isinstance(products, np.ndarray) else products.toarray()
        found[:, first : first + _PANEL] = products
    found *= -2.0
    found += lengths[:, None]
    found += known.norms
    return found


def rounding(lengths: np.ndarray, norms: np.ndarray, n_features: int) -> np.ndarray:
    """Return twice a bound of the error of an estimated squared distance, for each row."""
    unit = np.finfo(np.float64).eps
    return np.asarray(4.0 * unit * (n_features + 8) * (lengths + norms.max(initial=0.0)))


def nth_of_each(rows: np.ndarray, values: np.ndarray, n_rows: int, nth: int) -> np.ndarray:
    """Return the `nth` smallest value of each row; `rows` ascend, and each has at least `nth` values."""
    order = np.lexsort((values, rows))
    return np.asarray(values[order][np.searchsorted(rows, np.arange(n_rows)) + nth - 1])


def squared_gaps(rows: Rows, i: np.ndarray, points: Rows, j: np.ndarray) -> np.ndarray:
    """Return squared distances of pairs, float64 (p,): bit-identical if rows and points are swapped."""
    found = np.empty(len(i))
    step = max(1, _DIFFERENCES // max(1, rows.shape[1]))
    for first in range(0, len(i), step):
        cut = slice(first, first + step)
        gap = _wide(rows[i[cut]]) - _wide(points[j[cut]])
        found[cut] = np.asarray((gap * gap).sum(axis=1)).ravel()
    return found


def like(rows: Rows, points: Rows) -> Rows:
    """Return rows in the form of `points`: an array or CSR."""
    if isinstance(points, SparseRows):
        return rows if isinstance(rows, SparseRows) else SparseRows.of(rows)
    return rows.toarray() if isinstance(rows, SparseRows) else rows


def _wide(rows: Rows) -> Any:
    return rows_for_callers(rows.astype(np.float64))
