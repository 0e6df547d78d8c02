"""Rows of a stream on their way into leaves: where they stand on its clock, and what they weigh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.survey import refuse_rows
from daskcluster.errors import InvalidDataError
from daskcluster.methods.streaming.tree.forgetting import Forgetting
from daskcluster.sparse_rows import Rows, SparseRows, join_rows


@dataclass(frozen=True)
class StreamRows:
    """Consecutive rows of a stream.

    Attributes
    ----------
    rows : Rows, shape (n, d)
    weights : ndarray of shape (n,), float64, or None
        As they were given.
    ticks : ndarray of shape (n,), float64, or None
        Where each row stands on the stream's clock; None where nothing is forgotten.
    """

    rows: Rows
    weights: np.ndarray | None = None
    ticks: np.ndarray | None = None

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    def slice(self, first: int, last: int) -> StreamRows:
        """Return rows `first` to `last`, as views."""
        cut = slice(first, last)
        return StreamRows(
            self.rows[cut],
            None if self.weights is None else self.weights[cut],
            None if self.ticks is None else self.ticks[cut],
        )

    def owned(self) -> StreamRows:
        """Return the rows with memory of their own."""
        rows, weights, ticks = self.rows, self.weights, self.ticks
        if isinstance(rows, SparseRows):
            parts = rows.data.copy(), rows.indices.copy(), rows.indptr.copy()
            return StreamRows(SparseRows(*parts, rows.n_features), _copy(weights), _copy(ticks))
        return StreamRows(rows.copy(), _copy(weights), _copy(ticks))

    def weights_at(self, forgetting: Forgetting, now: float) -> np.ndarray | None:
        """Return what the rows weigh at `now`; None: one each."""
        if self.ticks is None or not forgetting.forgets:
            return self.weights
        left = forgetting.left(self.ticks, now=now)
        return np.asarray(left if self.weights is None else left * self.weights)

    def refuse_bad(self, first: int = 0) -> None:
        """Raise if a row is not finite or out of range; `first` is what errors call the first row."""
        refuse_rows(self.rows, lambda bad: first + bad)


def _copy(values: np.ndarray | None) -> np.ndarray | None:
    return None if values is None else values.copy()


def joined_rows(parts: Sequence[StreamRows]) -> StreamRows:
    """Return parts of a stream, one after the other, as one."""
    if len(parts) == 1:
        return parts[0]
    sparse = any(isinstance(part.rows, SparseRows) for part in parts)
    rows = join_rows([_sparse(part.rows) if sparse else part.rows for part in parts])
    weights = ticks = None
    if any(part.weights is not None for part in parts):
        weights = np.concatenate(
            [np.ones(len(part)) if part.weights is None else part.weights for part in parts]
        )
    if all(part.ticks is not None for part in parts):
        ticks = np.concatenate([np.asarray(part.ticks) for part in parts])
    return StreamRows(rows, weights, ticks)


def _sparse(rows: Rows) -> SparseRows:
    return rows if isinstance(rows, SparseRows) else SparseRows.of(rows)


@dataclass(frozen=True)
class Clock:
    """Where rows stand on the clock of a stream.

    Attributes
    ----------
    first : float
        Of the row before the first: rows that are counted stand at first + 1, first + 2, ...
    stamp : float or None
        Time stamp of all rows, where ages are times.
    """

    first: float
    stamp: float | None = None

    def ticks(self, start: int, stop: int) -> np.ndarray:
        """Return where rows `start` to `stop`, counted from the first, stand."""
        if self.stamp is not None:
            return np.full(stop - start, self.stamp)
        return self.first + np.arange(start + 1, stop + 1, dtype=np.float64)


def stream_rows(
    chunk: Chunk, dtype: np.dtype, clock: Clock, forgetting: Forgetting, first: int
) -> StreamRows:
    """Return a chunk as rows of a stream; `first` is the row of its dataset at which `clock` begins.

    Raises
    ------
    InvalidDataError
        A row holds NaN or infinity, or a value that is too large for the dtype of the stream.
    """
    with np.errstate(over="ignore"):
        rows = (
            chunk.rows.astype(dtype)
            if isinstance(chunk.rows, SparseRows)
            else np.ascontiguousarray(chunk.rows, dtype)
        )
    ticks = None
    if forgetting.forgets:
        ticks = clock.ticks(chunk.start - first, chunk.stop - first)
    found = StreamRows(rows, chunk.weights, ticks)
    found.refuse_bad(chunk.start)
    return found


def check_features(n_features: int, expected: int | None) -> None:
    """Refuse rows that are wider or narrower than those before."""
    if expected is not None and n_features != expected:
        raise InvalidDataError(
            f"X has {n_features} features, the rows of the stream before have {expected}; leave it out, or "
            "begin another stream."
        )
