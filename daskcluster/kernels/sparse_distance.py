"""Squared distances of CSR rows to dense centres, and the steps of seeding on them.

With S the stored columns of a row, |x - c|^2 is the sum over S of (x - c)^2, plus the part of |c|^2 outside
of S, which is |c|^2 minus its part in S. Both parts are summed in feature order, in float64. Since no term
can lower such a sum, rounded or not, the difference is never negative, and it is exactly zero if the row
stores all non-zeros of the centre; so a row is at distance zero from itself. The error is below 2 (m + 2) u
|c|^2 for m non-zeros of the centre and u = 2^-53. This is not the small relative error of direct
differences, but it avoids the cancellation of |x|^2 - 2 x.c + |c|^2.
"""

from __future__ import annotations

import numpy as np

from daskcluster.kernels.arrays import read_only, weights_or_none
from daskcluster.kernels.jit import kernel
from daskcluster.kernels.sparse_search import SparsePanels
from daskcluster.kernels.sum_grid import SumGrid, rounded, split


@kernel
def row_distance(data, indices, first, stop, centre, norm):  # type: ignore[no-untyped-def]
    """Return the squared distance of a row's entries `first` to `stop` to a centre; norm is |c|^2."""
    near, inside = 0.0, 0.0
    for s in range(first, stop):
        c = np.float64(centre[indices[s]])
        gap = np.float64(data[s]) - c
        near += gap * gap
        inside += c * c
    return near + (norm - inside)


@kernel
def _to_assigned(data, indices, indptr, centres, norms, labels, out):  # type: ignore[no-untyped-def]
    for i in range(out.shape[0]):
        j, first, stop = labels[i], indptr[i] - indptr[0], indptr[i + 1] - indptr[0]
        out[i] = row_distance(data, indices, first, stop, centres[j], norms[j])


@kernel
def _look(data, indices, indptr, origin, norm, shift, sums, spread):  # type: ignore[no-untyped-def]
    for i in range(spread.shape[0]):
        first, stop = indptr[i] - indptr[0], indptr[i + 1] - indptr[0]
        spread[i] = row_distance(data, indices, first, stop, origin, norm)
        for s in range(first, stop):
            t = indices[s]
            sums[t] += rounded(np.float64(data[s]), shift[t])


@kernel
def _lower(data, indices, indptr, centre, norm, mind2):  # type: ignore[no-untyped-def]
    for i in range(mind2.shape[0]):
        first, stop = indptr[i] - indptr[0], indptr[i + 1] - indptr[0]
        mind2[i] = min(mind2[i], row_distance(data, indices, first, stop, centre, norm))


@kernel
def _distances(data, indices, first, stop, flat, panel_at, norms, near, inside):  # type: ignore[no-untyped-def]
    # The sums of `row_distance`, for the centres of a panel in the lanes. OUT: near.
    height = near.shape[0]
    near[:] = 0.0
    inside[:] = 0.0
    for s in range(first, stop):
        x = np.float64(data[s])
        at = panel_at + (np.int64(indices[s]) + 1) * height
        centres = flat[at : at + height]
        for lane in range(height):
            c = np.float64(centres[lane])
            gap = x - c
            near[lane] += gap * gap
            inside[lane] += c * c
    for lane in range(norms.shape[0]):
        near[lane] += norms[lane] - inside[lane]


@kernel
def _every(data, indices, indptr, panels, height, norms, out):  # type: ignore[no-untyped-def]
    flat, stride, k = panels.reshape(panels.size), panels.shape[1], norms.shape[0]
    near, inside = np.empty(height), np.empty(height)
    for i in range(out.shape[0]):
        first, stop = indptr[i] - indptr[0], indptr[i + 1] - indptr[0]
        for p in range(panels.shape[0]):
            low, high = p * height, min((p + 1) * height, k)
            part = norms[low:high]
            _distances(data, indices, first, stop, flat, p * stride, part, near, inside)
            for j in range(low, high):
                out[i, j] = near[j - low]


@kernel
def _sum_masses(distances, mind2, weights, shift, low_shift, high, low):  # type: ignore[no-untyped-def]
    for i in range(mind2.shape[0]):
        w = weights[i] if weights.size else 1.0
        for j in range(high.shape[0]):
            part, rest = split(w * min(mind2[i], distances[i, j]), shift, low_shift)
            high[j] += part
            low[j] += rest


