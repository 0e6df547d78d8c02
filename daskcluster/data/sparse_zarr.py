"""CSR rows in a Zarr group in AnnData's layout, read in place."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.data.checks import check_dtype, check_shape
from daskcluster.data.nodes import metadata_digest, open_node, read_chunk
from daskcluster.data.partitioned import StoredDataset
from daskcluster.data.recipes import HeldRecipe, StoredRecipe
from daskcluster.data.sparse import SparseDataset, canonical, check_structure
from daskcluster.data.zarr import REMOTE_READERS
from daskcluster.errors import InvalidDataError
from daskcluster.sparse_rows import SparseRows
from daskcluster.storage.location import Location
from daskcluster.storage.zarr_stores import location_of
from daskcluster.typing import Visibility

if TYPE_CHECKING:
    import zarr


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
