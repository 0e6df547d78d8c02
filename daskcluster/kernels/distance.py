"""Distances between rows and centres, summed in the canonical order."""

from __future__ import annotations

import numpy as np

from daskcluster.kernels.jit import kernel, read_only
from daskcluster.kernels.row_ops import squared_distance


@kernel
def _assigned(rows, centres, labels, out):  # type: ignore[no-untyped-def]
    n, d = rows.shape
    x, c = rows.reshape(n * d), centres.reshape(centres.size)
    for i in range(n):
        out[i] = squared_distance(x, i * d, c, labels[i] * d, d)


@kernel
def _every(rows, centres, out):  # type: ignore[no-untyped-def]
    n, d = rows.shape
    x, c = rows.reshape(n * d), centres.reshape(centres.size)
    for i in range(n):
        for j in range(centres.shape[0]):
            out[i, j] = squared_distance(x, i * d, c, j * d, d)


def sqdist_to_assigned(
    X: np.ndarray, centres: np.ndarray, labels: np.ndarray, out: np.ndarray
) -> None:
    """Compute the squared distance of every row to the centre that it is assigned to.

    Parameters
    ----------
    X : ndarray of shape (n, d), C-contiguous, float32 or float64
    centres : ndarray of shape (k, d), C-contiguous, float32 or float64
    labels : ndarray of shape (n,), int32
        In ``[0, k)``: not checked.
    out : ndarray of shape (n,), float64
        OUT.

    Examples
    --------
    >>> import numpy as np
    >>> out = np.empty(2)
    >>> labels = np.array([0, 1], np.int32)
    >>> sqdist_to_assigned(np.eye(2), np.zeros((2, 2)), labels, out)
    >>> out
    array([1., 1.])
    """
    _assigned(read_only(X), read_only(centres), labels, out)


def sqdist_to_one(X: np.ndarray, centre: np.ndarray, out: np.ndarray) -> None:
    """Compute the squared distance of every row to one centre (d,); see `sqdist_to_assigned`."""
    _every(read_only(X), read_only(centre.reshape(1, -1)), out.reshape(-1, 1))


def sqdist_all(X: np.ndarray, centres: np.ndarray, out: np.ndarray) -> None:
    """Compute the squared distances of every row to all centres.

    Parameters
    ----------
    X : ndarray of shape (n, d), C-contiguous, float32 or float64
    centres : ndarray of shape (k, d), C-contiguous, float32 or float64
    out : ndarray of shape (n, k), float64
        OUT.
    """
    _every(read_only(X), read_only(centres), out)


@kernel
def _run(rows, rates, uniforms, length, mind2, chosen):  # type: ignore[no-untyped-def]
    d = rows.shape[1]
    x = rows.reshape(rows.size)
    for chain in range(chosen.shape[0]):
        state, ratio = -1, 0.0
        for i in range(chain * length, (chain + 1) * length):
            nearest = mind2[i]
            for other in range(chain):
                if chosen[other] >= 0 and nearest > 0.0:
                    distance = squared_distance(x, i * d, x, chosen[other] * d, d)
                    nearest = min(nearest, distance)
            mind2[i] = nearest
            proposed = nearest / rates[i]
            if state < 0 or ratio == 0.0 or proposed > uniforms[i] * ratio:
                state, ratio = i, proposed
        chosen[chain] = state if ratio > 0.0 else -1


def run_chains(
    rows: np.ndarray,
    rates: np.ndarray,
    uniforms: np.ndarray,
    length: int,
    mind2: np.ndarray,
    chosen: np.ndarray,
) -> None:
    """Run chains one after the other; the last state of each is a centre for the following ones.

    A chain starts at its first proposal, and moves to a later proposal y if ``pi(y) / q(y) > u * pi(state)
    / q(state)``, or if pi(state) is zero. pi is the squared distance to the nearest centre times the row
    weight, which is a factor of q, too.

    Parameters
    ----------
    rows : ndarray of shape (b * length, d), C-contiguous, float32 or float64
        Proposals, chain after chain.
    rates : ndarray of shape (b * length,), float64
        q / w of the proposals, > 0; a common factor does not matter.
    uniforms : ndarray of shape (b * length,), float64
        Random numbers of the decisions to move; the first of each chain is not used.
    length : int
        Proposals of a chain.
    mind2 : ndarray of shape (b * length,), float64
        IN/OUT. Squared distances to the nearest centre.
    chosen : ndarray of shape (b,), int64
        OUT. The row at which each chain ends; -1 if that is already a centre.

    Examples
    --------
    >>> import numpy as np
    >>> rows, ones, chosen = np.array([[1.0], [9.0], [9.0], [1.0]]), np.ones(4), np.empty(2, int)
    >>> run_chains(rows, ones, 0.5 * ones, 2, rows[:, 0] ** 2, chosen)  # one centre, at zero
    >>> chosen
    array([1, 3])
    """
    _run(read_only(rows), read_only(rates), read_only(uniforms), int(length), mind2, chosen)


