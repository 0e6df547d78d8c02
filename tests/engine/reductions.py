"""Passes that tests run on any engine: integer sums, so that truth is plain arithmetic."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.statistics import Reduction, StatefulReduction


def combine(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    first += second
    return first


def zero(prepared: Any) -> np.ndarray:
    return np.zeros(3, np.int64)


def add_chunk(chunk: Chunk, prepared: Any, total: np.ndarray) -> None:
    """Rows, their sum times a factor, and their weights."""
    weights = np.ones(chunk.n_rows) if chunk.weights is None else chunk.weights
    total += (
        chunk.n_rows,
        int(chunk.rows.astype(np.int64).sum()) * prepared["factor"],
        int(weights.sum()),
    )


SUM = Reduction(name="sum", zero=zero, chunk=add_chunk, combine=combine)


def zero_wide(prepared: Any) -> np.ndarray:
    return np.zeros(prepared["width"], np.int64)


def add_wide(chunk: Chunk, prepared: Any, total: np.ndarray) -> None:
    total += int(chunk.rows.astype(np.int64).sum())


WIDE = Reduction(name="wide", zero=zero_wide, chunk=add_wide, combine=combine)


def fresh(n_rows: int, prepared: Any) -> np.ndarray:
    return np.zeros(n_rows, np.int64)


def rebuild(chunk: Chunk, prepared: Any, state: np.ndarray) -> None:
    state[:] = chunk.rows.astype(np.int64).sum(axis=1) * prepared["calls"]


def add_state(chunk: Chunk, prepared: Any, total: np.ndarray, state: np.ndarray) -> None:
    """Add what the state says, then bring it along: after call t it is t times the rows' sums."""
    rebuilt = prepared.get("rebuilt")
    if rebuilt is not None:
        total[2] += int(state.sum() == 0)
    state += chunk.rows.astype(np.int64).sum(axis=1)
    total += (chunk.n_rows, int(state.sum()), 0)


STATE = StatefulReduction(
    name="state",
    row_bytes=8,
    zero=zero,
    fresh=fresh,
    rebuild=rebuild,
    chunk=add_state,
    combine=combine,
)


def rebuild_noted(chunk: Chunk, prepared: Any, state: np.ndarray) -> None:
    """Leave a file for every rebuild, so that a test can count them."""
    rebuild(chunk, prepared, state)
    Path(prepared["folder"], f"{prepared['calls']}-{chunk.start}-{time.monotonic_ns()}").touch()


NOTED = StatefulReduction(
    name="noted",
    row_bytes=8,
    zero=zero,
    fresh=fresh,
    rebuild=rebuild_noted,
    chunk=add_state,
    combine=combine,
)


def add_slowly(chunk: Chunk, prepared: Any, total: np.ndarray) -> None:
    """Say who works, and take a while."""
    Path(prepared["folder"], f"{os.getpid()}").touch()
    time.sleep(prepared["seconds"])
    add_chunk(chunk, prepared, total)


SLOW = Reduction(name="slow", zero=zero, chunk=add_slowly, combine=combine)


def die_at(chunk: Chunk, prepared: Any, total: np.ndarray) -> None:
    if chunk.start <= prepared["row"] < chunk.stop:
        os.kill(os.getpid(), signal.SIGKILL)
    add_chunk(chunk, prepared, total)


DEADLY = Reduction(name="deadly", zero=zero, chunk=die_at, combine=combine)


def fail_at(chunk: Chunk, prepared: Any, total: np.ndarray) -> None:
    if chunk.start <= prepared["row"] < chunk.stop:
        raise prepared["error"]
    add_chunk(chunk, prepared, total)


FAILING = Reduction(name="failing", zero=zero, chunk=fail_at, combine=combine)


def fail_once(chunk: Chunk, prepared: Any, total: np.ndarray) -> None:
    """Fail with an error of a store the first time a row is met."""
    mark = Path(prepared["folder"], "failed")
    if chunk.start <= prepared["row"] < chunk.stop and not mark.exists():
        mark.touch()
        raise OSError("connection reset by the store")
    add_chunk(chunk, prepared, total)


HICCUP = Reduction(name="hiccup", zero=zero, chunk=fail_once, combine=combine)


def row_sums(chunk: Chunk, prepared: Any) -> np.ndarray:
    return (chunk.rows.astype(np.int64).sum(axis=1) * prepared).astype(np.int32)


def state_at(chunk: Chunk, prepared: Any, state: np.ndarray) -> tuple[int, int, int]:
    return chunk.start, chunk.n_rows, int(state.sum())


# -- a pass that leaves rows unread ------------------------------------------------------------------


class Cache:
    """Per-row state that is an object: what was last added for a row, and the call that counted it."""

    def __init__(self, values: np.ndarray, counted: np.ndarray, marks: np.ndarray) -> None:
        self.values, self.counted, self.marks = values, counted, marks

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.counted.nbytes + self.marks.nbytes

    def rows(self, first: int, last: int) -> Cache:
        return Cache(*(part[first:last] for part in (self.values, self.counted, self.marks)))


def fresh_cache(n_rows: int, prepared: Any) -> Cache:
    return Cache(np.zeros(n_rows, np.int64), np.full(n_rows, -1), np.full(n_rows, -1))


def row_values(chunk: Chunk, calls: int, prepared: Any) -> np.ndarray:
    """Return weight times sum of every row, once and once more for every call that wanted it."""
    index = np.arange(chunk.start, chunk.stop)
    factor = np.ones(chunk.n_rows, np.int64)
    for spans in prepared["wanted"][1 : calls + 1]:
        for start, stop in spans:
            factor += (index >= start) & (index < stop)
    weights = np.ones(chunk.n_rows) if chunk.weights is None else chunk.weights
    return factor * chunk.rows.astype(np.int64).sum(axis=1) * weights.astype(np.int64)


def rebuild_cache(chunk: Chunk, prepared: Any, state: Cache) -> None:
    state.values[:] = row_values(chunk, len(prepared["wanted"]) - 2, prepared)
    if "folder" in prepared:
        Path(prepared["folder"], f"{chunk.start}-{time.monotonic_ns()}").touch()


def screen_cache(prepared: Any, total: np.ndarray, state: Cache) -> np.ndarray:
    """Count the unit as it was; the rows that change are wanted, and add their difference."""
    calls = len(prepared["wanted"]) - 1
    total += (len(state.values), int(state.values.sum()), 0)
    state.counted[:] = calls
    mask = np.zeros(len(state.values), bool)
    for start, stop in prepared["wanted"][-1]:
        mask |= (state.marks >= start) & (state.marks < stop)
    return mask


def add_cache(chunk: Chunk, prepared: Any, total: np.ndarray, state: Cache) -> None:
    calls = len(prepared["wanted"]) - 1
    is_new = state.counted != calls
    values = row_values(chunk, calls, prepared)
    total += (
        int(is_new.sum()),
        int((values - np.where(is_new, 0, state.values)).sum()),
        chunk.n_rows,
    )
    state.values[:], state.counted[:] = values, calls
    state.marks[:] = np.arange(chunk.start, chunk.stop)
    fatal = prepared.get("fatal")
    if fatal is not None and chunk.start <= fatal < chunk.stop:
        raise ValueError("fatal row")


CACHED = StatefulReduction(
    name="cached",
    row_bytes=24,
    zero=zero,
    fresh=fresh_cache,
    rebuild=rebuild_cache,
    chunk=add_cache,
    combine=combine,
    filter_rows=screen_cache,
)
"""Params: ``wanted``, for every call so far and this one, the ranges of rows that change."""
