"""Passes that tests run on any engine: integer sums, so that truth is plain arithmetic."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.reduction import Reduction, StatefulReduction


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
