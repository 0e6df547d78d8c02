"""Helpers of dense and sparse conversions: lossless casts and checked weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import numpy as np

from daskcluster.data.weighted import check_block, refuse_all_zero
from daskcluster.data.writer import RowWriter, StagedArray
from daskcluster.errors import InvalidDataError
from daskcluster.sparse_rows import SparseRows
from daskcluster.storage.location import Location

Block = tuple[Any, np.ndarray | None]
"""Rows, (m, d) or `SparseRows`, and their weights (m,), or None."""


@dataclass(frozen=True)
class Table:
    """Rows to be read once, front to back.

    Attributes
    ----------
    n_rows : int
    n_features : int
    dtype : dtype
        What holds every value of the source.
    weighted : bool
    blocks : callable () -> iterator of (rows, weights or None)
    n_entries : int or None
        Stored values of CSR rows; None for dense ones.
    attributes : mapping
        Of the group that rows and weights are written to.
    stored_at : tuple of Location
        The arrays and files that are read.
    """

    n_rows: int
    n_features: int
    dtype: np.dtype[Any]
    weighted: bool
    blocks: Callable[[], Iterator[Block]]
    n_entries: int | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    stored_at: tuple[Location, ...] = ()


ROWS, WEIGHTS = "X", "weights"
"""Names in the group that holds rows and their weights."""


@dataclass(frozen=True)
class Written:
    """Rows that were written, and the metadata that will publish them.

    Attributes
    ----------
    documents : dict
        For `daskcluster.storage.staging.Staging.commit`.
    n_rows, n_bytes : int
    chunk_rows : int
    shard_rows : int or None
    """

    documents: dict[str, bytes]
    n_rows: int
    n_bytes: int
    chunk_rows: int
    shard_rows: int | None = None


class WeightsWriter(RowWriter):
    """Writes row weights that are finite, >= 0 and not all zero, and refuses others."""

    def __init__(self, array: StagedArray) -> None:
        super().__init__(array)
        self._is_positive = False

    def append(self, rows: np.ndarray) -> None:
        check_block(rows, self.n_rows)
        self._is_positive = self._is_positive or bool(rows.any())
        super().append(rows)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        if kind is None and not self._is_positive:
            refuse_all_zero(self.n_rows)


def cast(block: np.ndarray, dtype: np.dtype[Any], start: int) -> np.ndarray:
    """Return dense rows in another dtype; a value that becomes infinite is refused by its place."""
    converted, lost = _converted(block, dtype)
    if lost.size:
        row, column = np.unravel_index(lost[0], block.shape)
        raise _too_large(start + int(row), int(column), block[row, column], dtype)
    return converted


def cast_sparse(block: SparseRows, dtype: np.dtype[Any], start: int) -> SparseRows:
    """Return CSR rows in another dtype; see `cast`."""
    data, lost = _converted(block.data, dtype)
    if lost.size:
        entry = int(lost[0])
        row = int(np.searchsorted(block.offsets, entry, side="right")) - 1
        raise _too_large(start + row, int(block.indices[entry]), block.data[entry], dtype)
    return SparseRows(data, block.indices, block.indptr, block.n_features)


def _converted(values: np.ndarray, dtype: np.dtype[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return converted values, and the flat places of those that became infinite."""
    with np.errstate(over="ignore"):
        converted = values.astype(dtype, copy=False)
    if not (dtype.kind == values.dtype.kind == "f" and dtype.itemsize < values.dtype.itemsize):
        return converted, np.empty(0, np.int64)
    return converted, np.flatnonzero(np.isinf(converted) & np.isfinite(values))


def _too_large(row: int, column: int, value: Any, dtype: np.dtype[Any]) -> InvalidDataError:
    return InvalidDataError(
        f"Row {row}, column {column}: {value} is too large for dtype={dtype}; keep float64 or scale the "
        "column."
    )
