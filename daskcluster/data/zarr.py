"""Rows in Zarr, v2 or v3: arrays of any number of axes, and CSR groups in AnnData's layout."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import zarr

from daskcluster.data.checks import check_dtype, check_shape, is_bfloat16
from daskcluster.data.csr import CsrLayout, canonical, check_structure
from daskcluster.data.dataset import RowDataset
from daskcluster.data.nodes import (
    is_csr,
    is_longer,
    metadata_digest,
    open_array,
    open_node,
    read_chunk,
)
from daskcluster.data.partitions import MOST_BYTES
from daskcluster.data.recipes import HeldRecipe, StoredRecipe
from daskcluster.data.weighted import open_weights
from daskcluster.data.writer import RowsShape, write_rows, write_values
from daskcluster.errors import InvalidDataError
from daskcluster.sparse_rows import SparseRows
from daskcluster.storage.location import Location, locate
from daskcluster.storage.zarr_stores import METADATA, location_of
from daskcluster.typing import Visibility


@dataclass(frozen=True)
class RowLayout:
    """The rows of an array of shape (..., d) stored in regular chunks.

    Parameters
    ----------
    shape, chunks : tuple of int
        Shape of the stored array, last axis included, and of its chunks.
    itemsize : int
    offsets : tuple of int, optional
        Where the rows begin along each axis, if they are a part of the array; `shape` is then that of the
        part.

    Examples
    --------
    >>> layout = RowLayout((4, 3, 2), (2, 3, 2), 8)
    >>> layout.n_rows, layout.n_features, layout.edges.tolist()
    (12, 2, [0, 6, 12])
    >>> list(layout.pieces(4, 8))
    [((slice(1, 3, None),), 1, 5)]
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    itemsize: int
    offsets: tuple[int, ...] = ()

    @property
    def n_rows(self) -> int:
        return math.prod(self.shape[:-1])

    @property
    def n_features(self) -> int:
        return self.shape[-1]

    @cached_property
    def axis(self) -> int:
        """The axis along which slabs are cut; the axes before it have chunks of one."""
        n_row_axes = len(self.shape) - 1
        for axis in range(n_row_axes):
            slab = self.chunks[axis] * math.prod(self.shape[axis + 1 :]) * self.itemsize
            if slab <= MOST_BYTES or self.chunks[axis] > 1:
                return axis
        return n_row_axes - 1

    @property
    def inner(self) -> int:
        """Rows per index of the slab axis."""
        return math.prod(self.shape[self.axis + 1 : -1])

    @cached_property
    def edges(self) -> np.ndarray:
        """Row indices (int64) at which storage chunks begin, and n at the end."""
        length, step = self.shape[self.axis], self.chunks[self.axis]
        first = self.offsets[self.axis] % step if self.offsets else 0
        within = np.maximum(np.arange(-first, length, step, dtype=np.int64), 0) * self.inner
        per_prefix = length * self.inner
        n_prefixes = math.prod(self.shape[: self.axis])
        starts = np.arange(n_prefixes, dtype=np.int64)[:, None] * per_prefix + within
        return np.append(starts.ravel(), self.n_rows)

    def pieces(self, start: int, stop: int) -> Iterator[tuple[tuple[slice | int, ...], int, int]]:
        """Yield ``(index, first, last)``: rows `first` to `last` of ``array[index]`` flattened."""
        per_prefix = self.shape[self.axis] * self.inner
        prefixes = self.shape[: self.axis]
        for prefix in range(start // per_prefix, -(-stop // per_prefix)):
            origin = prefix * per_prefix
            low, high = max(start - origin, 0), min(stop - origin, per_prefix)
            first, last = low // self.inner, -(-high // self.inner)
            fixed = tuple(int(i) for i in np.unravel_index(prefix, prefixes)) if prefixes else ()
            skipped = first * self.inner
            yield (*fixed, slice(first, last)), low - skipped, high - skipped


LOCAL_READERS, REMOTE_READERS = 2, 4
"""In a local store, one fetches a file while the other decodes; a remote one has latency to hide."""


def row_axes(n_axes: int, features: Sequence[int]) -> tuple[int, ...]:
    """Return the axes that hold no features, in order."""
    return tuple(axis for axis in range(n_axes) if axis not in features)


def all_positions(shape: Sequence[int], features: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the positions of a whole array; see `ZarrRecipe`."""
    return [
        tuple(range(length)) if axis in features else (0, length)
        for axis, length in enumerate(shape)
    ]


class ZarrDataset(RowDataset):
    """Rows of a Zarr array of any number of axes: its cells in C order, with features on any axes.

    Parameters
    ----------
    array : zarr.Array
    recipe : ZarrRecipe or HeldRecipe
        A `HeldRecipe` is one of the whole array, with the features on its last axis.
    """

    n_readers = LOCAL_READERS
    __reduce__ = RowDataset.by_recipe

    def __init__(self, array: zarr.Array[Any], recipe: ZarrRecipe | HeldRecipe) -> None:
        self.array: Any = array
        self._recipe = recipe
        features = getattr(recipe, "features", ()) or (array.ndim - 1,)
        self._positions = getattr(recipe, "positions", ()) or all_positions(array.shape, features)
        self._decoding: Any = getattr(recipe, "decoding", None)
        self._features, self._rows = features, row_axes(array.ndim, features)
        spans = [self._positions[axis] for axis in self._rows]
        d = math.prod(len(self._positions[axis]) for axis in features)
        dtype = array.dtype
        if self._decoding is not None:
            dtype = np.dtype(self._decoding.dtype or np.float32)
        self._layout = RowLayout(
            (*(stop - start for start, stop in spans), d),
            (*(array.chunks[axis] for axis in self._rows), d),
            dtype.itemsize,
            tuple(start for start, _ in spans),
        )
        super().__init__(d, dtype, self._layout.edges)
        if self.own_visibility == Visibility.EVERYONE:
            self.n_readers = REMOTE_READERS
        if getattr(recipe, "features", ()):
            # Each reader holds a box as it is stored, and its rows.
            self.reader_bytes = self.n_readers * max(self.chunk_sizes) * self.row_bytes

    @cached_property
    def _picked(self) -> list[tuple[slice, np.ndarray | None]]:
        """Return for each feature axis what is read, and what of that is taken; None: all."""
        found: list[tuple[slice, np.ndarray | None]] = []
        for axis in self._features:
            at = np.array(self._positions[axis])
            low, high = int(at.min()), int(at.max()) + 1
            whole = np.array_equal(at, np.arange(low, high))
            found.append((slice(low, high), None if whole else at - low))
        return found

    def fetch(self, start: int, stop: int) -> np.ndarray:
        blocks = [
            self._block(index)[first:last]
            for index, first, last in self._layout.pieces(start, stop)
        ]
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)

    def _block(self, index: tuple[slice | int, ...]) -> np.ndarray:
        """Return the rows of a box of cells, shape (m, d)."""
        whole = [slice(None)] * self.array.ndim
        for axis, at in zip(self._rows, index, strict=False):
            start = self._positions[axis][0]
            low, high = (at, at + 1) if isinstance(at, int) else (at.start, at.stop)
            whole[axis] = slice(start + low, start + high)
        for axis in self._rows[len(index) :]:
            whole[axis] = slice(*self._positions[axis])
        for axis, (span, _) in zip(self._features, self._picked, strict=True):
            whole[axis] = span
        block = np.asarray(read_chunk(self.array, tuple(whole), self.source, *self.places()))
        for axis, (_, taken) in zip(self._features, self._picked, strict=True):
            block = block if taken is None else block.take(taken, axis)
        rows = block.transpose(*self._rows, *self._features).reshape(-1, self.n_features)
        return np.ascontiguousarray(rows if self._decoding is None else self._decoding.apply(rows))

    def places(self) -> tuple[Location, ...]:
        return () if isinstance(self._recipe, HeldRecipe) else (self._recipe.place,)

    def may_change(self) -> Collection[str]:
        if isinstance(self._recipe, HeldRecipe):
            return ()
        return changed_by_appending(self.array, self._recipe.node())


def changed_by_appending(array: zarr.Array[Any], now: Any) -> Collection[str]:
    """Return what changed where rows were appended: the metadata, and a last chunk that was not full."""
    if not is_longer(array, now):
        return ()
    step = array.shards or array.chunks
    last = array.shape[0] // step[0]
    counts = [-(-length // size) for length, size in zip(array.shape, step, strict=True)]
    rest = product(*(range(count) for count in counts[1:]))
    partial = [(last, *index) for index in rest] if array.shape[0] % step[0] else []
    encode = array.metadata.encode_chunk_key
    return {*METADATA, *(encode(index) for index in partial)}


def write_scratch(dataset: RowDataset, folder: str) -> RowDataset:
    """Write what only this process can read, rows or weights, to Zarr in `folder`, once.

    Parameters
    ----------
    dataset : RowDataset
    folder : str
        Path or URL that the workers can read.

    Returns
    -------
    RowDataset
        The dataset itself if other processes can read it already.

    Notes
    -----
    Cost: one pass over what is written, in bounded memory.
    """
    place = locate(folder)
    weights, rows = dataset.own_weights, dataset
    if dataset.own_visibility == Visibility.PROCESS:
        own, shape = place.child("rows.zarr"), RowsShape.of(dataset)
        if is_bfloat16(dataset.dtype):  # which Zarr does not have
            shape = replace(shape, dtype=np.dtype(np.float32))
        write_rows(own, (chunk.rows for chunk in dataset.chunks(dataset.partitions)), shape)
        rows = open_zarr(own) if shape.n_entries is None else open_csr(open_node(own), own)
    if weights is None:
        return rows
    if weights.visibility == Visibility.PROCESS:
        url = place.child("weights.zarr").url
        blocks = (weights.read(*span) for span in dataset.partitions)
        write_values(url, blocks, dataset.n_rows, np.dtype(np.float64))
        weights = open_weights(locate(url))
    return rows.with_weights(weights)


def open_zarr(location: Location) -> ZarrDataset:
    """Open rows in a Zarr array whose shape and dtype need no check."""
    array = open_array(location)
    return ZarrDataset(array, ZarrRecipe(location, "", metadata_digest(array)))


@dataclass(frozen=True)
class ZarrRecipe(StoredRecipe):
    """A Zarr array by its location, or a part of it.

    Attributes
    ----------
    features : tuple of int
        The axes that hold features; empty for the last one of an array that is read as it is.
    positions : tuple of tuple of int
        For each axis: (start, stop) along rows; all positions that are read along features.
    decoding : daskcluster.data.grid.Decoding, optional
    """

    features: tuple[int, ...] = ()
    positions: tuple[tuple[int, ...], ...] = ()
    decoding: Any = None

    what = "array"

    def dataset(self, node: Any) -> ZarrDataset:
        return ZarrDataset(node, self)


def recipe_of(array: zarr.Array[Any]) -> ZarrRecipe | HeldRecipe:
    """Return the recipe of an array that was opened elsewhere, by the URL of its store if it has one."""
    location = location_of(array)
    if location is None:
        store = type(array.store).__name__
        what = f"Zarr array in a {store} of shape {array.shape}"
        return HeldRecipe.of(array, what, ZarrDataset)
    return ZarrRecipe(location, "", metadata_digest(array))


PARTS = ("data", "indices", "indptr")
_LEAST_STEP = 1 << 15
"""Values between two places where reads may begin: storage chunks may be smaller than is useful."""
_TAIL = 1 << 12
"""Values of a row in the next chunk that are remembered at most: 0.4 % of a read."""
_INDEX_KINDS = (np.dtype(np.int32), np.dtype(np.int64))


class ZarrSparseDataset(RowDataset):
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

    __reduce__ = RowDataset.by_recipe

    def __init__(self, group: zarr.Group, recipe: ZarrSparseRecipe | HeldRecipe) -> None:
        self.group = group
        self._recipe = recipe
        self._data, self._indices, shape = csr_arrays(group, recipe.source)
        stored: Any = group["indptr"]
        values = read_chunk(stored, slice(None), f"'indptr' of {recipe.source}")
        indptr = np.asarray(values).astype(np.int64, copy=False)
        lengths = self._data.shape[0], self._indices.shape[0]
        check_structure(indptr, *lengths, shape, f"The CSR group at {recipe.source}")
        self._chunk = max(self._data.chunks[0], self._indices.chunks[0])
        self._tails: dict[tuple[str, int], np.ndarray] = {}
        self._indptr = indptr
        entry_bytes = self._data.dtype.itemsize + self._indices.dtype.itemsize
        edges = row_edges(indptr, self._chunk)
        super().__init__(shape[1], self._data.dtype, edges, CsrLayout(indptr, entry_bytes))
        if self.own_visibility == Visibility.EVERYONE:
            self.n_readers = REMOTE_READERS

    def fetch(self, start: int, stop: int) -> SparseRows:
        first, last = int(self._indptr[start]), int(self._indptr[stop])
        data = self._values("data", self._data, first, last)
        indices = self._values("indices", self._indices, first, last)
        rows = SparseRows(data, indices, self._indptr[start : stop + 1], self.n_features)
        return canonical(rows, start, self.source)

    def _values(self, name: str, array: zarr.Array[Any], first: int, last: int) -> np.ndarray:
        """Return values `first` to `last`, the end of the last row from memory if it was read before."""
        edge = last - last % self._chunk
        if not first < edge < last <= edge + _TAIL:
            return self._read(name, array, first, last)
        tail = self._tails.get((name, last))
        if tail is None:
            whole = self._read(name, array, first, last)
            if np.any(self._indptr[self._edges] == last):
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


def csr_arrays(group: Any, where: str) -> tuple[Any, Any, tuple[int, int]]:
    """Return data, indices and shape of a CSR group of Zarr or HDF5, after the checks of its metadata."""
    missing = [name for name in PARTS if name not in group]
    shape: Any = group.attrs.get("shape")
    if missing or np.shape(shape) != (2,):
        what = f"no array {missing[0]!r}" if missing else f"shape={shape!r} in its attributes"
        raise InvalidDataError(
            f"The CSR group at {where} has {what}; data, indices, indptr and a shape (rows, columns) are "
            "needed. Write it again."
        )
    shape = (int(shape[0]), int(shape[1]))
    check_shape(shape, flatten=False, what=f"CSR group at {where}")
    parts: list[Any] = [group[name] for name in PARTS]
    check_dtype(parts[0].dtype, what=f"CSR group at {where}")
    for name, array in zip(PARTS, parts, strict=True):
        if array.ndim != 1 or (name != "data" and array.dtype.kind not in "iu"):
            raise InvalidDataError(
                f"{name!r} of the CSR group at {where} has shape={array.shape} and dtype={array.dtype}; it "
                "should have one axis, and hold integers if it is indices or indptr. Write it again."
            )
    return parts[0], parts[1], shape


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
