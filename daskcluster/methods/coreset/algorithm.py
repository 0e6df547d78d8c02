"""Lightweight coresets (Bachem, Lucic, Krause, KDD 2018).

Rows are drawn m times, independently and with replacement, from q(n) = w_n / 2W + w_n |x_n - u|^2 / 2 phi,
with u the weighted mean and phi the weighted spread about it; a draw of row n weighs w_n / (m q(n)). As
in the paper; row weights w and any number of chunks, workers and engines are ours, and the paper's
two passes are what it takes here, too.

The state of an unfinished draw is kept as plain values and arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskcluster.chunkwise.seeding import Candidates
from daskcluster.chunkwise.statistics import DataStatistics, ExactScalar, KMeansStatistics
from daskcluster.engine.engine import Segment
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidParameterError, ModelFormatError
from daskcluster.randomness import Key
from daskcluster.sampling import Moments, draw_about, measure
from daskcluster.sparse_rows import INDEX_DTYPE, Rows, SparseRows, join_rows, take_rows
from daskcluster.storage.document import Shapes, stored_as


@dataclass(frozen=True)
class Coreset:
    """Weighted rows that represent all rows of a dataset.

    Attributes
    ----------
    rows : Rows, shape (m, d)
        In the dtype of the source; a row drawn twice is included twice.
    weights : ndarray of shape (m,), float64
    indices : ndarray of shape (m,), int64
        Rows of the source, in the order of the draws: the first m' of them are a coreset of that size,
        once their weights are multiplied by m / m'.
    moments : Moments
        Moments of the source.
    """

    rows: Rows
    weights: np.ndarray
    indices: np.ndarray
    moments: Moments


def draw_coreset(
    rows: ScaledPlacement,
    size: int,
    seed: int,
    *,
    moments: Moments | None = None,
    measured: Callable[[Moments], None] = lambda moments: None,
) -> Coreset:
    """Draw a coreset of `size` rows.

    Parameters
    ----------
    rows : ScaledPlacement
    size : int
        m >= 1. With at least as many as there are rows, the rows themselves are the coreset.
    seed : int
    moments : Moments, optional
        Moments of the rows, if an earlier call measured them: the first pass is left out.
    measured : callable (Moments) -> None
        Called with the moments between the passes.

    Notes
    -----
    Cost: two passes, or one if rows have no weights and an earlier pass collected their statistics.
    Two copies of the coreset in memory while it is drawn.
    """
    if moments is None:
        moments = measure(rows)
        measured(moments)
    if size >= rows.placement.dataset.n_rows:
        return _whole(rows, moments)
    draws = draw_about(rows, moments.mean.astype(rows.dtype), moments, size, Key(seed, "coreset"))
    # w / (m q), and q is w times the rate: the weight of a draw depends on its distance alone.
    weights = 1.0 / (len(draws.picked) * draws.rates)
    drawn = take_rows(draws.rows, draws.picked)
    return Coreset(drawn, weights[draws.picked], draws.indices[draws.picked], moments)


def _whole(rows: ScaledPlacement, moments: Moments) -> Coreset:
    dataset = rows.placement.dataset
    chunk = dataset.load((0, dataset.n_rows)).owned()
    kept = np.flatnonzero(chunk.masses > 0.0)
    return Coreset(chunk.rows[kept], chunk.masses[kept], kept, moments)


def united(parts: Sequence[tuple[Rows, np.ndarray]]) -> tuple[Rows, np.ndarray]:
    """Return the rows and weights of coresets of disjoint parts, one after the other.

    Any weighted sum over the union has as its expectation the sum over all parts. Dense rows of
    different dtypes are merged in the wider one; dense and sparse rows are merged as sparse rows.

    Parameters
    ----------
    parts : sequence of (rows, weights)

    Raises
    ------
    InvalidParameterError
        They do not have the same number of features.

    Examples
    --------
    >>> import numpy as np
    >>> rows, weights = united([(np.eye(2), np.ones(2)), (np.zeros((1, 2)), np.array([5.0]))])
    >>> rows.shape, weights
    ((3, 2), array([1., 1., 5.]))
    """
    widths = [rows.shape[1] for rows, _ in parts]
    if len(set(widths)) > 1:
        raise InvalidParameterError(
            f"coresets with {', '.join(map(str, widths))} features should have the same number; merge "
            "those of parts of one dataset."
        )
    sparse = any(isinstance(rows, SparseRows) for rows, _ in parts)
    dtype = np.result_type(*(rows.dtype for rows, _ in parts))
    alike = [_as(rows, dtype, sparse=sparse) for rows, _ in parts]
    return join_rows(alike), np.concatenate([weights for _, weights in parts])


def _as(rows: Rows, dtype: np.dtype, *, sparse: bool) -> Rows:
    if isinstance(rows, SparseRows):
        return rows.astype(dtype)
    rows = rows.astype(dtype, copy=False)
    return SparseRows.of(rows) if sparse else rows


# -- the state of an unfinished draw -------------------------------------------------------------------

_STORED = {"f2": "f4", "f4": "f4", "f8": "f8"}
"""Dtypes in which values are stored that documents have no room for; small whole numbers become int64."""


@dataclass(frozen=True)
class RowsCheckpoint:
    """Rows of any dtype, dense or sparse, at least one stored value in them.

    Attributes
    ----------
    dtype : str
        Type of the rows.
    values : ndarray of shape (m, d), or (z,) of sparse rows
    columns : ndarray of shape (z,), int64, or None
        Columns of sparse rows.
    starts : ndarray of shape (m + 1,), int64, or None
        Where each of the sparse rows begins.
    """

    dtype: str
    values: np.ndarray
    columns: np.ndarray | None = None
    starts: np.ndarray | None = None

    @classmethod
    def of(cls, rows: Rows) -> RowsCheckpoint | None:
        """Return the stored form of rows; None if they hold no value."""
        values = rows.data if isinstance(rows, SparseRows) else np.ascontiguousarray(rows)
        if not values.size:
            return None
        name = values.dtype.newbyteorder("=").str[1:]
        kept = values.view(np.int64) if name == "u8" else values.astype(_STORED.get(name, "i8"))
        if not isinstance(rows, SparseRows):
            return cls(name, kept)
        return cls(name, kept, rows.indices.astype(np.int64), np.array(rows.offsets))

    def rows(self, d: int) -> Rows:
        """Return the rows, of d features.

        Raises
        ------
        ModelFormatError
            They are none.
        """
        try:
            dtype = np.dtype(self.dtype)
        except TypeError as error:
            raise ModelFormatError(f"its rows have no dtype {self.dtype[:20]!r}.") from error
        if dtype.kind not in "biuf":
            raise ModelFormatError(f"its rows have no dtype {self.dtype[:20]!r}.")
        values = self.values.view(dtype) if self.dtype == "u8" else self.values.astype(dtype)
        if self.columns is None or self.starts is None:
            return values
        found = SparseRows(values, self.columns.astype(INDEX_DTYPE), self.starts, d)
        if not _is_csr(found):
            raise ModelFormatError("its sparse rows do not fit together.")
        return found


def _is_csr(rows: SparseRows) -> bool:
    starts, columns = rows.indptr, rows.indices
    fit = starts[0] == 0 and starts[-1] == len(columns) and bool((np.diff(starts) >= 0).all())
    return (
        fit
        and len(columns) == len(rows.data)
        and 0 <= columns.min() <= columns.max() < rows.n_features
    )


@dataclass(frozen=True)
class CandidatesCheckpoint:
    """`Candidates` of an unfinished pass."""

    spread: ExactScalar
    indices: np.ndarray
    ranks: np.ndarray
    sqdist: np.ndarray
    weights: np.ndarray
    rows: RowsCheckpoint

    @classmethod
    def of(cls, found: Candidates) -> CandidatesCheckpoint | None:
        """Return the stored form of candidates; None if there are none."""
        if not found.parts:
            return None
        indices, ranks, sqdist, weights, rows = found.joined()
        kept = RowsCheckpoint.of(rows)
        if kept is None:
            return None
        return cls(found.spread, indices, ranks.astype(np.int64), sqdist, weights, kept)

    def candidates(self, d: int) -> Candidates:
        """Return the candidates."""
        ranks = self.ranks.astype(np.uint16)
        part = self.indices, ranks, self.sqdist, self.weights, self.rows.rows(d)
        return Candidates(self.spread, [part])


@dataclass(frozen=True)
class SavedSegment:
    """A `Segment` of one of the passes of a coreset, with the parts of its total.

    Attributes
    ----------
    number, n_segments, n_work_items, done : int
    data_statistics : DataStatistics or None
    sums : KMeansStatistics or None
    candidates : CandidatesCheckpoint or None
    """

    number: int
    n_segments: int = field(metadata=stored_as("n_legs"))
    n_work_items: int = field(metadata=stored_as("n_units"))
    done: int
    data_statistics: DataStatistics | None = field(default=None, metadata=stored_as("survey"))
    sums: KMeansStatistics | None = None
    candidates: CandidatesCheckpoint | None = None

    @classmethod
    def of(cls, segment: Segment) -> SavedSegment | None:
        """Return the stored form of a segment; None if it found nothing yet."""
        own = segment.number, segment.n_segments, segment.n_work_items, segment.done
        if isinstance(segment.total, Candidates):
            candidates = CandidatesCheckpoint.of(segment.total)
            return None if candidates is None else cls(*own, candidates=candidates)
        parts = segment.total if isinstance(segment.total, tuple) else (segment.total,)
        kinds: dict[type, str] = {DataStatistics: "data_statistics", KMeansStatistics: "sums"}
        named: dict[str, Any] = {kinds[type(part)]: part for part in parts}
        return cls(*own, **named)

    def segment(self, d: int) -> Segment:
        """Return the segment, of rows with d features."""
        parts: list[Any] = [each for each in (self.data_statistics, self.sums) if each is not None]
        if self.candidates is not None:
            parts = [self.candidates.candidates(d)]
        if not parts or not 0 < self.done < self.n_segments <= self.n_work_items:
            raise ModelFormatError("its pass is at no possible segment.")
        total = parts[0] if len(parts) == 1 else tuple(parts)
        return Segment(self.number, self.n_segments, self.n_work_items, self.done, total)


@dataclass(frozen=True)
class CoresetCheckpoint:
    """A drawn coreset without its moments."""

    rows: RowsCheckpoint
    weights: np.ndarray
    indices: np.ndarray


@dataclass(frozen=True)
class CoresetState:
    """State of a draw: within its first pass, or before, within or after its second.

    Attributes
    ----------
    moments : Moments or None
        Moments of all rows, once the first pass was made.
    segment : SavedSegment or None
        Within a pass: where it is.
    drawn : CoresetCheckpoint or None
        Once the second one was.
    """

    moments: Moments | None = None
    segment: SavedSegment | None = field(default=None, metadata=stored_as("leg"))
    drawn: CoresetCheckpoint | None = None

    def coreset(self, d: int) -> Coreset | None:
        """Return the coreset of rows with d features, if it was drawn."""
        if self.drawn is None or self.moments is None:
            return None
        drawn = self.drawn
        return Coreset(drawn.rows.rows(d), drawn.weights, drawn.indices, self.moments)


def coreset_shapes(found: Mapping[str, tuple[int, ...]], d: int) -> Shapes:
    """Return the shapes that the arrays of a `CoresetState` should have, by those that they have.

    The number of rows is not stored elsewhere, so all arrays of rows should be as long as the first.
    """
    shapes: dict[str, tuple[int, ...]] = {"moments_mean": (d,)}
    for name in ("max_abs", "sums", "origin"):
        shapes[f"leg_survey_{name}"] = (d,)
    for name in ("sums", "sums_low"):
        shapes[f"leg_sums_{name}"] = (1, d)
    for name in ("counts", "counts_low"):
        shapes[f"leg_sums_{name}"] = (1,)
    for prefix, plain in (
        ("leg_candidates", ("indices", "ranks", "sqdist", "weights")),
        ("drawn", ("indices", "weights")),
    ):
        m = next(iter(found.get(f"{prefix}_indices", (0,))))
        shapes |= {f"{prefix}_{name}": (m,) for name in plain}
        shapes[f"{prefix}_rows_values"] = (m, d)
        if f"{prefix}_rows_columns" in found:
            z = found[f"{prefix}_rows_columns"]
            shapes |= {f"{prefix}_rows_columns": z, f"{prefix}_rows_values": z}
            shapes[f"{prefix}_rows_starts"] = (m + 1,)
    return shapes
