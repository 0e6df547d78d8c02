"""CSR rows in a Zarr group in AnnData's layout: read in place, written whole or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from daskcluster.data.checks import check_dtype, check_shape
from daskcluster.data.nodes import metadata_digest, open_node, read_chunk
from daskcluster.data.partitioned import StoredDataset
from daskcluster.data.recipes import HeldRecipe, StoredRecipe
from daskcluster.data.sparse import SparseDataset, canonical, check_structure
from daskcluster.data.writer import CHUNK_BYTES, RowWriter, StagedArray, array_metadata
from daskcluster.data.zarr import REMOTE_READERS, write_scratch
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.sparse_rows import INDEX_DTYPE, SparseRows
from daskcluster.storage.location import Location
from daskcluster.storage.staging import Staging
from daskcluster.storage.zarr_stores import group_document, location_of
from daskcluster.typing import Visibility

if TYPE_CHECKING:
    import zarr

    from daskcluster.data.dataset import RowDataset


_UNKNOWN = 1 << 46
"""A length that no data reaches; the metadata gets the true one at the end."""
_INDPTR_CHUNK = 1 << 20
_ENCODING = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0"}


class CsrShape(Protocol):
    """Facts about CSR rows that are needed before they are written."""

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
class CsrLayout:
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
        Attributes of the group in addition to those of the layout.
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


PARTS = ("data", "indices", "indptr")
_LEAST_STEP = 1 << 15
"""Values between two places where reads may begin: storage chunks may be smaller than is useful."""
_TAIL = 1 << 12
"""Values of a row in the next chunk that are remembered at most: 0.4 % of a read."""
_INDEX_KINDS = (np.dtype(np.int32), np.dtype(np.int64))


def is_csr(node: Any) -> bool:
    """Return True for a Zarr group that holds CSR rows."""
    return encoding_of(node) == "csr_matrix"


def encoding_of(node: Any) -> str:
    """Return what a node of AnnData says it is; empty if it says nothing."""
    attributes = getattr(node, "attrs", {})
    return str(attributes.get("encoding-type", ""))


class ZarrSparseDataset(StoredDataset, SparseDataset):
    """CSR rows in a Zarr group.

    Parameters
    ----------
    group : zarr.Group
    recipe : ZarrSparseRecipe or HeldRecipe

    Raises
    ------
    InvalidDataError
        The arrays do not fit each other or the shape.

    Notes
    -----
    Cost: ``indptr`` is read when the dataset is opened, and kept.
    """

    def __init__(self, group: zarr.Group, recipe: ZarrSparseRecipe | HeldRecipe) -> None:
        self.group = group
        self._recipe = recipe
        self._data, self._indices, shape = _arrays_of(group, recipe.source)
        indptr = _read_indptr(group, recipe.source)
        lengths = self._data.shape[0], self._indices.shape[0]
        check_structure(indptr, *lengths, shape, f"The CSR group at {recipe.source}")
        self._chunk = max(self._data.chunks[0], self._indices.chunks[0])
        self._tails: dict[tuple[str, int], np.ndarray] = {}
        entry_bytes = self._data.dtype.itemsize + self._indices.dtype.itemsize
        edges = row_edges(indptr, self._chunk)
        super().__init__(shape[1], self._data.dtype, indptr, entry_bytes, edges)
        if self.own_visibility == Visibility.EVERYONE:
            self.n_readers = REMOTE_READERS

    def fetch(self, start: int, stop: int) -> SparseRows:
        first, last = int(self.indptr[start]), int(self.indptr[stop])
        data = self._values("data", self._data, first, last)
        indices = self._values("indices", self._indices, first, last)
        rows = SparseRows(data, indices, self.indptr[start : stop + 1], self.n_features)
        return canonical(rows, start, self.source)

    def _values(self, name: str, array: zarr.Array[Any], first: int, last: int) -> np.ndarray:
        """Return values `first` to `last`, the end of the last row from memory if it was read before."""
        edge = last - last % self._chunk
        if not first < edge < last <= edge + _TAIL:
            return self._read(name, array, first, last)
        tail = self._tails.get((name, last))
        if tail is None:
            whole = self._read(name, array, first, last)
            if np.any(self.indptr[self._edges] == last):
                self._tails[name, last] = whole[edge - first :].copy()
            return whole
        return np.concatenate([self._read(name, array, first, edge), tail])

    def _read(self, name: str, array: zarr.Array[Any], first: int, last: int) -> np.ndarray:
        if first == last:
            return np.empty(0, array.dtype)
        where = f"{name!r} of {self.source}"
        place = self.places()[:1]
        values = np.asarray(read_chunk(array, slice(first, last), where, *place))
        if name == "indices" and values.dtype not in _INDEX_KINDS:
            return values.astype(np.int64)
        return values.astype(values.dtype.newbyteorder("="), copy=False)

    def places(self) -> tuple[Location, ...]:
        if isinstance(self._recipe, HeldRecipe):
            return ()
        return tuple(self._recipe.place.child(name) for name in PARTS)


def _arrays_of(group: zarr.Group, where: str) -> tuple[Any, Any, tuple[int, int]]:
    """Return data, indices and shape of a CSR group, after the checks that metadata allows."""
    missing = [name for name in PARTS if name not in group]
    shape: Any = group.attrs.get("shape")
    if missing or not (isinstance(shape, (list, tuple)) and len(shape) == 2):
        what = f"no array {missing[0]!r}" if missing else f"shape={shape!r} in its attributes"
        raise InvalidDataError(
            f"The CSR group at {where} has {what}; data, indices, indptr and a shape (rows, columns) are "
            "needed. Write it again."
        )
    shape = (int(shape[0]), int(shape[1]))
    check_shape(shape, flatten=False, what=f"CSR group at {where}")
    parts: list[Any] = [group[name] for name in PARTS]
    data, indices, indptr = parts
    check_dtype(data.dtype, what=f"CSR group at {where}")
    for name, array in zip(PARTS, parts, strict=True):
        if array.ndim != 1:
            raise InvalidDataError(
                f"{name!r} of the CSR group at {where} has shape={array.shape}; it should have one axis. "
                "Write it again."
            )
    for name, array in (("indices", indices), ("indptr", indptr)):
        if array.dtype.kind not in "iu":
            raise InvalidDataError(
                f"{name!r} of the CSR group at {where} has dtype={array.dtype}; it should hold integers. "
                "Write it again."
            )
    return data, indices, shape


def _read_indptr(group: zarr.Group, where: str) -> np.ndarray:
    array: Any = group["indptr"]
    values = read_chunk(array, slice(None), f"'indptr' of {where}")
    return np.asarray(values).astype(np.int64, copy=False)


def row_edges(indptr: np.ndarray, chunk: int) -> np.ndarray:
    """Return the first rows that begin in each storage chunk (or in each few, if those are small)."""
    step = chunk * -(-_LEAST_STEP // chunk)
    starts = np.arange(0, max(1, int(indptr[-1])), step)
    rows = np.searchsorted(indptr[:-1], starts, side="left")
    return np.unique(np.concatenate([[0], rows, [len(indptr) - 1]])).astype(np.int64)


@dataclass(frozen=True)
class ZarrSparseRecipe(StoredRecipe):
    """A CSR group by its location."""

    what = "CSR group"

    def node(self) -> Any:
        return open_node(self.location, self.name)

    def digest_of(self, node: Any) -> str:
        return _digest(node) if is_csr(node) else ""

    def dataset(self, node: Any) -> ZarrSparseDataset:
        return ZarrSparseDataset(node, self)


def _digest(group: Any) -> str:
    """Return a digest of what decides how the rows are read."""
    facts = [str(group.attrs.get("shape"))]
    facts += [metadata_digest(group[name]) for name in PARTS if name in group]
    return hashlib.sha256(" ".join(facts).encode()).hexdigest()[:16]


def open_csr(group: Any, location: Location | None = None, name: str = "") -> ZarrSparseDataset:
    """Open a CSR group, found at `location` or handed over as a `zarr.Group`."""
    if location is None:
        location = location_of(group)
    if location is None:
        what = f"Zarr group in a {type(group.store).__name__}"
        return ZarrSparseDataset(group, HeldRecipe.of(group, what, ZarrSparseDataset))
    return ZarrSparseDataset(group, ZarrSparseRecipe(location, name, _digest(group)))


def write_sparse_scratch(dataset: SparseDataset, folder: str) -> RowDataset:
    """Do as `daskcluster.data.zarr.write_scratch` for CSR rows."""
    return write_scratch(dataset, folder, _write_rows)


def _write_rows(dataset: Any, location: Location) -> ZarrSparseDataset:
    write_csr(location.url, (chunk.rows for chunk in dataset.chunks(dataset.partitions)), dataset)
    return open_csr(open_node(location), location)