def sqdist_to_assigned_sparse(
    data: np.ndarray,
    indices: np.ndarray,
    indptr: np.ndarray,
    centres: np.ndarray,
    norms: np.ndarray,
    labels: np.ndarray,
    out: np.ndarray,
) -> None:
    """Compute the squared distance of every row to the centre that it is assigned to.

    Parameters
    ----------
    data, indices, indptr : ndarrays
        CSR rows, see `daskcluster.kernels.sparse`.
    centres : ndarray of shape (k, d), C-contiguous, float32 or float64
    norms : ndarray of shape (k,), float64
        From `daskcluster.kernels.sparse_search.squared_norms`.
    labels : ndarray of shape (n,), int32
        In ``[0, k)``: not checked.
    out : ndarray of shape (n,), float64
        OUT.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster.kernels.sparse_search import squared_norms
    >>> centres, out = np.array([[3.0, 4.0], [1.0, 0.0]]), np.empty(2)
    >>> rows = np.array([1.0]), np.array([0], np.int32), np.array([0, 1, 1])
    >>> labels = np.array([1, 0], np.int32)
    >>> sqdist_to_assigned_sparse(*rows, centres, squared_norms(centres), labels, out)
    >>> out
    array([ 0., 25.])
    """
    rows = (read_only(data), read_only(indices), read_only(indptr))
    _to_assigned(*rows, read_only(centres), norms, labels, out)


def sqdist_all_sparse(
    data: np.ndarray,
    indices: np.ndarray,
    indptr: np.ndarray,
    panels: SparsePanels,
    out: np.ndarray,
) -> None:
    """Compute the squared distances of every row to all centres; same bits as `sqdist_to_assigned_sparse`.

    Parameters
    ----------
    data, indices, indptr : ndarrays
        CSR rows.
    panels : SparsePanels
    out : ndarray of shape (n, k), float64
        OUT.
    """
    rows = (read_only(data), read_only(indices), read_only(indptr))
    _every(*rows, read_only(panels.data), panels.height, panels.norms, out)


def measure_sparse(
    data: np.ndarray,
    indices: np.ndarray,
    indptr: np.ndarray,
    origin: np.ndarray,
    norm: float,
    shift: np.ndarray,
    sums: np.ndarray,
    spread: np.ndarray,
) -> None:
    """Compute squared distances to `origin`, and sum all rows on a grid, in one sweep.

    Parameters
    ----------
    data, indices, indptr : ndarrays
        CSR rows.
    origin : ndarray of shape (d,)
    norm : float
        |origin|^2, from `daskcluster.kernels.sparse_search.squared_norms`.
    shift : ndarray of shape (d,), float64
    sums : ndarray of shape (d,), float64
        IN/OUT.
    spread : ndarray of shape (n,), float64
        OUT.
    """
    rows = (read_only(data), read_only(indices), read_only(indptr))
    _look(*rows, read_only(origin), norm, read_only(shift), sums, spread)


def lower_sparse(
    data: np.ndarray,
    indices: np.ndarray,
    indptr: np.ndarray,
    centre: np.ndarray,
    norm: float,
    mind2: np.ndarray,
) -> None:
    """Set squared minimum distances (n,), IN/OUT, to those to a new centre where it is nearer."""
    rows = (read_only(data), read_only(indices), read_only(indptr))
    _lower(*rows, read_only(centre), norm, mind2)


def potentials_sparse(
    data: np.ndarray,
    indices: np.ndarray,
    indptr: np.ndarray,
    panels: SparsePanels,
    mind2: np.ndarray,
    weights: np.ndarray | None,
    grid: SumGrid,
    out_high: np.ndarray,
    out_low: np.ndarray,
) -> None:
    """Add the potential after adding each candidate: the sum of w * min(mind2, d^2).

    Parameters
    ----------
    data, indices, indptr : ndarrays
        CSR rows.
    panels : SparsePanels
        The packed candidates, which should be few.
    mind2, weights, grid, out_high, out_low
        As in `daskcluster.kernels.sampling.potentials`.
    """
    distances = np.empty((len(mind2), panels.k))
    sqdist_all_sparse(data, indices, indptr, panels, distances)
    masses = read_only(distances), read_only(mind2), weights_or_none(weights)
    _sum_masses(*masses, *grid, out_high, out_low)
