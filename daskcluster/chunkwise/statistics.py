"""Mergeable statistics of a pass, and reductions, which compute and combine them.

All statistics obey the monoid laws exactly, because sums are on grids (`daskcluster.kernels.sum_grid`) and
the rest are minima, maxima and counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.kernels.jit import aligned_zeros
from daskcluster.sparse_rows import Rows, join_rows


class Additive:
    """Base of statistics whose fields are added: numbers and arrays, other statistics, or None in both."""

    def combine(self, other: Any) -> Self:
        """Add the fields of `other`, in place."""
        for name, total in vars(self).items():
            part = getattr(other, name)
            if hasattr(total, "combine"):
                total.combine(part)
            elif total is not None and part is not None:
                total += part
                setattr(self, name, total)
        return self


@dataclass
class ExactScalar(Additive):
    """A sum of per-row scalars on two grids."""

    high: float = 0.0
    low: float = 0.0

    def add(self, high: float, low: float) -> None:
        self.high += high
        self.low += low

    @property
    def value(self) -> float:
        return self.high + self.low


@dataclass
class KMeansStatistics(Additive):
    """Sums and weights of the rows of each cluster.

    Attributes
    ----------
    sums : ndarray of shape (k, d), float64
        S(j), the weighted sum of the rows of cluster j, rounded to the first grid.
    counts : ndarray of shape (k,)
        v(j), the weight of these rows: int64 counts, or float64 on the first grid.
    sums_low, counts_low : ndarray or None
        Residuals on the second grid, if there is one.
    """

    sums: np.ndarray
    counts: np.ndarray
    sums_low: np.ndarray | None = None
    counts_low: np.ndarray | None = None

    @classmethod
    def zero(cls, k: int, d: int, *, weighted: bool, two_grids: bool) -> KMeansStatistics:
        return cls(
            aligned_zeros(k, d),
            np.zeros(k, np.float64 if weighted else np.int64),
            aligned_zeros(k, d) if two_grids else None,
            np.zeros(k) if weighted else None,
        )

    def copy(self) -> KMeansStatistics:
        arrays = {name: array.copy() for name, array in vars(self).items() if array is not None}
        return KMeansStatistics(**arrays)

    @property
    def weights(self) -> np.ndarray:
        """Weight of each cluster, float64."""
        counts = self.counts.astype(np.float64)
        return counts if self.counts_low is None else counts + self.counts_low

    @property
    def totals(self) -> np.ndarray:
        """Weighted sum of each cluster's rows, float64."""
        return self.sums if self.sums_low is None else self.sums + self.sums_low

    def means(self, default: np.ndarray) -> np.ndarray:
        """Return the clusters' means, float64; a cluster without weight gets its row of `default`."""
        weights = self.weights
        filled = weights > 0.0
        if filled.all():
            return np.asarray(self.totals / weights[:, None])
        divisor = np.where(filled, weights, 1.0)[:, None]
        return np.where(filled[:, None], self.totals / divisor, default.astype(np.float64))


@dataclass
class LeastRows:
    """The rows with the smallest keys, ties by the lowest index.

    Attributes
    ----------
    most : int
        Number of rows to keep.
    keys, indices : ndarray of shape (<= most,)
        Ascending.
    rows : Rows, shape (<= most, d)
        Dense or CSR, as they were found.
    facts : tuple of ndarray of shape (<= most,)
        Other values of these rows.
    """

    most: int
    keys: np.ndarray
    indices: np.ndarray
    rows: Rows
    facts: tuple[np.ndarray, ...] = ()

    @classmethod
    def zero(cls, most: int, like: Rows, *facts: np.ndarray) -> LeastRows:
        """Return no rows; rows to add are `like` these, and have such `facts`."""
        none = np.empty((0, like.shape[1]), like.dtype)
        return cls(most, np.empty(0), np.empty(0, np.int64), none, facts)

    def add(
        self, keys: np.ndarray, kept: np.ndarray, start: int, rows: Rows, *facts: np.ndarray
    ) -> None:
        """Add the rows `kept` of a block, of which `start` is the first's global index."""
        kept = kept[np.argsort(keys[kept], kind="stable")[: self.most]]
        if len(kept):
            own = tuple(values[kept] for values in facts)
            self.combine(LeastRows(self.most, keys[kept], start + kept, rows[kept], own))

    def combine(self, other: LeastRows) -> LeastRows:
        keys = np.concatenate([self.keys, other.keys])
        indices = np.concatenate([self.indices, other.indices])
        kept = np.lexsort((indices, keys))[: self.most]
        self.keys, self.indices = keys[kept], indices[kept]
        self.rows = join_rows([self.rows, other.rows])[kept]
        both = zip(self.facts, other.facts, strict=True)
        self.facts = tuple(np.concatenate(values)[kept] for values in both)
        return self

    @property
    def limit(self) -> float:
        """Rows with a larger key need not be added."""
        return float(self.keys[-1]) if len(self.keys) >= self.most > 0 else np.inf


