"""The compiled loop that finds the partitions in which a copy of a row pays."""

from __future__ import annotations

import numpy as np

from daskcluster.kernels.jit import kernel, read_only

_PENALTY = 1.0
"""Weight of the part of the residual that is parallel to that of the first partition (lambda)."""
_MOST = 1.5
"""A copy pays up to this loss, in units of the squared distance to the own centre."""


@kernel
def _spill(rows, labels, centres, neighbours, penalty, most, out):  # type: ignore[no-untyped-def]
    d, m = rows.shape[1], out.shape[1]
    residual = np.empty(d)
    losses = np.empty(m)
    for i in range(rows.shape[0]):
        own, square = labels[i], 0.0
        for t in range(d):
            residual[t] = np.float64(rows[i, t]) - np.float64(centres[own, t])
            square += residual[t] * residual[t]
        losses[:] = most * square
        out[i, :] = -1
        for at in range(1, neighbours.shape[1]):
            other = neighbours[own, at]
            loss, inner = 0.0, 0.0
            for t in range(d):
                gap = np.float64(rows[i, t]) - np.float64(centres[other, t])
                loss += gap * gap
                inner += gap * residual[t]
            if square > 0.0:
                loss += penalty * (inner * inner) / square
            place = m
            while place > 0 and loss < losses[place - 1]:
                place -= 1
            for later in range(m - 1, place, -1):
                losses[later], out[i, later] = losses[later - 1], out[i, later - 1]
            if place < m:
                losses[place], out[i, place] = loss, other


def spill_rows(
    rows: np.ndarray,
    labels: np.ndarray,
    centres: np.ndarray,
    neighbours: np.ndarray,
    out: np.ndarray,
) -> None:
    """Find the partitions of the copies of rows by the loss of SOAR.

    For the residual r of a row from its own centre, the loss of another centre with residual r' is
    |r'|^2 + lambda (r.r' / |r|)^2 with lambda = 1: a copy helps queries for which the own partition is
    ranked badly, which are those whose error lies along r. A row gets copies whose loss is at most one and
    a half times |r|^2.

    Parameters
    ----------
    rows : ndarray of shape (n, d), C-contiguous, float32 or float64
    labels : ndarray of shape (n,), int32
    centres : ndarray of shape (k, d), C-contiguous, float32 or float64
    neighbours : ndarray of shape (k, m), int32
        The first is the own cell.
    out : ndarray of shape (n, spill), int32
        OUT. In the order of losses; -1 where no copy pays.

    Notes
    -----
    Sun et al., "SOAR: Improved Indexing for Approximate Nearest Neighbor Search" (2024), arXiv 2404.00774,
    Theorem 3.1.
    """
    _spill(
        read_only(rows), read_only(labels), read_only(centres), read_only(neighbours),
        _PENALTY, _MOST, out,
    )  # fmt: skip
