"""Writes CSR rows to a Zarr group in AnnData's layout: streamed, whole or absent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from daskcluster.data.writer import CHUNK_BYTES, RowWriter, StagedArray, array_metadata
from daskcluster.errors import InvalidParameterError
from daskcluster.sparse_rows import INDEX_DTYPE, SparseRows
from daskcluster.storage.staging import Staging
from daskcluster.storage.zarr_stores import group_document

_UNKNOWN = 1 << 46
"""A length that no data reaches; the metadata gets the true one at the end."""
_INDPTR_CHUNK = 1 << 20
_ENCODING = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0"}


class CsrShape(Protocol):
    """What has to be known of CSR rows before they are written."""

    @property
    def n_rows(self) -> int: ...
    @property
    def n_features(self) -> int: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def n_entries(self) -> int:
        """Stored values; a guess will do."""
        ...


@dataclass(frozen=True)
class CsrFacts:
    """A `CsrShape` that is known from elsewhere than a dataset."""

    n_rows: int
    n_features: int
    dtype: np.dtype[Any]
    n_entries: int


class CsrWriter:
    """Takes CSR rows block by block; use as a context manager, then publish its `documents`.

    Memory is about three chunks, and 8 bytes a row.

    Parameters
    ----------
    staging : Staging
    name : str
        Of the group below the staging's root; empty for the root itself.
    rows : CsrShape
    attributes : mapping, optional
        Of the group, beside those of the layout.
    """

    def __init__(
        self,
        staging: Staging,
        name: str,
        rows: CsrShape,
        *,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        self._attributes = dict(attributes or {})
        self.chunk = entries_per_chunk(rows)
        self._prefix = f"{name}/" if name else ""
        self._shape = rows.n_rows, rows.n_features
        self._staging = staging
        self._values = self._staged("data", _UNKNOWN, self.chunk, rows.dtype)
        self._columns = self._staged("indices", _UNKNOWN, self.chunk, INDEX_DTYPE)
        self._starts = self._staged("indptr", rows.n_rows + 1, _INDPTR_CHUNK, np.dtype(np.int64))
        self._counts: list[np.ndarray] = []
        self._stack = ExitStack()

    def _staged(self, part: str, length: int, chunk: int, dtype: np.dtype[Any]) -> StagedArray:
        chunk = min(chunk, length)
        metadata = array_metadata((length,), chunk, dtype)
        return StagedArray(self._staging.work, f"{self._prefix}{part}", metadata, chunk)

    def __enter__(self) -> Self:
        self._data = self._stack.enter_context(RowWriter(self._values))
        self._indices = self._stack.enter_context(RowWriter(self._columns))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)
        if kind is None:
            with RowWriter(self._starts) as writer:
                writer.append(np.concatenate([[0], np.cumsum(np.concatenate(self._counts))]))

    @property
    def n_rows(self) -> int:
        """Rows appended so far."""
        return sum(map(len, self._counts))

    @property
    def n_entries(self) -> int:
        """Values appended so far."""
        return self._data.n_rows

    def append(self, rows: SparseRows) -> None:
        """Append rows, in canonical form."""
        self._data.append(rows.data)
        self._indices.append(rows.indices)
        self._counts.append(np.diff(rows.indptr))

    def documents(self) -> dict[str, bytes]:
        """Return the metadata for `Staging.commit`; the group last, for it makes the rows readable."""
        values = self._values.document(self.n_entries) | self._columns.document(self.n_entries)
        attributes = {**_ENCODING, "shape": list(self._shape), **self._attributes}
        return {**values, **self._starts.document(), **group_document(attributes, self._prefix)}


def refuse_row_chunks(chunk_rows: int | None, shard_rows: int | None) -> None:
    """Refuse chunks or shards of so many rows: those of CSR rows are cut by values."""
    if chunk_rows is not None or shard_rows is not None:
        name, value = ("chunk_rows", chunk_rows) if chunk_rows else ("shard_rows", shard_rows)
        raise InvalidParameterError(
            f"{name}={value} is for dense rows; the chunks of sparse rows are cut by values, leave it out."
        )


def entries_per_chunk(rows: CsrShape) -> int:
    """Return how many values (and columns) make a chunk: about 8 MB together."""
    entries = CHUNK_BYTES // (rows.dtype.itemsize + INDEX_DTYPE.itemsize)
    return max(1, min(entries, rows.n_entries))


def write_csr(
    url: Any,
    blocks: Iterable[SparseRows],
    rows: CsrShape,
    *,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Write blocks of CSR rows to a new Zarr group at `url`, whole or absent.

    Parameters
    ----------
    url : str
        Path or URL.
    blocks : iterable of SparseRows
        In order, in canonical form.
    rows : CsrShape
        E.g. the dataset that they come from.
    overwrite : bool
    storage_options : dict, optional

    Raises
    ------
    OutputExistsError
        Something is there already.
    """
    options: dict[str, Any] = {"overwrite": overwrite, "storage_options": storage_options}
    with Staging.begin(url, kinds=("array", "group"), **options) as staging:
        with CsrWriter(staging, "", rows) as writer:
            for block in blocks:
                writer.append(block)
        staging.commit(writer.documents())
