"""Values of rows written to Zarr in the shape of their grid, with its dimensions and coordinates."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.data.label_files import ReadValues
from daskcluster.data.writer import CHUNK_BYTES, StagedArray, array_metadata
from daskcluster.storage.staging import Staging
from daskcluster.storage.zarr_stores import HEAD, group_document

if TYPE_CHECKING:
    from daskcluster.data.grid import GridShape


GRID_KINDS = ("group", "array")
"""Kinds of outputs that a grid may replace."""


def write_grid(
    url: str,
    grid: GridShape,
    values: Mapping[str, ReadValues],
    *,
    fill: Any = -1,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    before_end: Callable[[], None] = lambda: None,
) -> None:
    """Write values of rows to a Zarr group of arrays in the shape of a grid; whole or absent.

    One value for each row of a single axis is written as an array, not as a group.

    Parameters
    ----------
    url : str
    grid : GridShape
    values : mapping of name to function
        Values (m,) or (m, w) of rows; of several arrays those of one are called ``label``.
    fill : scalar
        Of cells without data; NaN where values are floats and `fill` is -1.
    overwrite, storage_options
        See `daskcluster.data.writer.write_array`.
    before_end : callable () -> None
        Called before the group appears.

    Notes
    -----
    Cost: memory of a slab of about 8 MB along the first axis.
    """
    with Staging.begin(
        url, overwrite=overwrite, storage_options=storage_options, kinds=GRID_KINDS
    ) as staging:
        documents: dict[str, bytes] = {}
        is_column = len(grid.shape) == len(values) == 1 and grid.template is None
        for given, read in values.items():
            name = "" if is_column else given
            array = _begin(staging, grid, name, read, fill)
            for first, slab in _slabs(grid, read, fill, array.block_rows):
                array.put(first, slab)
            documents |= array.document()
        before_end()
        if is_column:
            staging.commit(documents)
            return
        coordinates, attributes = _coordinates(grid.template)
        staging.commit(coordinates | documents | group_document(attributes))


def _fill_of(sample: np.ndarray, fill: Any) -> Any:
    return np.nan if sample.dtype.kind == "f" and fill == -1 else fill


def _begin(staging: Staging, grid: GridShape, name: str, read: ReadValues, fill: Any) -> Any:
    sample = read(0, 1)
    shape = (*grid.shape, *sample.shape[1:])
    per_index = math.prod(shape[1:]) * sample.dtype.itemsize
    step = min(max(1, CHUNK_BYTES // per_index), shape[0])
    names = None
    if grid.template is not None:
        names = [str(each) for each in grid.template.dims] + ["nearest"] * (sample.ndim - 1)
    nodata = _fill_of(sample, fill)
    attributes = {} if grid.template is None else dict(grid.template.attrs)
    if grid.mask is not None and isinstance(nodata, int):
        attributes["nodata"] = nodata
    metadata = array_metadata(shape, step, sample.dtype, names=names, attributes=attributes)
    return StagedArray(staging.work, name, metadata, step)


def _slabs(grid: GridShape, read: ReadValues, fill: Any, step: int) -> Any:
    """Yield slabs along the first axis, and where they begin."""
    start, per_index = 0, math.prod(grid.shape[1:])
    for first in range(0, grid.shape[0], step):
        last = min(first + step, grid.shape[0])
        shape = (last - first, *grid.shape[1:])
        if grid.mask is None:
            found = read(first * per_index, last * per_index)
            yield first, found.reshape(*shape, *found.shape[1:])
            continue
        mask = grid.mask[first:last]
        found = read(start, start + int(np.count_nonzero(mask)))
        start += len(found)
        slab = np.full((*shape, *found.shape[1:]), _fill_of(found, fill), found.dtype)
        slab[mask] = found
        yield first, slab


def _coordinates(template: Any) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the coordinates of a DataArray as files of a Zarr group, by their path, and its attributes."""
    if template is None or not len(template.coords):
        return {}, {}
    from zarr.storage import MemoryStore

    files: dict[str, Any] = {}
    coordinates = template.coords.to_dataset().drop_encoding()
    # Xarray writes no index of several levels, so that each level becomes a coordinate.
    indexes = coordinates.indexes
    stacked = [dim for dim in coordinates.dims if dim in indexes and indexes[dim].nlevels > 1]
    coordinates = coordinates.reset_index(stacked)
    coordinates.to_zarr(MemoryStore(files), zarr_format=3, consolidated=False)
    found = {name: content.to_bytes() for name, content in files.items()}
    attributes = json.loads(found.pop(HEAD))["attributes"]
    # An array appears with its metadata, so these come last.
    return dict(sorted(found.items(), key=lambda file: file[0].endswith(HEAD))), attributes
