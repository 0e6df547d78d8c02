"""The number of distinct rows near each centre, counted up to a limit.

Rows are compared by 64-bit hashes of their values. The smallest hashes of each cell are stored, as many as
its limit says (Bar-Yossef et al., "Counting Distinct Elements in a Data Stream", 2002): a
mergeable set of bounded size, exact below the limit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.chunkwise.statistics import Reduction
from daskcluster.sparse_rows import Rows, SparseRows

_PENDING = 1 << 16
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@dataclass(frozen=True)
class DistinctParams:
    """Centres, and the limits of the counts.

    Attributes
    ----------
    centres : ndarray of shape (c, d)
    most : ndarray of shape (c,), int64
        Limit of each centre; rows of one whose limit is 0 are left out.
    labels : ndarray of shape (n,), int32, or None
        The nearest centre of every row, if it is known in this process.
    """

    centres: np.ndarray
    most: np.ndarray
    labels: np.ndarray | None = None


@dataclass
class DistinctRows:
    """The smallest hashes of different rows of each cell, sorted by cell, then by hash.

    Attributes
    ----------
    most : ndarray of shape (c,), int64
    cells : ndarray of shape (m,), int32
    hashes : ndarray of shape (m,), uint64
    """

    most: np.ndarray
    cells: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))
    hashes: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint64))
    _limits: np.ndarray | None = None
    _pending: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    _n_pending: int = 0

    @property
    def counts(self) -> np.ndarray:
        """Different rows of each cell, (c,) int64; a cell that has reached its limit may have more."""
        self._settle()
        return np.bincount(self.cells, minlength=len(self.most)).astype(np.int64)

    def add(self, cells: np.ndarray, hashes: np.ndarray) -> None:
        """Add rows by cell and hash."""
        limits = (
            np.where(self.most > 0, _ALL, np.uint64(0)) if self._limits is None else self._limits
        )
        kept = hashes < limits[cells]
        self._pending.append((cells[kept], hashes[kept]))
        self._n_pending += int(kept.sum())
        if self._n_pending > max(_PENDING, len(self.cells)):
            self._settle()

    def combine(self, other: DistinctRows) -> DistinctRows:
        other._settle()
        self._pending.append((other.cells, other.hashes))
        self._settle()
        return self

    def _settle(self) -> None:
        if not self._pending:
            return
        cells = np.concatenate([self.cells, *(pair[0] for pair in self._pending)])
        hashes = np.concatenate([self.hashes, *(pair[1] for pair in self._pending)])
        self._pending, self._n_pending = [], 0
        order = np.lexsort((hashes, cells))
        cells, hashes = cells[order], hashes[order]
        fresh = np.ones(len(cells), bool)
        fresh[1:] = (cells[1:] != cells[:-1]) | (hashes[1:] != hashes[:-1])
        cells, hashes = cells[fresh], hashes[fresh]
        counts = np.bincount(cells, minlength=len(self.most))
        firsts = np.cumsum(counts) - counts
        rank = np.arange(len(cells)) - firsts[cells]
        kept = rank < self.most[cells]
        self.cells, self.hashes = cells[kept], hashes[kept]
        full = np.flatnonzero((counts >= self.most) & (self.most > 0))
        self._limits = np.where(self.most > 0, _ALL, np.uint64(0))
        self._limits[full] = hashes[firsts[full] + self.most[full] - 1]


def row_hashes(rows: Rows) -> np.ndarray:
    """Return 64 bits for each row, uint64 (n,): equal for equal rows, dense or sparse.

    A sum over the values that are not zero, so 0.0, -0.0 and what CSR leaves out are the same.
    """
    if isinstance(rows, SparseRows):
        parts = _mixed(rows.data, rows.indices)
        sums = np.concatenate([[np.uint64(0)], np.cumsum(parts, dtype=np.uint64)])
        return np.asarray(sums[rows.offsets[1:]] - sums[rows.offsets[:-1]])
    columns = np.arange(rows.shape[1])
    return np.asarray(_mixed(rows, columns).sum(axis=1, dtype=np.uint64))


def _mixed(values: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return the finalizer of SplitMix64 (Steele, Lea, Flood, 2014) of each value and its column."""
    bits = np.ascontiguousarray(values).view(f"u{values.itemsize}").astype(np.uint64)
    bits += (columns.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    bits ^= bits >> np.uint64(30)
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    bits[values == 0] = 0
    return bits


def _prepare(params: DistinctParams) -> tuple[DistinctParams, PreparedCentres]:
    return params, PreparedCentres(params.centres)


def _zero(prepared: tuple[DistinctParams, PreparedCentres]) -> DistinctRows:
    return DistinctRows(prepared[0].most)


def _distinct_chunk(
    chunk: Chunk, prepared: tuple[DistinctParams, PreparedCentres], into: DistinctRows
) -> None:
    params, centres = prepared
    for block in chunk.cache_blocks():
        if params.labels is None:
            labels = np.empty(block.n_rows, np.int32)
            centres.nearest(block.rows, labels)
        else:
            labels = params.labels[block.start : block.stop]
        hashes = row_hashes(block.rows)
        if block.weights is not None:
            weighty = block.weights > 0.0  # a row without weight is never a centre
            labels, hashes = labels[weighty], hashes[weighty]
        into.add(labels, hashes)


DISTINCT = Reduction(
    name="distinct rows",
    prepare=_prepare,
    zero=_zero,
    chunk=_distinct_chunk,
)
"""`DistinctParams` -> `DistinctRows`."""
