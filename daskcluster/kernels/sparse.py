"""CSR rows: checks, data statistics and exact sums that visit only the stored values.

Everywhere: `data` (m,), `indices` (m,) int32, `indptr` (n + 1,) int64; row i has the values
``indptr[i] - indptr[0]`` to ``indptr[i + 1] - indptr[0]``. Values that are not stored are zero, and do not
change a sum on a grid.
"""

from __future__ import annotations

import numpy as np

from daskcluster.kernels.arrays import read_only, weights_or_none
from daskcluster.kernels.jit import kernel
from daskcluster.kernels.sum_grid import SumGrid, rounded, split


@kernel
def _add(data, indices, indptr, labels, shift, sums, counts):  # type: ignore[no-untyped-def]
    for i in range(labels.shape[0]):
        total = sums[labels[i]]
        counts[labels[i]] += 1
        for s in range(indptr[i] - indptr[0], indptr[i + 1] - indptr[0]):
            t = indices[s]
            total[t] += rounded(np.float64(data[s]), shift[t])


@kernel
def _add_weighted(data, indices, indptr, labels, weights, shift, low_shift, sums, low_sums):  # type: ignore[no-untyped-def]
    for i in range(labels.shape[0]):
        total, low_total = sums[labels[i]], low_sums[labels[i]]
        w = weights[i] if weights.size else 1.0
        for s in range(indptr[i] - indptr[0], indptr[i + 1] - indptr[0]):
            t = indices[s]
            high, low = split(np.float64(data[s]) * w, shift[t], low_shift[t])
            total[t] += high
            low_total[t] += low


@kernel
def _move(data, indices, indptr, which, old, new, shift, sums, counts):  # type: ignore[no-untyped-def]
    for i in range(which.shape[0]):
        a, b, r = old[i], new[i], which[i]
        counts[b] += 1
        if a >= 0:
            counts[a] -= 1
        for s in range(indptr[r] - indptr[0], indptr[r + 1] - indptr[0]):
            t = indices[s]
            value = rounded(np.float64(data[s]), shift[t])
            sums[b, t] += value
            if a >= 0:
                sums[a, t] -= value


@kernel
def _move_weighted(  # type: ignore[no-untyped-def]
    data, indices, indptr, which, old, new, weights, shift, low_shift, sums, low_sums
):
    for i in range(which.shape[0]):
        a, b, r = old[i], new[i], which[i]
        w = weights[i] if weights.size else 1.0
        for s in range(indptr[r] - indptr[0], indptr[r + 1] - indptr[0]):
            t = indices[s]
            high, low = split(np.float64(data[s]) * w, shift[t], low_shift[t])
            sums[b, t] += high
            low_sums[b, t] += low
            if a >= 0:
                sums[a, t] -= high
                low_sums[a, t] -= low


@kernel
def _raise_largest(data, indices, max_abs):  # type: ignore[no-untyped-def]
    for s in range(data.shape[0]):
        value = abs(np.float64(data[s]))
        if value > max_abs[indices[s]]:
            max_abs[indices[s]] = value


@kernel
def _first_bad(data, indptr):  # type: ignore[no-untyped-def]
    for i in range(indptr.shape[0] - 1):
        bad, is_nan = False, False
        for s in range(indptr[i] - indptr[0], indptr[i + 1] - indptr[0]):
            bad = bad or not np.isfinite(data[s])
            is_nan = is_nan or np.isnan(data[s])
        if bad:
            return i, is_nan
    return -1, False


@kernel
def _first_fault(indices, indptr, d):  # type: ignore[no-untyped-def]
    disordered = -1
    for i in range(indptr.shape[0] - 1):
        last = -1
        for s in range(indptr[i] - indptr[0], indptr[i + 1] - indptr[0]):
            t = indices[s]
            if t < 0 or t >= d:
                return i, np.int64(t), disordered
            if t <= last and disordered < 0:
                disordered = i
            last = t
    return -1, -1, disordered


