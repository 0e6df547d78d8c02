"""Single-row steps: the inner loop of variance reduced and of stochastic k-means.

Rows are scored ahead, a block of the tile at a time, where they lie; see `drifting` for
why the outcome is nevertheless that of one row at a time.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from daskcluster.kernels.jit import kernel, read_only, weights_or_none
from daskcluster.kernels.panels import PORTABLE, Panels, Tile
from daskcluster.kernels.row_block import aligned, lanes_of, pack_listed_rows
from daskcluster.kernels.search import Shape, list_lines, score_listed, tile_shape
from daskcluster.kernels.sparse import SparsePanels, score_entries
from daskcluster.kernels.tile import nearest_two, pack
from daskcluster.methods.minibatch.kernels.drifting import (
    LOST,
    Drifting,
    pack_moved,
    take_proven,
    take_step,
)
from daskcluster.methods.minibatch.kernels.drifting import proven as is_proven

_NO_TABLE = np.empty(0, np.int32)
_PREFETCH_DISTANCE = 64
"""Rows that the portable tile scores ahead."""


_HEIGHTS = {"avx512": (14, 8), "avx2": (6,), "neon": (13, 8)}
"""Fewer than the search has: each compiles its own loop, and steps spend time elsewhere, too."""


def pack_for_steps(centres: np.ndarray) -> Panels:
    """Pack centres for `run_steps`, in room of their own."""
    panels = pack(centres)
    if panels.tile == PORTABLE:
        return panels
    heights = _HEIGHTS[panels.tile.name]
    height = min(heights, key=lambda h: -(-panels.k // h) * h)
    return pack(centres, panels.offset, replace(panels.tile, height=height))


def _roundoff(dtype: np.dtype[Any]) -> float:
    return float(np.finfo(dtype).eps) / 2


@cache
def _steps_kernel(tile: Tile, lanes: int) -> Any:
    return _build_steps(tile_shape(tile, lanes, 2))


def _build_steps(shape: Shape) -> Any:
    vectors, width, lanes = shape[:3]
    block, line = vectors * width, 4 * lanes

    def run_steps(rows, listed, table, weights, rate, roundoff, state):  # type: ignore[no-untyped-def]
        n, d = rows.shape
        b, offset = listed.shape[0], state.offset
        flat, panels = rows.reshape(n * d), state.panels
        panel = panels.reshape(panels.size)
        packed, best = aligned(d * block, offset), aligned(2 * block, offset)
        index, taken = aligned(2 * block, table), np.empty(block, np.int64)
        squares = np.empty(block)
        places = np.empty(panels.shape[0] * d, np.int64)
        fetched, start = 0, 0
        while start < b and state.sgd_state[LOST] == 0.0:
            for r in range(block):
                taken[r] = listed[min(start + r, b - 1)]
            pack_listed_rows(flat, taken, d, offset, packed, shape)
            fetched = list_lines(
                listed, max(start + block, fetched), start + 3 * block, d, line, places
            )
            score_listed(packed, panel, (0, panels.shape[0]), d, best, index, flat, places, shape)
            squares[:] = 0.0
            for t in range(d):
                for r in range(block):
                    value = np.float64(packed[t * block + r])
                    squares[r] += value * value
            count = min(block, b - start)
            scored, given = (best, index, squares), (table, weights)
            done = take_proven(rows, taken, start, count, scored, given, rate, roundoff, state)
            if done < count:
                pack_moved(state, done == 0)
            start += done

    return kernel(run_steps)


def run_steps(
    rows: np.ndarray,
    listed: np.ndarray,
    table: np.ndarray | None,
    weights: np.ndarray | None,
    rate: float,
    panels: Panels,
    state: Drifting,
) -> None:
    """Let listed rows move centres, one after the other.

    Parameters
    ----------
    rows : ndarray of shape (n, d), C-contiguous, dtype of the panels
    listed : ndarray of shape (b,), int64
        In ``[0, n)``: not checked.
    table : ndarray of shape (b,), int32, or None
        The centre that each listed row had when the epoch began; None where the state has ``seen``.
    weights : ndarray of shape (b,), float64, or None
        Weights of the listed rows; they count with ``seen`` alone.
    rate : float
        Learning rate; unused with ``seen``.
    panels : Panels
        Whose ``data`` the state holds.
    state : Drifting
        IN/OUT.
    """
    table = _NO_TABLE if table is None else table
    weights, roundoff = weights_or_none(weights), _roundoff(panels.dtype)
    if panels.tile == PORTABLE:
        _steps_plainly(rows, listed, table, weights, rate, roundoff, panels, state)
        return
    kernel = _steps_kernel(panels.tile, lanes_of(panels.dtype))
    kernel(read_only(rows), listed, table, weights, rate, roundoff, state)


def _steps_plainly(
    rows: np.ndarray,
    listed: np.ndarray,
    table: np.ndarray,
    weights: np.ndarray,
    rate: float,
    roundoff: float,
    panels: Panels,
    state: Drifting,
) -> None:
    """Do as the compiled walk on a CPU without a register tile."""
    start, everyone = 0, np.arange(_PREFETCH_DISTANCE)
    while start < len(listed) and state.sgd_state[LOST] == 0.0:
        prefetched = np.ascontiguousarray(rows[listed[start : start + _PREFETCH_DISTANCE]])
        count = len(prefetched)
        labels, second = np.empty(count, np.int32), np.empty(count, np.int32)
        scores = np.empty((count, 2), rows.dtype)
        nearest_two(prefetched, panels, labels, second, scores)
        squares = ((prefetched - state.offset).astype(np.float64) ** 2).sum(axis=1)
        scored = np.ascontiguousarray(scores.T).ravel(), labels, squares
        given = table, weights
        done = take_proven(
            read_only(prefetched),
            everyone,
            start,
            count,
            scored,
            given,
            rate,
            roundoff,
            state,
        )
        if done < count:
            pack_moved(state, done == 0)
        start += done


@cache
def _sparse_kernel(vectors: int, width: int) -> Any:
    return _build_sparse(vectors, width)


def _build_sparse(vectors: int, width: int) -> Any:
    height = vectors * width

    def run_steps(data, indices, indptr, listed, table, weights, rate, roundoff, state):  # type: ignore[no-untyped-def]
        origin, flat = indptr[0], state.panels.reshape(state.panels.size)
        stride = state.panels.shape[1]
        best, index = np.empty(2, state.panels.dtype), np.empty(2, np.int32)
        row = np.zeros(state.offset.shape[0], data.dtype)
        s, again = 0, False
        while s < listed.shape[0] and state.sgd_state[LOST] == 0.0:
            first, stop = indptr[listed[s]] - origin, indptr[listed[s] + 1] - origin
            best[:] = -np.inf
            index[:] = 0
            for p in range(state.panels.shape[0]):
                score_entries(
                    data, indices, first, stop, flat, p * stride, np.int32(p * height), best, index, 0,
                    vectors, width, 2, data.shape[0],
                )  # fmt: skip
            square = 0.0
            for e in range(first, stop):
                square += np.float64(data[e]) * np.float64(data[e])
            winner = max(index[0], 0)
            if not is_proven(square, best[0], best[1], winner, roundoff, state):
                pack_moved(state, again)
                again = True
                continue
            before = table[s] if table.shape[0] else -1
            weight = weights[s] if weights.shape[0] else 1.0
            for e in range(first, stop):
                row[indices[e]] = data[e]
            take_step(row, winner, before, weight, rate, state)
            for e in range(first, stop):
                row[indices[e]] = 0.0
            s, again = s + 1, False

    return kernel(run_steps)


def run_sparse_steps(
    data: np.ndarray,
    indices: np.ndarray,
    indptr: np.ndarray,
    listed: np.ndarray,
    table: np.ndarray | None,
    weights: np.ndarray | None,
    rate: float,
    panels: SparsePanels,
    state: Drifting,
) -> None:
    """Do as `run_steps` for CSR rows, see `daskcluster.kernels.sparse`; the state's offset is zero."""
    table = _NO_TABLE if table is None else table
    rows = (read_only(data), read_only(indices), read_only(indptr))
    kernel = _sparse_kernel(panels.vectors, panels.width)
    kernel(*rows, listed, table, weights_or_none(weights), rate, _roundoff(panels.dtype), state)
