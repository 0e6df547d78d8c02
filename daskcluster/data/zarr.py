"""Rows of a Zarr array: v2 or v3, sharded or not, in a group or not, also chunked along columns."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import zarr
from zarr.abc.buffer import BufferPrototype
from zarr.abc.buffer import NDBuffer as AnyNDBuffer
from zarr.buffer.cpu import Buffer, NDBuffer

from daskcluster.data.checks import is_bfloat16
from daskcluster.data.dataset import RowDataset
from daskcluster.data.nodes import is_longer, metadata_digest, open_array, read_chunk
from daskcluster.data.partitioned import StoredDataset
from daskcluster.data.partitions import MOST_BYTES
from daskcluster.data.recipes import HeldRecipe, StoredRecipe
from daskcluster.data.weighted import open_weights
from daskcluster.data.writer import RowsShape, write_rows, write_values
from daskcluster.sparse_rows import owned_rows
from daskcluster.storage.location import Location, locate
from daskcluster.storage.zarr_stores import METADATA, location_of
from daskcluster.typing import Visibility

if TYPE_CHECKING:
    import zarr


class ZeroCopyBuffer(NDBuffer):
    """Buffer of a selection: takes over a decoded chunk that is all of it.

    Zarr copies each decoded chunk to its place, in the one thread of its event loop. Until then a chunk
    takes its memory twice, and chunks that are decoded wait for each other.
    """

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, AnyNDBuffer):
            decoded = value.as_numpy_array()
            if self._is_all(decoded):
                super().__init__(cast("Any", decoded))
                return
        super().__setitem__(key, value)

    def _is_all(self, decoded: np.ndarray) -> bool:
        # The last chunk is stored whole: its rows alone are copied, for they are to keep no more alive.
        return (
            decoded.shape == self.shape
            and decoded.dtype == self.dtype
            and decoded.flags.c_contiguous
            and owned_rows(decoded) is decoded
        )


_ZERO_COPY = BufferPrototype(buffer=Buffer, nd_buffer=ZeroCopyBuffer)


def read_zero_copy(array: zarr.Array[Any], index: Any) -> np.ndarray:
    """Return ``array[index]`` for slices and numbers; read-only where it is one chunk as decoded.

    Parameters
    ----------
    array : zarr.Array
    index : slice, or tuple of slices and int

    Examples
    --------
    >>> import zarr
    >>> rows = zarr.array(np.arange(6.0).reshape(3, 2), chunks=(2, 2))
    >>> read_zero_copy(rows, slice(0, 2)).tolist(), read_zero_copy(rows, slice(1, 3)).tolist()
    ([[0.0, 1.0], [2.0, 3.0]], [[2.0, 3.0], [4.0, 5.0]])
    """
    if array.shards is not None:  # Zarr knows no prototype within shards
        return np.asarray(array[index])
    return np.asarray(array.get_basic_selection(index, prototype=_ZERO_COPY))


@dataclass(frozen=True)
class RowLayout:
    """The rows of an array of shape (..., d) stored in regular chunks.

    Parameters
    ----------
    shape, chunks : tuple of int
        Of the stored array, last axis included.
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
"""Of a local store, one fetches a file while the other decodes; a remote one has latency to hide."""


def row_axes(n_axes: int, features: Sequence[int]) -> tuple[int, ...]:
    """Return the axes that hold no features, in order."""
    return tuple(axis for axis in range(n_axes) if axis not in features)


def all_positions(shape: Sequence[int], features: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the positions of a whole array; see `ZarrRecipe`."""
    return [
        tuple(range(length)) if axis in features else (0, length)
        for axis, length in enumerate(shape)
    ]


class ZarrDataset(StoredDataset):
    """Rows of a Zarr array of any number of axes: its cells in C order, with features on any axes.

    Parameters
    ----------
    array : zarr.Array
    recipe : ZarrRecipe or HeldRecipe
        A `HeldRecipe` is one of the whole array, with the features on its last axis.
    """

    n_readers = LOCAL_READERS

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
    from daskcluster.data.open import open_source  # which builds on this module

    place = locate(folder)
    weights, rows = dataset.own_weights, dataset
    if dataset.own_visibility == Visibility.PROCESS:
        url, shape = place.child("rows.zarr").url, RowsShape.of(dataset)
        if is_bfloat16(dataset.dtype):  # which Zarr does not have
            shape = replace(shape, dtype=np.dtype(np.float32))
        write_rows(url, (chunk.rows for chunk in dataset.chunks(dataset.partitions)), shape)
        rows = cast("RowDataset", open_source(url))
    if weights is None:
        return rows
    if weights.visibility == Visibility.PROCESS:
        url = place.child("weights.zarr").url
        blocks = (weights.read(*span) for span in dataset.partitions)
        write_values(url, blocks, dataset.n_rows, np.dtype(np.float64))
        weights = open_weights(locate(url))
    return rows.with_weights(weights)


def open_zarr(location: Location, name: str = "") -> ZarrDataset:
    """Open rows in a Zarr array whose shape and dtype need no check."""
    array = open_array(location, name)
    return ZarrDataset(array, ZarrRecipe(location, name, metadata_digest(array)))


@dataclass(frozen=True)
class ZarrRecipe(StoredRecipe):
    """A Zarr array by its location, or a part of it.

    Attributes
    ----------
    features : tuple of int
        The axes that hold features; empty for the last one of an array that is read as it is.
    positions : tuple of tuple of int
        Of each axis: (start, stop) along rows; all positions that are read along features.
    decoding : daskcluster.data.grid_rows.Decoding, optional
    """

    features: tuple[int, ...] = ()
    positions: tuple[tuple[int, ...], ...] = ()
    decoding: Any = None

    what = "array"

    def node(self) -> Any:
        return open_array(self.location, self.name)

    def digest_of(self, node: Any) -> str:
        return metadata_digest(node)

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