_NO_SUMS = np.empty((0, 0))


@kernel
def _terms(sums, low_sums, weights, centres, origin):  # type: ignore[no-untyped-def]
    # Sum by feature first: these sums are contiguous and independent of each other.
    k, d = centres.shape
    inner, outer = np.zeros(d), np.zeros(d)
    moved, about = np.empty(d), np.empty(d)
    for j in range(k):
        weight, total, centre = weights[j], sums[j], centres[j]
        for t in range(d):
            moved[t] = np.float64(centre[t]) - origin[t]
            about[t] = total[t] - weight * origin[t]
        if low_sums.shape[0]:
            low = low_sums[j]
            for t in range(d):
                about[t] = (total[t] + low[t]) - weight * origin[t]
        for t in range(d):
            inner[t] += about[t] * moved[t]
            outer[t] += weight * (moved[t] * moved[t])
    first, second = 0.0, 0.0
    for t in range(d):
        first += inner[t]
        second += outer[t]
    return first, second


def inertia_terms(
    sums: np.ndarray,
    low_sums: np.ndarray | None,
    weights: np.ndarray,
    centres: np.ndarray,
    origin: np.ndarray,
) -> tuple[float, float]:
    """Return sum_j S(j).c'(j) and sum_j v(j) |c'(j)|^2 about an origin: c' = c - o, S the sums of x - o.

    Parameters
    ----------
    sums : ndarray of shape (k, d), float64
        Sums of the rows of each cluster, about zero.
    low_sums : ndarray of shape (k, d), float64, or None
        Low parts of the sums.
    weights : ndarray of shape (k,), float64
    centres : ndarray of shape (k, d), float32 or float64
    origin : ndarray of shape (d,), float64

    Examples
    --------
    >>> import numpy as np
    >>> sums, weights = np.array([[2.0, 4.0]]), np.array([2.0])
    >>> inertia_terms(sums, None, weights, np.array([[2.0, 2.0]]), np.array([1.0, 0.0]))
    (8.0, 10.0)
    """
    low = _NO_SUMS if low_sums is None else low_sums
    arrays = (np.ascontiguousarray(array) for array in (sums, low, weights, centres, origin))
    inner, outer = _terms(*map(read_only, arrays))
    return float(inner), float(outer)


@kernel
def _nearest_present(rows, columns, labels):  # type: ignore[no-untyped-def]
    # `columns` is (d, k): the loop over centres is the one that compilers vectorise, without reordering
    # sums.
    k = columns.shape[1]
    distances = np.empty(k)
    for i in range(rows.shape[0]):
        distances[:] = 0.0
        for j in range(rows.shape[1]):
            x = np.float64(rows[i, j])
            if x == x:
                for c in range(k):
                    gap = x - columns[j, c]
                    distances[c] += gap * gap
        best = 0
        for c in range(1, k):
            if distances[c] < distances[best]:
                best = c
        labels[i] = best


def nearest_present(rows: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Return the nearest centre of each row over the features that it has, int32 (n,).

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        float16 to float64; NaN where a row has no value.
    centres : ndarray of shape (k, d)

    Notes
    -----
    Ties go to the lowest index; a row without values is as near to all centres.

    Examples
    --------
    >>> rows = np.array([[np.nan, 9.0], [1.0, np.nan]])
    >>> nearest_present(rows, np.array([[0.0, 0.0], [5.0, 8.0]]))
    array([1, 0], dtype=int32)
    """
    labels = np.empty(len(rows), np.int32)
    columns = np.ascontiguousarray(np.asarray(centres, np.float64).T)
    wide = rows if rows.dtype.itemsize >= 4 else rows.astype(np.float32)
    _nearest_present(read_only(np.ascontiguousarray(wide)), read_only(columns), labels)
    return labels
