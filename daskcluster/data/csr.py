"""CSR rows of a dataset: their sizes, and their canonical form."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from daskcluster.errors import InvalidDataError
from daskcluster.kernels.sparse import first_fault
from daskcluster.sparse_rows import INDEX_DTYPE, SparseRows
from daskcluster.typing import Dataset

_BLOCK_ROWS = 1 << 20


@dataclass(frozen=True, eq=False)
class CsrLayout:
    """The places where the values of CSR rows begin, and the sizes of rows that follow.

    Attributes
    ----------
    indptr : ndarray of shape (n + 1,), int64
        Where each row's values begin: 8 bytes a row in every process that reads the dataset, 0.8 GB
        for 10^8 rows.
    entry_bytes : int
        Bytes of a stored value and its column.
    """

    indptr: np.ndarray
    entry_bytes: int

    @property
    def n_entries(self) -> int:
        """Stored values of all rows."""
        return int(self.indptr[-1] - self.indptr[0])

    @property
    def n_rows(self) -> int:
        return len(self.indptr) - 1

    @cached_property
    def most_entries(self) -> int:
        """The most values that one row stores."""
        blocks = range(0, self.n_rows, _BLOCK_ROWS)
        most = (np.diff(self.indptr[at : at + _BLOCK_ROWS + 1]).max() for at in blocks)
        return int(max(most, default=0))

    def bytes_before(self, rows: np.ndarray) -> np.ndarray:
        """Return the decoded bytes of all rows before each of `rows`: values, columns, 8 bytes a row."""
        ends: np.ndarray = (self.indptr[rows] - self.indptr[0]) * self.entry_bytes + rows * 8
        return ends


def csr_of(dataset: Dataset) -> CsrLayout | None:
    """Return the layout of a dataset of CSR rows, or of the one of which it is a part; None: dense rows."""
    layout: CsrLayout | None = getattr(getattr(dataset, "whole", dataset), "csr", None)
    return layout


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
