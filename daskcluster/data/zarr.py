"""Rows of a Zarr array: v2 or v3, sharded or not, in a group or not, chunked along columns too."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.data.dataset import RowDataset
from daskcluster.data.layout import RowLayout
from daskcluster.data.nodes import is_longer, metadata_digest, open_array, read_chunk
from daskcluster.data.recipes import HeldRecipe, StoredRecipe
from daskcluster.data.stored import StoredDataset
from daskcluster.data.weighted import open_weights
from daskcluster.data.writer import write_array
from daskcluster.storage.location import Location, locate
from daskcluster.storage.zarr_stores import METADATA
from daskcluster.typing import Reach

if TYPE_CHECKING:
    import zarr

LOCAL_READERS, REMOTE_READERS = 2, 4
"""Of a local store, one fetches a file while the other decodes; a remote one has latency to hide."""


class ZarrDataset(StoredDataset):
    """Rows of a Zarr array of shape (..., d); all axes before the last are rows, in C order.

    Parameters
    ----------
    array : zarr.Array
    recipe : ZarrRecipe or HeldRecipe
    """

    n_readers = LOCAL_READERS

    def __init__(self, array: zarr.Array[Any], recipe: ZarrRecipe | HeldRecipe) -> None:
        self.array = array
        self._recipe = recipe
        self._layout = RowLayout(array.shape, array.chunks, array.dtype.itemsize)
        super().__init__(array.shape[-1], array.dtype, self._layout.edges)
        if self.own_reach == Reach.EVERYONE:
            self.n_readers = REMOTE_READERS

    def fetch(self, start: int, stop: int) -> np.ndarray:
        blocks, place = [], self.places()
        for index, first, last in self._layout.pieces(start, stop):
            block = np.asarray(read_chunk(self.array, index, self.source, *place))
            blocks.append(block.reshape(-1, self.n_features)[first:last])
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)

    def places(self) -> tuple[Location, ...]:
        return () if isinstance(self._recipe, HeldRecipe) else (self._recipe.place,)

    def may_change(self) -> Collection[str]:
        """Return what changes where rows are appended: the metadata, and a last chunk that was not full."""
        if isinstance(self._recipe, HeldRecipe) or not is_longer(self.array, self._recipe.node()):
            return ()
        step = self.array.shards or self.array.chunks
        last = self.array.shape[0] // step[0]
        counts = [-(-length // size) for length, size in zip(self.array.shape, step, strict=True)]
        rest = product(*(range(count) for count in counts[1:]))
        partial = [(last, *index) for index in rest] if self.array.shape[0] % step[0] else []
        encode = self.array.metadata.encode_chunk_key
        return {*METADATA, *(encode(index) for index in partial)}

    def to_scratch(self, folder: str) -> RowDataset:
        """Write what other processes cannot read to Zarr in `folder`, and return that dataset."""
        return write_scratch(self, folder)


def _write_rows(dataset: RowDataset, location: Location) -> RowDataset:
    spans = dataset.chunks(dataset.partitions)
    write_array(location.url, (chunk.rows for chunk in spans), dataset.n_rows, dataset.dtype)
    return open_zarr(location)


def write_scratch(
    dataset: RowDataset,
    folder: str,
    write_rows: Callable[[RowDataset, Location], RowDataset] = _write_rows,
) -> RowDataset:
    """Write what only this process can read, rows or weights, to Zarr in `folder`, once.

    Parameters
    ----------
    dataset : RowDataset
    folder : str
        Path or URL that the workers can read.
    write_rows : callable (dataset, location) -> RowDataset
        Writes the rows alone and opens them again.

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
    if dataset.own_reach == Reach.PROCESS:
        rows = write_rows(dataset, place.child("rows.zarr"))
    if weights is None:
        return rows
    if weights.reach == Reach.PROCESS:
        url = place.child("weights.zarr").url
        blocks = (weights.read(*span) for span in dataset.partitions)
        write_array(url, blocks, dataset.n_rows, np.dtype(np.float64))
        weights = open_weights(locate(url))
    return rows.with_weights(weights)


def open_zarr(location: Location, name: str = "") -> ZarrDataset:
    """Open rows in a Zarr array whose shape and dtype need no check."""
    array = open_array(location, name)
    return ZarrDataset(array, ZarrRecipe(location, name, metadata_digest(array)))


@dataclass(frozen=True)
class ZarrRecipe(StoredRecipe):
    """A Zarr array of rows by its location."""

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


def location_of(array: Any) -> Location | None:
    """Return where an opened array or group is; None in a store that no URL names."""
    from zarr.storage import FsspecStore, LocalStore

    from daskcluster.storage.azure import BlobStore

    store = array.store
    if isinstance(store, LocalStore):
        location = locate(str(store.root))
    elif type(store) in (FsspecStore, BlobStore):
        fs, path = store.fs, store.path
        fs = getattr(fs, "sync_fs", fs)  # a wrapper around a file system without async calls
        options = {k: v for k, v in fs.storage_options.items() if k != "asynchronous"}
        location = locate(fs.unstrip_protocol(path), options)
    else:
        return None
    return location.child(array.path) if array.path else location
