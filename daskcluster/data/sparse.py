"""CSR rows as a dataset: sizes, reads and the canonical form of rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.data.dataset import OnRead, RowDataset
from daskcluster.data.partitions import READ_BYTES, group_by_bytes, spans_by_bytes
from daskcluster.errors import InvalidDataError
from daskcluster.kernels.sparse import first_fault
from daskcluster.sparse_rows import INDEX_DTYPE, SparseRows, join_rows
from daskcluster.typing import Dataset, Range

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_BLOCK_ROWS = 1 << 20


class SparseDataset(RowDataset):
    """Rows in CSR form, wherever they are: sizes are those of the stored values.

    Parameters
    ----------
    n_features : int
    dtype : dtype
        Of the stored values.
    indptr : ndarray of shape (n + 1,), int64
        Where each row's values begin: 8 bytes a row in every process that reads the dataset, 0.8 GB
        for 10^8 rows.
    entry_bytes : int
        Of a stored value and its column.
    edges : ndarray of int64
        Rows at which reads may begin, and n.
    """

    def __init__(
        self, n_features: int, dtype: Any, indptr: np.ndarray, entry_bytes: int, edges: np.ndarray
    ) -> None:
        super().__init__(n_features, dtype, edges)
        self.indptr = indptr
        self._entry_bytes = entry_bytes

    @property
    def n_entries(self) -> int:
        """Stored values of all rows."""
        return int(self.indptr[-1] - self.indptr[0])

    @property
    def row_bytes(self) -> int:
        """Decoded bytes of one row, on average."""
        return -(-self.bytes_of((0, self.n_rows)) // self.n_rows)

    @cached_property
    def most_entries(self) -> int:
        """The most values that one row stores."""
        blocks = range(0, self.n_rows, _BLOCK_ROWS)
        most = (np.diff(self.indptr[at : at + _BLOCK_ROWS + 1]).max() for at in blocks)
        return int(max(most, default=0))

    def bytes_of(self, span: Range) -> int:
        """Decoded bytes of the rows of a range, without weights: values, columns, 8 bytes a row."""
        return int(bytes_before(self.indptr, self._entry_bytes, np.array(span)) @ (-1, 1))

    @cached_property
    def _ends(self) -> np.ndarray:
        """Bytes of all rows before each edge."""
        return bytes_before(self.indptr, self._entry_bytes, self._edges)

    @cached_property
    def partitions(self) -> tuple[Range, ...]:
        """Ranges of about equal bytes, cut where reads may begin."""
        return group_by_bytes(self._edges, self._ends)

    def _reads(self, span: Range) -> list[Range]:
        return spans_by_bytes(span, self._edges, self._ends)

    def _blocks_of(self, chunk: Chunk) -> Iterator[Range]:
        rows: SparseRows = chunk.rows
        return rows.cuts(READ_BYTES)

    def load(self, span: Range, *, on_read: OnRead | None = None) -> Chunk:
        """Return the rows of one range as one chunk that owns its memory."""
        chunks = list(self.chunks([span], on_read=on_read))
        weights = None if self.own_weights is None else self.own_weights.read(*span).copy()
        rows = join_rows([chunk.rows for chunk in chunks])
        return Chunk(rows, span[0], weights, self.normalize).owned()

    def to_numpy(self) -> np.ndarray:
        """Return all rows as one dense array (n, d); mind the memory, and see `to_scipy`."""
        rows: SparseRows = self.load((0, self.n_rows)).rows
        return rows.toarray()

    def to_scipy(self) -> csr_array:
        """Return all rows as a `scipy.sparse.csr_array` (n, d)."""
        from scipy.sparse import csr_array

        rows: SparseRows = self.load((0, self.n_rows)).rows
        return csr_array((rows.data, rows.indices, rows.offsets), shape=rows.shape)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, {self.n_entries} stored values)"


def sparse_source(dataset: Dataset) -> SparseDataset | None:
    """Return the dataset of CSR rows that `dataset` is, or is a part of; None for dense rows."""
    whole = dataset.whole if isinstance(dataset, RowDataset) else dataset
    return whole if isinstance(whole, SparseDataset) else None


def bytes_before(indptr: np.ndarray, entry_bytes: int, rows: np.ndarray) -> np.ndarray:
    """Decoded bytes of all rows before each of `rows`: values, columns, and 8 bytes a row."""
    ends: np.ndarray = (indptr[rows] - indptr[0]) * entry_bytes + rows * 8
    return ends


def check_structure(
    indptr: np.ndarray, n_data: int, n_indices: int, shape: tuple[int, ...], what: str
) -> None:
    """Refuse an `indptr` that does not cut the stored values into the rows of `shape`.

    Raises
    ------
    InvalidDataError
        Too many columns, another number of rows, other lengths, or an `indptr` that falls.
    """
    n_rows, n_features = shape
    if n_features > np.iinfo(INDEX_DTYPE).max:
        raise InvalidDataError(
            f"{what} has {n_features} columns, at most {np.iinfo(INDEX_DTYPE).max} are taken, for centres "
            "are dense; hash or drop columns."
        )
    if len(indptr) != n_rows + 1:
        raise InvalidDataError(
            f"{what} has {n_rows} rows and an indptr of {len(indptr)} entries; it should have one more "
            "than there are rows. Write it again."
        )
    if n_data != n_indices or int(indptr[0]) != 0 or int(indptr[-1]) != n_data:
        raise InvalidDataError(
            f"{what} has {n_data} values in data, {n_indices} in indices, and an indptr from {indptr[0]} "
            f"to {indptr[-1]}; it should go from 0 to the number of values, which both should have. Write "
            "it again."
        )
    if (falls := np.flatnonzero(np.diff(indptr) < 0)).size:
        row = int(falls[0])
        raise InvalidDataError(
            f"{what} has an indptr that falls from {indptr[row]} to {indptr[row + 1]} at row {row}; it "
            "should never fall. Write it again."
        )


def canonical(rows: SparseRows, start: int, what: str) -> SparseRows:
    """Return rows whose columns ascend strictly: as they are, or sorted, duplicates added up.

    Parameters
    ----------
    rows : SparseRows
    start : int
        Global index of the first row, for the error.
    what : str
        Where the rows come from.

    Raises
    ------
    InvalidDataError
        A column that is out of range.
    """
    row, column, disordered = first_fault(rows.indices, rows.indptr, rows.n_features)
    if row >= 0:
        raise InvalidDataError(
            f"Row {start + row} of {what} has a value in column {column}; columns should be in 0 to "
            f"{rows.n_features - 1}. Correct its shape, or write it again."
        )
    return rows if disordered < 0 else _sorted(rows)


def _sorted(rows: SparseRows) -> SparseRows:
    row = np.repeat(np.arange(len(rows)), np.diff(rows.indptr))
    order = np.lexsort((rows.indices, row))
    row, column, data = row[order], rows.indices[order], rows.data[order]
    is_first = np.ones(len(order), bool)
    is_first[1:] = (row[1:] != row[:-1]) | (column[1:] != column[:-1])
    firsts = np.flatnonzero(is_first)
    return SparseRows(
        np.add.reduceat(data, firsts, dtype=data.dtype),
        column[firsts],
        np.concatenate([[0], np.cumsum(np.bincount(row[firsts], minlength=len(rows)))]),
        rows.n_features,
    )
