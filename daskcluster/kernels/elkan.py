"""One lower bound for every centre (Elkan, "Using the triangle inequality to accelerate k-means", 2003).

For few centres in many dimensions: a bound costs 4 bytes, a distance reads a whole row. What differs:
rows whose bounds mostly fail go through the tiles instead, all centres at once, and two centres
that are within the score's rounding error of each other are left to the tile's decision.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from daskcluster.kernels.arrays import read_only
from daskcluster.kernels.bounds import HALF, OWN, lowered, raised, reach
from daskcluster.kernels.jit import STAMP, kernel, tile_name
from daskcluster.kernels.panels import fill_panels, vector_width
from daskcluster.kernels.register_tile import difference_tile
from daskcluster.kernels.row_block import aligned, first_row, lanes_of, pack_block, pack_few
from daskcluster.kernels.row_ops import fetch_row, squared_distance

_SAFE = 1.0 + 2.0**-21
_HEIGHT, _VECTORS = 4, 2


def _build_revise(stamp: int) -> Any:  # noqa: C901  (one loop over rows: their bounds stay at hand)
    def revise(  # type: ignore[no-untyped-def]
        rows, at, which, centres, halves, labels, upper, lower, drift, margin, left
    ):
        # IN: a label of -1 is none. IN/OUT: labels, upper, lower. OUT: left: which rows the tiles have to
        # decide. Returns how many are left, and how many distances were computed.
        _ = stamp
        k, d = centres.shape
        x, c = rows.reshape(rows.size), centres.reshape(centres.size)
        relaxed = np.empty(k, np.float32)
        for j in range(k):
            relaxed[j] = raised(drift[OWN, j])
        last, n_left, computed = which.shape[0] - 1, 0, 0
        for s in range(last + 1):
            i, r = which[s], at[s]
            fetch_row(x, at[min(s + 2, last)] * d, d)
            left[n_left] = s
            a, bounds = labels[i], lower[i]
            if a < 0 or upper[i] == np.inf:
                n_left += 1
                continue
            u = math.sqrt(squared_distance(x, r * d, c, a * d, d))
            computed += 1
            need = math.sqrt(reach(u, margin)) * _SAFE
            doubt, failing = False, 0
            near = raised(need)
            if not need < drift[HALF, a]:
                for j in range(k):
                    failing += not (bounds[j] > (near + relaxed[j]) * np.float32(_SAFE))
            if 4 * failing > k:
                failing, doubt = 0, True
            for j in range(k if failing else 0):
                if bounds[j] > (near + relaxed[j]) * np.float32(_SAFE):
                    continue
                if halves[a, j] > need:
                    # As far as the two centres are apart, less the way to the nearer one.
                    low = lowered(2.0 * halves[a, j] - u * _SAFE + drift[OWN, j])
                    bounds[j] = max(bounds[j], low)
                    continue
                v = math.sqrt(squared_distance(x, r * d, c, j * d, d))
                computed += 1
                bounds[j] = lowered(v + drift[OWN, j])
                if v * v > reach(u, margin) * _SAFE:
                    continue
                if not u * u > reach(v, margin) * _SAFE:
                    doubt = True
                    continue
                bounds[a] = lowered(u + drift[OWN, a])
                a, u = j, v
                bounds[a] = np.inf
                need = math.sqrt(reach(u, margin)) * _SAFE
                near = raised(need)
            labels[i] = a
            upper[i] = raised(u - drift[OWN, a])
            n_left += doubt
        return n_left, computed

    return kernel(revise)


revise = _build_revise(STAMP)


def _build_renew(width: int, lanes: int, stamp: int) -> Any:
    block = _VECTORS * width

    def renew(rows, which, new, panels, zero, safe, drift, upper, lower):  # type: ignore[no-untyped-def]
        # IN: new (m,), the labels. OUT: bounds of these rows, from direct differences to all centres.
        _ = stamp
        n, d = rows.shape
        k = lower.shape[1]
        x, panel = rows.reshape(rows.size), panels.reshape(panels.size)
        packed = aligned(d * block, zero)
        rough = aligned(_HEIGHT * block, zero)
        for start in range(0, n, block):
            first = first_row(start, block, n)
            if d < lanes or n < block:
                pack_few(rows, first, zero, packed, block)
            else:
                pack_block(x, first, d, zero, packed, 0, _VECTORS, width)
            for p in range(panels.shape[0]):
                difference_tile(
                    packed, panel, p * (d + 1) * _HEIGHT, d, rough, 0,
                    _HEIGHT, _VECTORS, width, x, 0, 0,
                )  # fmt: skip
                for h in range(min(_HEIGHT, k - p * _HEIGHT)):
                    j = p * _HEIGHT + h
                    for r in range(start - first, min(block, n)):
                        s = first + r
                        v = math.sqrt(np.float64(rough[h * block + r]))
                        # An overflow proves nothing.
                        low = v * (1.0 - safe) if v < np.inf else 0.0
                        lower[which[s], j] = lowered(low + drift[OWN, j])
                        if j == new[s]:
                            upper[which[s]] = raised(v * (1.0 + safe) - drift[OWN, j])
                            lower[which[s], j] = np.inf

    return kernel(renew)


@cache
def _renew_kernel(dtype: np.dtype[Any]) -> Any:
    return _build_renew(vector_width(dtype, tile_name()), lanes_of(dtype), STAMP)


def renew(
    X: np.ndarray,
    which: np.ndarray,
    new: np.ndarray,
    centres: np.ndarray,
    drift: np.ndarray,
    upper: np.ndarray,
    lower: np.ndarray,
) -> None:
    """Set the bounds of rows from their distances to all centres.

    Parameters
    ----------
    X : ndarray of shape (m, d), C-contiguous, float32 or float64
    which : ndarray of shape (m,), int64
        Where the rows stand in the state.
    new : ndarray of shape (m,), int32
        Their labels.
    centres : ndarray of shape (k, d), dtype of `X`
    drift : ndarray of shape (3, k), float64
    upper, lower : ndarray of shape (n,) and (n, k), float32
        OUT, at `which`.
    """
    k, d = centres.shape
    zero = np.zeros(d, centres.dtype)
    data = np.empty((-(-k // _HEIGHT), (d + 1) * _HEIGHT), centres.dtype)
    fill_panels(np.ascontiguousarray(centres), zero, data, _HEIGHT)
    safe = (d + 16) * float(np.finfo(centres.dtype).eps)
    _renew_kernel(centres.dtype)(read_only(X), which, new, data, zero, safe, drift, upper, lower)