def add_sparse(
    data: np.ndarray,
    indices: np.ndarray,
    indptr: np.ndarray,
    labels: np.ndarray,
    shift: np.ndarray,
    sums: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Add rows to the sums of their clusters, on one grid; for float32 rows without weights.

    Parameters
    ----------
    data, indices, indptr : ndarrays
        CSR rows, float32 or float64.
    labels : ndarray of shape (n,), int32
        In ``[0, k)``: not checked.
    shift : ndarray of shape (d,), float64
        M of the grid of each feature.
    sums : ndarray of shape (k, d), float64
        IN/OUT. Bit-identical to `daskcluster.kernels.accumulate.accumulate` on the dense rows.
    counts : ndarray of shape (k,), int64
        IN/OUT.

    Examples
    --------
    >>> import numpy as np
    >>> sums, counts, shift = np.zeros((2, 2)), np.zeros(2, np.int64), np.full(2, 1.5 * 2.0**20)
    >>> rows = np.array([1.0, 2.0, 4.0]), np.array([0, 0, 1], np.int32), np.array([0, 1, 1, 3])
    >>> add_sparse(*rows, np.array([0, 0, 1], np.int32), shift, sums, counts)
    >>> sums.tolist(), counts
    ([[1.0, 0.0], [2.0, 4.0]], array([2, 1]))
    """
    _add(read_only(data), read_only(indices), read_only(indptr), labels, shift, sums, counts)


def add_sparse_weighted(
    data: np.ndarray,
    indices: np.ndarray,
    indptr: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray | None,
    grid: SumGrid,
    sums: np.ndarray,
    residuals: np.ndarray,
) -> None:
    """Add (weighted) rows to the sums of their clusters, on two grids.

    Parameters
    ----------
    data, indices, indptr, labels
        As in `add_sparse`.
    weights : ndarray of shape (n,), float64, or None
    grid : SumGrid of ndarrays of shape (d,), float64
        Of w * x.
    sums, residuals : ndarray of shape (k, d), float64
        IN/OUT. High and low part of the sums. The weights themselves are not summed here.
    """
    rows = (read_only(data), read_only(indices), read_only(indptr))
    _add_weighted(*rows, labels, weights_or_none(weights), *grid, sums, residuals)


def move_sparse(
    data: np.ndarray,
    indices: np.ndarray,
    indptr: np.ndarray,
    which: np.ndarray,
    old: np.ndarray,
    new: np.ndarray,
    shift: np.ndarray,
    sums: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Move some rows from the sums of one cluster to those of another, on one grid.

    Parameters
    ----------
    data, indices, indptr, shift, sums, counts
        As in `add_sparse`.
    which, old, new
        As in `daskcluster.kernels.accumulate.move`.

    Examples
    --------
    >>> import numpy as np
    >>> sums, counts, shift = np.array([[4.0], [0.0]]), np.array([2, 0]), np.array([1.5 * 2.0**20])
    >>> rows = np.array([1.0, 3.0]), np.array([0, 0], np.int32), np.array([0, 1, 2])
    >>> old, new = np.array([0], np.int32), np.array([1], np.int32)
    >>> move_sparse(*rows, np.array([1]), old, new, shift, sums, counts)
    >>> sums.ravel(), counts
    (array([1., 3.]), array([1, 1]))
    """
    rows = (read_only(data), read_only(indices), read_only(indptr))
    _move(*rows, which, old, new, shift, sums, counts)


def move_sparse_weighted(
    data: np.ndarray,
    indices: np.ndarray,
    indptr: np.ndarray,
    which: np.ndarray,
    old: np.ndarray,
    new: np.ndarray,
    weights: np.ndarray | None,
    grid: SumGrid,
    sums: np.ndarray,
    residuals: np.ndarray,
) -> None:
    """Move some (weighted) rows, on two grids; see `move_sparse` and `add_sparse_weighted`.

    `weights` are those of the moved rows, shape (m,); they are not summed here.
    """
    rows = (read_only(data), read_only(indices), read_only(indptr))
    _move_weighted(*rows, which, old, new, weights_or_none(weights), *grid, sums, residuals)


def first_bad_sparse(data: np.ndarray, indptr: np.ndarray) -> tuple[int, bool]:
    """Return the first row with NaN or infinity (-1 if there is none), and whether it has a NaN.

    Examples
    --------
    >>> import numpy as np
    >>> first_bad_sparse(np.array([1.0, np.inf]), np.array([0, 1, 1, 2]))
    (2, False)
    """
    # One reduction suffices for data without bad values, the usual case.
    if data.size == 0 or np.isfinite(np.abs(data).max()):
        return -1, False
    row, is_nan = _first_bad(read_only(data), read_only(indptr))
    return int(row), bool(is_nan)


def raise_max_abs(data: np.ndarray, indices: np.ndarray, max_abs: np.ndarray) -> None:
    """Update `max_abs` (d,), float64, with the largest |x| of each feature; values must be finite."""
    _raise_largest(read_only(data), read_only(indices), max_abs)


def first_fault(indices: np.ndarray, indptr: np.ndarray, d: int) -> tuple[int, int, int]:
    """Find columns that are out of range or out of order.

    Parameters
    ----------
    indices : ndarray of shape (m,), any integers
    indptr : ndarray of shape (n + 1,), int64
    d : int

    Returns
    -------
    row, column : int
        The first row with a column outside 0 to d - 1, and that column; -1 if there is none.
    disordered : int
        The first row (before that one) whose columns do not ascend strictly; -1 if there is none.

    Examples
    --------
    >>> import numpy as np
    >>> first_fault(np.array([0, 2, 1, 1]), np.array([0, 2, 4]), 3)
    (-1, -1, 1)
    >>> first_fault(np.array([0, 3]), np.array([0, 2]), 3)
    (0, 3, -1)
    """
    row, column, disordered = _first_fault(read_only(indices), read_only(indptr), d)
    return int(row), int(column), int(disordered)
