"""Squared distances by direct differences, float64, in an order that is the same on every CPU.

Scores rank centres; distances are what gets reported and summed. They never come from norms and
products, which lose all digits where a row is close to its centre.
"""

from __future__ import annotations

import numpy as np

from daskcluster.kernels.arrays import read_only
from daskcluster.kernels.jit import kernel
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
