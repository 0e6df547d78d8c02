"""The mini-batch step of `daskcluster.kernels.minibatch` for CSR rows, which stay where they lie too."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from daskcluster.kernels.arrays import read_only, weights_or_none
from daskcluster.kernels.jit import STAMP, kernel
from daskcluster.kernels.minibatch import blend
from daskcluster.kernels.sparse_chain import score_entries
from daskcluster.kernels.sparse_distance import row_distance
from daskcluster.kernels.sparse_search import SparsePanels

_ROWS = 256
"""Rows that meet one panel after the other, while the features they share are in the cache."""


@cache
def _listed_search(vectors: int, width: int) -> Any:
    return _build_search(vectors, width, STAMP)


def _build_search(vectors: int, width: int, stamp: int) -> Any:
    height = vectors * width

    def search(data, indices, indptr, listed, panels, labels):  # type: ignore[no-untyped-def]
        # OUT: labels (b,).
        _ = stamp
        b, origin = listed.shape[0], indptr[0]
        flat, stride = panels.reshape(panels.size), panels.shape[1]
        best, index = np.empty(_ROWS, panels.dtype), np.empty(_ROWS, np.int32)
        for start in range(0, b, _ROWS):
            stop = min(start + _ROWS, b)
            best[:] = -np.inf
            index[:] = 0  # NaN rows have no winner: centre 0
            for p in range(panels.shape[0]):
                for r in range(start, stop):
                    i = listed[r]
                    score_entries(
                        data, indices, indptr[i] - origin, indptr[i + 1] - origin,
                        flat, p * stride, np.int32(p * height), best, index, r - start,
                        vectors, width, 1, data.shape[0],
                    )  # fmt: skip
            labels[start:stop] = index[: stop - start]

    return kernel(search)


def _build_move(stamp: int) -> Any:
    def move(  # type: ignore[no-untyped-def]
        data, indices, indptr, listed, weights, order, starts, batch_weight, rule, unit,
        first, last, norms, exact, centres, seen, costs, shifts,
    ):  # fmt: skip
        # As `move` of dense rows; norms (k,) are |c|^2 before the move.
        _ = stamp
        d, origin = centres.shape[1], indptr[0]
        total, before = np.empty(d), np.empty(d, centres.dtype)
        for j in range(first, last):
            costs[j], shifts[j] = 0.0, 0.0
            if starts[j] == starts[j + 1]:
                continue
            total[:] = 0.0
            weight, cost = 0.0, 0.0
            for s in range(starts[j], starts[j + 1]):
                i = listed[order[s]]
                begin, end = indptr[i] - origin, indptr[i + 1] - origin
                w = weights[i] if weights.size else 1.0
                for e in range(begin, end):
                    total[indices[e]] += w * data[e]
                weight += w
                cost += w * row_distance(data, indices, begin, end, centres[j], norms[j])
            costs[j] = cost
            if weight > 0.0:
                shifts[j] = blend(
                    total, weight, batch_weight, rule, unit,
                    exact[j], centres[j], seen[j : j + 1], before,
                )  # fmt: skip

    return kernel(move)


_move = _build_move(STAMP)


def nearest_listed_sparse(
    data: np.ndarray,
    indices: np.ndarray,
    indptr: np.ndarray,
    listed: np.ndarray,
    panels: SparsePanels,
    labels: np.ndarray,
) -> None:
    """Label listed rows with their nearest centres, where they lie.

    Parameters
    ----------
    data, indices, indptr : ndarrays
        CSR rows, see `daskcluster.kernels.sparse`.
    listed : ndarray of shape (b,), int64
        In ``[0, n)``: not checked.
    panels : SparsePanels
    labels : ndarray of shape (b,), int32
        OUT. What `daskcluster.kernels.sparse_search.nearest_sparse` gives for those rows.
    """
    search = _listed_search(panels.vectors, panels.width)
    rows = (read_only(data), read_only(indices), read_only(indptr))
    search(*rows, listed, read_only(panels.data), labels)


def move_centres_sparse(
    data: np.ndarray,
    indices: np.ndarray,
    indptr: np.ndarray,
    listed: np.ndarray,
    weights: np.ndarray | None,
    grouped: tuple[np.ndarray, np.ndarray],
    batch_weight: float,
    rule: int,
    clusters: tuple[int, int],
    norms: np.ndarray,
    state: tuple[np.ndarray, np.ndarray, np.ndarray],
    costs: np.ndarray,
    shifts: np.ndarray,
    *,
    unit: bool = False,
) -> None:
    """Do as `daskcluster.kernels.minibatch.move_centres` for CSR rows.

    Parameters
    ----------
    data, indices, indptr, listed
        As in `nearest_listed_sparse`.
    norms : ndarray of shape (k,), float64
        |c|^2 of the centres before they move.
    weights, grouped, batch_weight, rule, clusters, state, costs, shifts, unit
        As in `daskcluster.kernels.minibatch.move_centres`.
    """
    rows = (read_only(data), read_only(indices), read_only(indptr))
    _move(
        *rows, listed, weights_or_none(weights), *grouped, batch_weight, rule, unit,
        *clusters, norms, *state, costs, shifts,
    )  # fmt: skip