@dataclass
class DataStatistics:
    """Data statistics of all rows, from the first pass.

    Attributes
    ----------
    origin : ndarray of shape (d,)
        Point from which distances are measured.
    max_abs : ndarray of shape (d,)
    sums : ndarray of shape (d,)
        Exact sum of the rows, unweighted.
    spread, weighted_spread : ExactScalar
        Sum of |x - origin|**2, and the same times the row weights, if any.
    weight : ExactScalar
        Sum of the row weights, if any.
    n_rows : int
    bad_row : int
        Lowest index of a row that holds NaN or infinity; -1 if there is none.
    bad_is_nan : bool
    n_zero : int
        Rows of zeros that have a weight; counted for the cosine metric only.
    """

    origin: np.ndarray
    max_abs: np.ndarray
    sums: np.ndarray
    spread: ExactScalar
    weighted_spread: ExactScalar
    weight: ExactScalar
    n_rows: int = 0
    bad_row: int = -1
    bad_is_nan: bool = False
    n_zero: int = 0

    @classmethod
    def zero(cls, origin: np.ndarray) -> DataStatistics:
        d = len(origin)
        return cls(
            origin,
            np.zeros(d),
            aligned_zeros(d),
            ExactScalar(),
            ExactScalar(),
            ExactScalar(),
        )

    def combine(self, other: DataStatistics) -> DataStatistics:
        np.maximum(self.max_abs, other.max_abs, out=self.max_abs)
        self.sums += other.sums
        self.n_rows += other.n_rows
        self.n_zero += other.n_zero
        self.spread.combine(other.spread)
        self.weighted_spread.combine(other.weighted_spread)
        self.weight.combine(other.weight)
        self.note_bad(other.bad_row, other.bad_is_nan)
        return self

    def note_bad(self, row: int, is_nan: bool) -> None:
        """Record a row that is not finite, if it is the first one so far."""
        if row >= 0 and (self.bad_row < 0 or row < self.bad_row):
            self.bad_row, self.bad_is_nan = row, is_nan

    @property
    def mean_variance(self) -> float:
        """Unweighted variance, averaged over the features: the unit of `tol`."""
        n = max(1, self.n_rows)
        offset = self.sums / n - self.origin
        return max(0.0, (self.spread.value / n - float((offset * offset).sum())) / len(offset))

    @property
    def total_spread(self) -> float:
        """Weighted sum of |x - origin|**2."""
        return self.weighted_spread.value or self.spread.value


def _same(value: Any) -> Any:
    return value


def _combined(first: Any, second: Any) -> Any:
    return first.combine(second)


def _zero(prepared: Any) -> Any:
    return prepared.zero()


def _add(chunk: Chunk, prepared: Any, *into: Any) -> None:
    prepared.add(chunk, *into)


def _fresh(n_rows: int, prepared: Any) -> Any:
    return prepared.fresh(n_rows)


def _rebuild(chunk: Chunk, prepared: Any, state: Any) -> None:
    prepared.rebuild(chunk, state)


def _all_rows(prepared: Any, statistics: Any, state: Any) -> None:
    return None


