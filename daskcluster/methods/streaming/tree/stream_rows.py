"""Rows of a stream before they form a leaf: their times, and their weights after forgetting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.data_statistics import refuse_rows
from daskcluster.elementary import exp2
from daskcluster.errors import InvalidParameterError, WrongTypeError
from daskcluster.parameters.checks import seconds_of
from daskcluster.sparse_rows import Rows, SparseRows, join_rows

NODE_SHARE = 8
"""No node spans more than the window divided by this, so that rows leave the window in steps of that size.
With a half-life, no node spans more than two of them, as most of its rows would have little weight."""


@dataclass(frozen=True)
class Forgetting:
    """The decay of row weights with age.

    Attributes
    ----------
    half_life : float or None
        Age at which the weight of a row has halved.
    window : float or None
        Age at which the weight of a row becomes zero.
    by_time : bool
        Ages are seconds between timestamps, not numbers of rows.

    Examples
    --------
    >>> float(Forgetting.of("2h", None).left(0.0, now=7200.0))
    0.5
    >>> Forgetting.of(None, 1000).left(np.array([0.0, 600.0]), now=1500.0)
    array([0., 1.])
    """

    half_life: float | None = None
    window: float | None = None
    by_time: bool = False

    @classmethod
    def of(cls, half_life: Any, window: Any) -> Forgetting:
        """Return the decay that the parameters `half_life` and `window` define.

        Raises
        ------
        InvalidParameterError
            Both are given, or one is neither a number of rows > 0 nor a time.
        """
        if half_life is not None and window is not None:
            raise InvalidParameterError(
                f"half_life={half_life!r} and window={window!r} cannot be combined; pass only one of them."
            )
        name, given = ("half_life", half_life) if window is None else ("window", window)
        if given is None:
            return cls()
        length, by_time = _length(name, given)
        return cls(**{name: length}, by_time=by_time)

    @property
    def forgets(self) -> bool:
        return self.half_life is not None or self.window is not None

    @property
    def most_span(self) -> float:
        """The longest time span of the rows of one node."""
        if self.half_life is not None:
            return 2.0 * self.half_life
        return math.inf if self.window is None else self.window / NODE_SHARE

    def left(self, tick: Any, *, now: float) -> Any:
        """Return the fraction of its weight that a row of time `tick` has at `now`.

        Parameters
        ----------
        tick : float or ndarray
            Times on the stream's clock; times after `now` count as `now`.
        now : float
        """
        age = np.maximum(0.0, now - np.asarray(tick, np.float64))
        if self.half_life is not None:
            return exp2(-age / self.half_life)
        if self.window is not None:
            return np.where(age < self.window, 1.0, 0.0)
        return np.ones_like(age)

    def left_of_span(self, oldest: float, newest: float, *, now: float) -> float:
        """Return the fraction of their total weight that the rows of a node have at `now`.

        With a half-life, weights are those at `newest`. With a window, the fraction is that of the span
        from `oldest` to `newest` inside the window, as if rows were spread evenly over it.
        """
        if self.half_life is not None:
            return float(self.left(newest, now=now))
        if self.window is None:
            return 1.0
        edge = now - self.window
        if oldest > edge or newest <= edge:
            return 1.0 if oldest > edge else 0.0
        return (newest - edge) / (newest - oldest)


def _length(name: str, given: Any) -> tuple[float, bool]:
    text = f"{name}={given!r} should be a number of rows > 0, or a time such as '90s', '10m', '6h' or '7d'."
    if isinstance(given, (bool, np.bool_)) or not isinstance(given, (int, float, np.number, str)):
        raise WrongTypeError(text)
    seconds = seconds_of(given) if isinstance(given, str) else None
    try:
        length = float(given) if seconds is None else seconds
    except ValueError as error:
        raise InvalidParameterError(text) from error
    if not (math.isfinite(length) and length > 0.0):
        raise InvalidParameterError(text)
    return length, seconds is not None


@dataclass(frozen=True)
class StreamRows:
    """Consecutive rows of a stream.

    Attributes
    ----------
    rows : Rows, shape (n, d)
    weights : ndarray of shape (n,), float64, or None
        Weights before forgetting; None: one each.
    ticks : ndarray of shape (n,), float64, or None
        Time of each row on the stream's clock; None if nothing is forgotten.
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
        """Return a copy of the rows."""
        rows, weights, ticks = self.rows, self.weights, self.ticks
        if isinstance(rows, SparseRows):
            parts = rows.data.copy(), rows.indices.copy(), rows.indptr.copy()
            return StreamRows(SparseRows(*parts, rows.n_features), _copy(weights), _copy(ticks))
        return StreamRows(rows.copy(), _copy(weights), _copy(ticks))

    def weights_at(self, forgetting: Forgetting, now: float) -> np.ndarray | None:
        """Return the weights of the rows at `now`; None: one each."""
        if self.ticks is None or not forgetting.forgets:
            return self.weights
        left = forgetting.left(self.ticks, now=now)
        return np.asarray(left if self.weights is None else left * self.weights)

    def refuse_bad(self, first: int = 0) -> None:
        """Raise if a row is not finite or out of range; errors number rows from `first` on."""
        refuse_rows(self.rows, lambda bad: first + bad)


def _copy(values: np.ndarray | None) -> np.ndarray | None:
    return None if values is None else values.copy()


def joined_rows(parts: Sequence[StreamRows]) -> StreamRows:
    """Return the concatenation of parts of a stream."""
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
    """Times of rows on the clock of a stream.

    Attributes
    ----------
    first : float
        Time of the row before the first: if ages are numbers of rows, rows have times first + 1,
        first + 2, ...
    stamp : float or None
        Timestamp of all rows, if ages are times.
    """

    first: float
    stamp: float | None = None

    def ticks(self, start: int, stop: int) -> np.ndarray:
        """Return the times of rows `start` to `stop`, counted from the first."""
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
