"""The state of an unfinished coreset, as plain values and arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskcluster.chunkwise.draws import Candidates
from daskcluster.chunkwise.statistics import DataStatistics, ExactScalar, KMeansStatistics
from daskcluster.engine.engine import Segment
from daskcluster.errors import ModelFormatError
from daskcluster.methods.coreset.algorithm import Coreset
from daskcluster.sampling import Moments
from daskcluster.sparse_rows import INDEX_DTYPE, Rows, SparseRows
from daskcluster.storage.state import Shapes, stored_as

_STORED = {"f2": "f4", "f4": "f4", "f8": "f8"}
"""Dtypes in which values are stored that documents have no room for; small whole numbers become int64."""


@dataclass(frozen=True)
class RowsCheckpoint:
    """Rows of any dtype, dense or sparse, at least one stored value in them.

    Attributes
    ----------
    dtype : str
        Of the rows.
    values : ndarray of shape (m, d), or (z,) of sparse rows
    columns : ndarray of shape (z,), int64, or None
        Of sparse rows.
    starts : ndarray of shape (m + 1,), int64, or None
        Of sparse rows.
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
        total: Any = (
            self.data_statistics if self.sums is None else (self.data_statistics, self.sums)
        )
        if self.data_statistics is None and self.sums is not None:
            total = self.sums
        if self.candidates is not None:
            total = self.candidates.candidates(d)
        if total is None or not 0 < self.done < self.n_segments <= self.n_work_items:
            raise ModelFormatError("its pass is at no possible segment.")
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
        Of all rows, once the first pass was made.
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