@dataclass(frozen=True)
class Reduction:
    """A picklable description of a pass (every member is a module-level function).

    Laws: `combine` is exactly associative and commutative, ``zero`` is its neutral element, and `chunk`
    applied to two halves equals `chunk` applied to the whole.

    Attributes
    ----------
    name : str
        Name of the pass in progress displays.
    prepare : callable (params) -> prepared
        Work done once per task before the first chunk, e.g. packing centres into panels.
    zero : callable (prepared) -> statistics
        Default: ``prepared.zero()``.
    chunk : callable (chunk, prepared, statistics) -> None
        Adds the chunk to the statistics in place. Default: ``prepared.add(chunk, statistics)``.
    combine : callable (statistics, statistics) -> statistics
        May change and return its first argument. Default: the method `combine` of statistics.
    """

    name: str
    zero: Callable[[Any], Any] = _zero
    chunk: Callable[[Chunk, Any, Any], None] = _add
    combine: Callable[[Any, Any], Any] = _combined
    prepare: Callable[[Any], Any] = _same


class _Joined:
    def __init__(self, reductions: tuple[Reduction, ...], params: Sequence[Any]) -> None:
        self.parts = [
            (each, each.prepare(own)) for each, own in zip(reductions, params, strict=True)
        ]

    def zero(self) -> tuple[Any, ...]:
        return tuple(each.zero(prepared) for each, prepared in self.parts)

    def add(self, chunk: Chunk, into: tuple[Any, ...]) -> None:
        for piece in chunk.pieces():  # the next reduction finds the rows in the CPU cache
            for (each, prepared), statistics in zip(self.parts, into, strict=True):
                each.chunk(piece, prepared, statistics)


def _combine_joined(
    reductions: tuple[Reduction, ...], first: tuple[Any, ...], second: tuple[Any, ...]
) -> tuple[Any, ...]:
    parts = zip(reductions, first, second, strict=True)
    return tuple(each.combine(one, other) for each, one, other in parts)


def joined(name: str, *reductions: Reduction) -> Reduction:
    """Return several reductions as one, whose parameters and statistics are tuples of theirs."""
    combine = partial(_combine_joined, reductions)
    return Reduction(name, combine=combine, prepare=partial(_Joined, reductions))


@dataclass(frozen=True)
class StatefulReduction:
    """A reduction with per-row state, which may skip reading rows.

    The state is *derived*: a function of rows and parameters. `fresh` allocates it (it may grow
    later, within `row_bytes`). `rebuild` restores lost state from rows and parameters only, so the
    parameters must contain everything needed. `filter_rows` makes accelerated passes cheap out of core:
    storage chunks without a selected row are neither read nor decoded.

    Attributes
    ----------
    name : str
    row_bytes : int
        Bytes of state per row, for the memory projection.
    prepare, zero, combine : callable
        As in `Reduction`.
    fresh : callable (n_rows, prepared) -> state
        A NumPy array or a tuple of arrays, whose first axis is the row, or an object with an attribute
        ``nbytes`` and a method ``rows(first, last)``, which returns a view of these rows.
    rebuild : callable (chunk, prepared, state_slice) -> None
        Recomputes the state as it was before this pass.
    chunk : callable (chunk, prepared, statistics, state_slice) -> None
        Adds the chunk to the statistics and updates its state. Default: ``prepared.add``, as in
        `Reduction`; likewise for `fresh` and `rebuild`.
    filter_rows : callable (prepared, statistics, state) -> ndarray of bool, shape (n_rows,), or None
        Called once for every work item with valid state whose rows would have to be read, before any of
        them is read. Returns which rows of the work item `chunk` needs; None for all. It may add to the
        statistics what needs no rows, and change the state. Storage chunks without a selected row are not
        read, and `chunk` is not called for them; it gets all rows of the other storage chunks.
        `filter_rows` is not called for work items that are in memory or become resident: `chunk` gets all
        of their rows. So `filter_rows` followed by `chunk` on the selected rows must have the same result
        as `chunk` alone on the whole work item. By default, all rows are selected.
    """

    name: str
    row_bytes: int
    zero: Callable[[Any], Any] = _zero
    fresh: Callable[[int, Any], Any] = _fresh
    rebuild: Callable[[Chunk, Any, Any], None] = _rebuild
    chunk: Callable[[Chunk, Any, Any, Any], None] = _add
    combine: Callable[[Any, Any], Any] = _combined
    prepare: Callable[[Any], Any] = _same
    filter_rows: Callable[[Any, Any, Any], np.ndarray | None] = _all_rows
