"""Zarr arrays and groups as rows, by URL or as objects; and what is no Zarr and not read in place."""

from __future__ import annotations

from typing import Any

from daskcluster.data.checks import check_dtype, check_shape
from daskcluster.data.converted import ROWS, WEIGHTS
from daskcluster.data.dataset import RowDataset
from daskcluster.data.nodes import metadata_digest, not_an_array, open_node, warn_of_missing_chunks
from daskcluster.data.sparse_zarr import is_csr, open_csr
from daskcluster.data.weighted import stored_weights
from daskcluster.data.weighted_store import holds_weighted_rows
from daskcluster.data.zarr import ZarrDataset, ZarrRecipe, recipe_of
from daskcluster.errors import InvalidDataError
from daskcluster.storage.location import Location


def open_url(location: Location, *, array: str | None = None, flatten: bool = False) -> RowDataset:
    """Open an array, a group of CSR rows, or what `write_weighted` wrote."""
    name = array or ""
    node: Any = open_node(location, name)
    if not name and holds_weighted_rows(node):
        rows = open_url(location, array=ROWS, flatten=flatten)
        return rows.with_weights(stored_weights(location, WEIGHTS, rows.n_rows))
    place = location.child(name) if name else location
    if is_csr(node):
        for part in ("data", "indices"):
            if part in node:
                warn_of_missing_chunks(node[part], place.child(part))
        return open_csr(node, location, name)
    if not hasattr(node, "chunks"):
        raise not_an_array(node, location, name)
    what = f"array at {location.url!r}"
    check_shape(node.shape, flatten=flatten, what=what)
    check_dtype(node.dtype, what=what)
    warn_of_missing_chunks(node, place)
    return ZarrDataset(node, ZarrRecipe(location, name, metadata_digest(node)))


def open_object(array: Any, *, flatten: bool = False) -> RowDataset:
    """Open a `zarr.Array`, or a `zarr.Group` of CSR rows."""
    if is_csr(array):
        return open_csr(array)
    if not hasattr(array, "shape"):
        raise InvalidDataError(
            f"source is a Zarr {type(array).__name__}, not an array; pick one, e.g. group['X']."
        )
    check_shape(array.shape, flatten=flatten, what="Zarr array")
    check_dtype(array.dtype, what="Zarr array")
    return ZarrDataset(array, recipe_of(array))


def refuse_file(location: Location, **_: Any) -> RowDataset:
    """Refuse a file that has to be converted first."""
    raise InvalidDataError(
        f"{location.url!r} is not read in place; turn it into Zarr once with: daskcluster convert "
        f"{location.url} OUTPUT.zarr"
    )
