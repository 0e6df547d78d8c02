"""CSR rows as a dataset, and those of a scipy matrix in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.data.checks import check_dtype, check_shape
from daskcluster.data.dataset import OnRead, RowDataset, check_rows
from daskcluster.data.partitions import group_by_bytes
from daskcluster.data.process_local import ProcessLocal
from daskcluster.errors import InvalidDataError, ReachError
from daskcluster.kernels.sparse import first_fault
from daskcluster.sparse_rows import INDEX_DTYPE, SparseRows, join_rows
from daskcluster.typing import Range, Reach, Recipe

if TYPE_CHECKING:
    from scipy.sparse import csr_array


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

    def bytes_of(self, span: Range) -> int:
        """Decoded bytes of the rows of a range."""
        return int(_bytes_before(self.indptr, self._entry_bytes, np.array(span)) @ (-1, 1))

    @property
    def partitions(self) -> tuple[Range, ...]:
        """Ranges of about equal bytes, cut where reads may begin."""
        return group_by_bytes(
            self._edges, _bytes_before(self.indptr, self._entry_bytes, self._edges)
        )

    def load(self, span: Range, *, on_read: OnRead | None = None) -> Chunk:
        """Return the rows of one range as one chunk that owns its memory."""
        chunks = list(self.chunks([span], on_read=on_read))
        weights = None if self.own_weights is None else self.own_weights.read(*span).copy()
        rows = join_rows([chunk.rows for chunk in chunks])
        return Chunk(rows, span[0], weights).owned()

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


def _bytes_before(indptr: np.ndarray, entry_bytes: int, rows: np.ndarray) -> np.ndarray:
    """Decoded bytes of all rows before each of `rows`: values, columns, and 8 bytes a row."""
    ends: np.ndarray = (indptr[rows] - indptr[0]) * entry_bytes + rows * 8
    return ends


class MemorySparseDataset(SparseDataset):
    """CSR rows in memory, handed over as views.

    Parameters
    ----------
    rows : SparseRows
        In canonical form, see `canonical`.
    held : ProcessLocal, optional
        The same rows, if they have been given a token before.
    """

    def __init__(self, rows: SparseRows, held: ProcessLocal[SparseRows] | None = None) -> None:
        entry_bytes = rows.data.itemsize + rows.indices.itemsize
        anywhere = np.arange(len(rows) + 1)
        parts = group_by_bytes(anywhere, _bytes_before(rows.indptr, entry_bytes, anywhere))
        edges = np.array([0] + [stop for _, stop in parts], np.int64)
        super().__init__(rows.n_features, rows.dtype, rows.indptr, entry_bytes, edges)
        self.rows = rows
        self._held = held or ProcessLocal(rows, f"sparse matrix of shape {rows.shape}")

    @property
    def source(self) -> str:
        return "sparse matrix in memory"

    @property
    def in_memory(self) -> bool:
        return True

    @property
    def own_reach(self) -> Reach:
        return Reach.PROCESS

    def own_recipe(self) -> Recipe:
        return MemorySparseRecipe(self._held)

    def __getstate__(self) -> dict[str, Any]:
        # A pickled dataset in memory carries its rows; only its recipe is bound to the process.
        return {"rows": self.rows, "weights": self.own_weights}

    def __setstate__(self, state: dict[str, Any]) -> None:
        MemorySparseDataset.__init__(self, state["rows"])
        self.own_weights = state["weights"]

    def fetch(self, start: int, stop: int) -> Any:
        return self.rows[start:stop]

    def chunks(self, ranges: Iterable[Range], *, on_read: OnRead | None = None) -> Iterator[Chunk]:
        """Yield one view per range; nothing is read, so `on_read` hears nothing."""
        return (self.read(span) for span in ranges if span[1] > span[0])

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Return the given rows as a dense array."""
        return self.rows[check_rows(rows, self.n_rows)].toarray()

    def to_scratch(self, folder: str) -> RowDataset:
        """Refuse to write rows that are too large to be sent.

        Raises
        ------
        ReachError
        """
        raise ReachError(
            f"The {self._held.what} is in the memory of this process, which workers cannot read; run "
            "locally with engine='local'."
        )


@dataclass(frozen=True)
class MemorySparseRecipe:
    """Finds CSR rows again in the process that holds them."""

    held: ProcessLocal[SparseRows]

    def open(self) -> MemorySparseDataset:
        """Return the dataset in the process of the rows.

        Raises
        ------
        ReachError
            In any other process.
        """
        if self.held.value is None:
            raise ReachError(
                f"The {self.held.what} lives in the memory of another process and cannot be read "
                "here; write it to Zarr on a disk or bucket that the workers see, or run locally."
            )
        return MemorySparseDataset(self.held.value, self.held)


def is_sparse(source: Any) -> bool:
    """Return True for a scipy sparse matrix or array, without importing scipy."""
    return type(source).__module__.startswith("scipy.sparse") and hasattr(source, "tocsr")


def open_sparse(matrix: Any) -> MemorySparseDataset:
    """Open a scipy sparse matrix or array of any format; all but CSR are converted, once.

    Raises
    ------
    InvalidDataError
        Wrong shape or dtype, or index arrays that do not describe a matrix.

    Notes
    -----
    Cost: one look at the columns; a copy if it is not CSR, or not canonical.

    Examples
    --------
    >>> from scipy import sparse
    >>> open_sparse(sparse.eye_array(4, format="coo"))
    MemorySparseDataset(sparse matrix in memory, 4 x 4 float64, 1 chunks, 4 stored values)
    """
    check_shape(matrix.shape, flatten=False, what="sparse matrix")
    check_dtype(matrix.dtype, what="sparse matrix")
    csr = matrix.tocsr()
    check_structure(csr.indptr, len(csr.data), len(csr.indices), csr.shape, "The sparse matrix")
    rows = SparseRows(csr.data, csr.indices, csr.indptr.astype(np.int64), csr.shape[1])
    return MemorySparseDataset(canonical(rows, 0, "the sparse matrix"))


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
