"""Nearest centres of CSR rows: the canonical score without an offset (`sparse_chain`).

An offset would make every value of a row count, stored or not. Sparse data has none to take off: it
sits around the origin in all but few features.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from daskcluster.kernels.arrays import read_only
from daskcluster.kernels.jit import kernel, tile_name
from daskcluster.kernels.panels import fill_panels, vector_width
from daskcluster.kernels.sparse_chain import score_entries

_VECTORS = (8, 6, 4, 3, 2, 1)
"""Vectors of centres that a panel may have; eight sums hide the latency of an FMA, and fit any CPU."""
_PANEL_COST = 2.0
"""What reading a row once more costs, in vectors."""
_ROWS = 256
"""Rows that meet one panel after the other, while the features they share are in the cache."""
_LINE = 64


@dataclass(frozen=True)
class SparsePanels:
    """Centres packed for CSR rows, in this process.

    Attributes
    ----------
    data : ndarray of shape (n_panels, (d + 1) * height)
        A panel is the `height` terms -|c|^2 / 2, then `height` coordinates for each feature. Lanes
        beyond k have the first term -inf, which never wins.
    norms : ndarray of shape (k,), float64
        |c|^2, added up in feature order.
    k, d : int
    vectors, width : int
        A panel's height is their product.
    """

    data: np.ndarray
    norms: np.ndarray
    k: int
    d: int
    vectors: int
    width: int

    @property
    def height(self) -> int:
        return self.vectors * self.width

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.dtype


def pack_sparse(centres: np.ndarray, room: np.ndarray | None = None) -> SparsePanels:
    """Pack centres for the kernels of CSR rows.

    Parameters
    ----------
    centres : ndarray of shape (k, d), float32 or float64
    room : ndarray, optional
        OUT. ``data`` of earlier panels of as many centres, which nobody needs any more.

    Returns
    -------
    SparsePanels
        Of about k (d + 1) elements, k rounded up to whole vectors.
    """
    centres = np.ascontiguousarray(centres)
    k, d = centres.shape
    width = vector_width(centres.dtype, tile_name())
    needed = -(-k // width)
    vectors = min(_VECTORS, key=lambda v: -(-needed // v) * (v + _PANEL_COST))
    height = vectors * width
    data = _at_line(-(-k // height), (d + 1) * height, centres.dtype) if room is None else room
    norms = fill_panels(centres, np.zeros(d, centres.dtype), data, height)
    return SparsePanels(data, norms, k, d, vectors, width)


def _at_line(rows: int, columns: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Return uninitialised room that begins at a cache line, so that no vector straddles two."""
    room = np.empty(rows * columns + _LINE // dtype.itemsize, dtype)
    skip = -room.ctypes.data % _LINE // dtype.itemsize
    return room[skip : skip + rows * columns].reshape(rows, columns)


def squared_norms(centres: np.ndarray) -> np.ndarray:
    """Return |c|^2 of every centre, float64, added up one feature after the other."""
    out = np.empty(len(centres))
    _square(read_only(np.ascontiguousarray(centres)), out)
    return out


@kernel
def _square(centres, out):  # type: ignore[no-untyped-def]
    for j in range(centres.shape[0]):
        total = 0.0
        for t in range(centres.shape[1]):
            c = np.float64(centres[j, t])
            total += c * c
        out[j] = total


@cache
def sparse_search_kernel(vectors: int, width: int, keep: int) -> Any:
    """Build the search of CSR rows that keeps the `keep` best.

    ``search(data, indices, indptr, listed, panels, labels, second, scores)``, of all rows if
    none is listed. OUT: labels (n,), and with keep = 2 second (n,) and, unless empty, scores (n, 2).
    """
    return _build(vectors, width, keep)


def _build(vectors: int, width: int, keep: int) -> Any:
    height = vectors * width

    def search(data, indices, indptr, listed, panels, labels, second, scores):  # type: ignore[no-untyped-def]
        n, origin = labels.shape[0], indptr[0]
        flat, stride = panels.reshape(panels.size), panels.shape[1]
        best = np.empty(_ROWS * keep, panels.dtype)
        index = np.empty(_ROWS * keep, np.int32)
        for start in range(0, n, _ROWS):
            stop = min(start + _ROWS, n)
            best[:] = -np.inf
            index[:] = -1
            for p in range(panels.shape[0]):
                for r in range(start, stop):
                    i = listed[r] if listed.shape[0] else r
                    score_entries(
                        data, indices, indptr[i] - origin, indptr[i + 1] - origin,
                        flat, p * stride, np.int32(p * height), best, index, (r - start) * keep,
                        vectors, width, keep, data.shape[0],
                    )  # fmt: skip
            for i in range(start, stop):
                at = (i - start) * keep
                labels[i] = max(index[at], 0)  # NaN rows have no winner: centre 0
                if keep == 2:
                    second[i] = index[at + 1]
                    if scores.shape[0]:
                        scores[i, 0], scores[i, 1] = best[at], best[at + 1]

    return kernel(search)


_NO_LABELS, _ALL = np.empty(0, np.int32), np.empty(0, np.int64)


def nearest_sparse(
    data: np.ndarray,
    indices: np.ndarray,
    indptr: np.ndarray,
    panels: SparsePanels,
    labels: np.ndarray,
    listed: np.ndarray | None = None,
) -> None:
    """Label every row, or those that are listed, with its nearest centre.

    Parameters
    ----------
    data : ndarray of shape (m,), dtype of the panels
        Stored values, row after row.
    indices : ndarray of shape (m,), int32
        Their columns, strictly ascending within a row and below d: not checked.
    indptr : ndarray of shape (n + 1,), int64
        Row i has the values ``indptr[i] - indptr[0]`` to ``indptr[i + 1] - indptr[0]``.
    panels : SparsePanels
    labels : ndarray of shape (n,), int32
        OUT. What `daskcluster.kernels.tile.nearest` gives for the dense rows with an offset of zero.
    listed : ndarray of shape (n,), int64, optional
        Rows to label, where they lie: not checked.

    Examples
    --------
    >>> import numpy as np
    >>> panels, labels = pack_sparse(np.array([[0.0, 0.0], [3.0, 1.0]])), np.empty(3, np.int32)
    >>> indices, indptr = np.array([0, 0, 1], np.int32), np.array([0, 1, 3, 3])
    >>> nearest_sparse(np.array([1.0, 2.0, 1.0]), indices, indptr, panels, labels)
    >>> labels
    array([0, 1, 0], dtype=int32)
    """
    search = sparse_search_kernel(panels.vectors, panels.width, 1)
    scores = np.empty((0, 2), panels.dtype)
    rows = (read_only(data), read_only(indices), read_only(indptr))
    listed = _ALL if listed is None else listed
    search(*rows, listed, read_only(panels.data), labels, _NO_LABELS, scores)


def nearest_two_sparse(
    data: np.ndarray,
    indices: np.ndarray,
    indptr: np.ndarray,
    panels: SparsePanels,
    labels: np.ndarray,
    second: np.ndarray,
    scores: np.ndarray | None = None,
) -> None:
    """Label every row with its nearest and its second nearest centre.

    Parameters
    ----------
    data, indices, indptr, panels, labels
        As in `nearest_sparse`.
    second : ndarray of shape (n,), int32
        OUT. The runner-up, lowest index on ties; -1 where there is none (k = 1).
    scores : ndarray of shape (n, 2), dtype of the panels, optional
        OUT. The scores x.c - |c|^2 / 2 of both, -inf for no runner-up.
    """
    search = sparse_search_kernel(panels.vectors, panels.width, 2)
    out = np.empty((0, 2), panels.dtype) if scores is None else scores
    rows = (read_only(data), read_only(indices), read_only(indptr))
    search(*rows, _ALL, read_only(panels.data), labels, second, out)
