"""Functions of rows under a fitted model, mapped over rows wherever they are, into arrays or files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.assign import RowFunction
from daskcluster.chunkwise.feature_scaling import FeatureScaling
from daskcluster.data.checks import frame_rows, without_mask
from daskcluster.data.dataset import refuse_replacing
from daskcluster.data.grid import (
    feature_axes,
    grid_mapping,
    variables_as_features,
)
from daskcluster.data.label_files import (
    GRID_KINDS,
    check_map,
    is_file_output,
    mask_of_source,
    name_of_cells,
    no_data,
    rows_of,
    spread,
    write_grid,
    write_label_file,
)
from daskcluster.data.memory import is_sparse, scipy_rows
from daskcluster.data.missing import ALL, SOME, presence
from daskcluster.data.writer import ArraySink, ZarrSink
from daskcluster.engine.engine import Engine, Placement
from daskcluster.engine.memory import ONE_PASS
from daskcluster.engine.operations import output_blocks
from daskcluster.estimators.checkpoints import fingerprint_of_rows
from daskcluster.estimators.inputs import is_dask_frame
from daskcluster.events import Callback
from daskcluster.sparse_rows import SparseRows
from daskcluster.storage.files import check_space
from daskcluster.storage.location import locate
from daskcluster.storage.staging import check_free
from daskcluster.typing import Dataset, Range, Recipe

FunctionFor = Callable[[np.dtype[Any]], RowFunction]
"""(dtype of the rows as they are compared) -> the function of such rows."""


def map_rows(
    dataset: Dataset, function: RowFunction, engine: Engine, callbacks: Sequence[Callback] = ()
) -> np.ndarray:
    """Return the results of all rows of a dataset, shape (n,) or (n, width). One pass.

    With ``missing="drop"``, rows that were left out get NaN, or -1 for integers.
    """
    with engine.place(dataset, callbacks=callbacks, footprint=ONE_PASS) as placement:
        return spread(mask_of_source(dataset), results_of_rows(placement, function))


def results_of_rows(placement: Placement, function: RowFunction) -> np.ndarray:
    """Return the results of all rows of a placement, shape (n,) or (n, width). One pass."""
    found = _empty(placement.dataset.n_rows, function)
    _fill(placement, function, ArraySink(found))
    return found


def _empty(n_rows: int, function: RowFunction) -> np.ndarray:
    width = function.width
    return np.empty((n_rows, width) if width else n_rows, function.dtype)


def _fill(placement: Placement, function: RowFunction, sink: Any) -> None:
    options: dict[str, Any] = {"prepare": function.prepare, "name": function.name}
    placement.map_rows(function.compute, sink, function.params, **options)


@dataclass(frozen=True)
class _OfCompleteRows:
    """A function of a chunk whose results are -1 or NaN for rows that lack a value."""

    compute: Callable[[Chunk, Any], np.ndarray]

    def __call__(self, chunk: Chunk, prepared: Any) -> np.ndarray:
        if isinstance(chunk.rows, SparseRows) or not np.any(lacking := presence(chunk.rows) < ALL):
            return self.compute(chunk, prepared)
        rows = np.array(chunk.rows)
        rows[lacking] = 0  # errors name the other rows by their numbers
        found = self.compute(replace(chunk, rows=rows), prepared)
        found[lacking] = no_data(found.dtype)
        return found


def of_complete_rows(function_for: FunctionFor) -> FunctionFor:
    """Return functions whose results are -1 or NaN for rows that lack a value."""

    def complete(dtype: np.dtype[Any]) -> RowFunction:
        function = function_for(dtype)
        return replace(function, compute=_OfCompleteRows(function.compute))

    return complete


# -- lazily, over dask collections and by recipe ------------------------------------------------------


def block_results(
    rows: Any, function: RowFunction, scaling: FeatureScaling | None = None
) -> np.ndarray:
    """Return the results of one block, which is brought to a scale first; the body of every lazy task."""
    if is_sparse(rows):
        rows = scipy_rows(rows, what="a block of the dask array")
    if len(rows) == 0:
        return _empty(0, function)
    rows = rows if isinstance(rows, SparseRows) else without_mask(rows)
    rows = rows if scaling is None else scaling.apply(rows)
    return function.ready()(Chunk(rows)).astype(function.dtype, copy=False)


def map_lazily(X: Any, function_for: FunctionFor, scaling: FeatureScaling | None) -> Any:
    """Map a function over a dask collection, without computing anything.

    Parameters
    ----------
    X : dask.array.Array or dask DataFrame
    function_for : callable (dtype) -> RowFunction
    scaling : FeatureScaling, optional
        The scale to which rows are brought first.

    Returns
    -------
    dask array with the row chunks of `X`
        For a frame a dask Series, or a DataFrame where results have a width or fields, with its partitions
        and its index.
    """
    # Imported here, since only callers with a dask collection have imported dask.
    from daskcluster.data.dask_array import rows_of as dask_rows

    rows = dask_rows(X)
    function = function_for(rows.dtype if scaling is None else scaling.dtype_of(rows.dtype))
    width = function.width
    if is_dask_frame(X):
        return X.map_partitions(
            _frame_block, function, scaling, meta=_as_frame(_empty(0, function))
        )
    return rows.map_blocks(
        block_results,
        function,
        scaling,
        dtype=function.dtype,
        chunks=(rows.chunks[0], (width,)) if width else (rows.chunks[0],),
        drop_axis=None if width else 1,
        meta=np.empty((0, 0) if width else (0,), function.dtype),
    )


def _frame_block(frame: Any, function: RowFunction, scaling: FeatureScaling | None) -> Any:
    return _as_frame(block_results(frame_rows(frame), function, scaling), frame.index)


def _as_frame(values: np.ndarray, index: Any = None) -> Any:
    import pandas as pd

    names = values.dtype.names
    if names is None:
        return (pd.Series if values.ndim == 1 else pd.DataFrame)(values, index)
    table = values.reshape(len(values), -1 if values.size else (values.shape[1:] or (1,))[0])
    columns = {
        name if table.shape[1] == 1 else f"{name}_{i}": table[name][:, i]
        for name in names
        for i in range(table.shape[1])
    }
    return pd.DataFrame(columns, index)


def lazy_rows(dataset: Dataset, function: RowFunction) -> Any:
    """Map a function over the chunks of a dataset as a lazy dask array; tasks open it by its recipe."""
    own = getattr(dataset, "array", None)
    if hasattr(own, "__dask_graph__"):
        # The rows are a dask collection, which can be read wherever the result is computed.
        return map_lazily(own, lambda _: function, getattr(dataset, "scaling", None))

    import dask.array as da
    from dask import delayed

    recipe, mask, parts, start = dataset.recipe(), mask_of_source(dataset), [], 0
    sizes = [size for size in dataset.chunk_sizes if size]
    for size, length in zip(sizes, source_chunks(dataset), strict=True):
        kept = None if mask is None else mask[:length]
        mask = None if mask is None else mask[length:]
        block = delayed(_read_and_map, pure=True)(recipe, (start, start + size), function, kept)
        shape = (length, function.width) if function.width else (length,)
        parts.append(da.from_delayed(block, shape=shape, dtype=function.dtype))
        start += size
    return da.concatenate(parts)


def source_chunks(dataset: Dataset) -> list[int]:
    """Return the rows of the source of every chunk that is not empty, those that were left out included."""
    sizes, mask = [size for size in dataset.chunk_sizes if size], mask_of_source(dataset)
    if mask is None:
        return sizes
    starts = np.flatnonzero(mask)[np.cumsum(sizes)[:-1]]
    return np.diff(starts, prepend=0, append=len(mask)).tolist()


def _read_and_map(
    recipe: Recipe, span: Range, function: RowFunction, kept: np.ndarray | None
) -> np.ndarray:
    return spread(kept, block_results(recipe.open().load(span).rows, function))


# -- cells of xarray ----------------------------------------------------------------------------------


def map_cells(
    X: Any,
    function_for: FunctionFor,
    scaling: FeatureScaling | None,
    results_of: Callable[[np.ndarray], Any],
) -> Any:
    """Map a function over the cells of a DataArray, or of the variables of a Dataset.

    Parameters
    ----------
    X : xarray.DataArray or Dataset
        A dimension named band, channel, feature or variable holds the features, or the last one of two.
    function_for : callable (dtype) -> RowFunction
    scaling : FeatureScaling, optional
        The scale to which cells are brought first.
    results_of : callable (rows) -> ndarray
        Maps the function over rows in memory, where `X` is in memory too.

    Returns
    -------
    xarray.DataArray, or a Dataset of the fields of the results
        Lazy if `X` is. With the coordinates of `X`, and -1 or NaN for cells that are left out since they
        lack a value, or all values if `scaling` fills these. Several values of a cell lie along a dimension
        "value"; integers are named "label", and their attribute ``nodata`` is -1.
    """
    import xarray as xr

    mapping = grid_mapping(X)
    X = variables_as_features(X)
    name = X.dims[feature_axes(X.shape, X.dims, None)[0]]
    function = function_for(X.dtype if scaling is None else scaling.dtype_of(X.dtype))
    least = ALL if scaling is None or scaling.fill is None else SOME
    is_lazy = hasattr(X.data, "__dask_graph__")
    if is_lazy:
        X, results_of = (
            X.chunk({name: -1}),
            partial(block_results, function=function, scaling=scaling),
        )

    def of_block(values: np.ndarray) -> np.ndarray:
        cells = values.reshape(-1, values.shape[-1])
        complete = presence(cells) >= least
        found = _empty(0, function)
        if complete.any():
            found = np.asarray(results_of(without_mask(cells[complete])))
        found = spread(complete, found)
        return found.reshape(*values.shape[:-1], *found.shape[1:])

    found = xr.apply_ufunc(
        of_block,
        X,
        input_core_dims=[[name]],
        output_core_dims=[["value"] if function.width else []],
        dask="parallelized",
        output_dtypes=[function.dtype],
        dask_gufunc_kwargs={"output_sizes": {"value": function.width}} if function.width else {},
    )
    found.attrs, found.name = dict(mapping), name_of_cells(function.dtype)
    if function.dtype.kind == "i":
        found.attrs["nodata"] = -1
    if function.dtype.names is None:
        return found
    return xr.Dataset({field: found.copy(data=found.data[field]) for field in function.dtype.names})


# -- into stores and files ----------------------------------------------------------------------------


def save_rows(
    dataset: Dataset,
    function: RowFunction,
    engine: Engine,
    url: str,
    *,
    overwrite: bool = False,
    storage_options: Any = None,
    callbacks: Sequence[Callback] = (),
    resume: bool = False,
    before_end: Callable[[], None] = lambda: None,
    computed: np.ndarray | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> None:
    """Stream the results of all rows to `url`; nothing is left of a failed try.

    They become a Zarr array, or a group of the fields of structured results; a file with the ids of the
    rows if `url` ends in .parquet, .csv or .npy; of the cells of a grid, a Zarr group with arrays in the
    shape of the grid. With ``missing="drop"``, there is an entry for every row of the source.

    Parameters
    ----------
    dataset : Dataset
    function : RowFunction
    engine : Engine
    url, overwrite, storage_options
        See `daskcluster.data.writer.ZarrSink.create`.
    callbacks : sequence of callables
        Called with the progress of the pass.
    resume : bool
        Resume an interrupted call for the same results. Finished chunks of a failed call are kept for the
        next one.
    before_end : callable () -> None
        Called when all results are written, before they become visible.
    computed : ndarray of shape (n,), optional
        The results of the rows of `dataset`, where they are known: rows are not read then.
    attributes : mapping, optional
        Attributes of a Zarr group.

    Notes
    -----
    Cost: one pass, none for results that are known.
    """
    target, is_file = locate(url, storage_options), is_file_output(str(url), maps=True)
    refuse_replacing(dataset, output=target)
    grid: Any = getattr(dataset, "grid", None)
    check_map(str(url), grid, function.dtype)
    dtype = function.dtype
    n_bytes = dataset.n_rows * max(1, function.width) * dtype.itemsize
    check_space(url, n_bytes, storage_options=storage_options)
    options: dict[str, Any] = {"overwrite": overwrite, "storage_options": storage_options}
    staged = options
    staged_url = url
    if is_file or grid is not None:
        check_free(url, kinds=("file",) if is_file else GRID_KINDS, **options)
        # The results grow next to the file, chunk by chunk and from any worker.
        folder, _, name = target.url.rpartition("/")
        staged_url = replace(target, url=f"{folder}/.{name}.unfinished.zarr").url
        staged = options | {"overwrite": False}
    sink = ZarrSink.create(
        staged_url,
        n_rows=dataset.n_rows,
        chunk_rows=max(dataset.chunk_sizes),
        dtype=dtype,
        width=function.width,
        mark=fingerprint_of_rows(dataset, function.params, function.compute),
        resume=resume,
        attributes=attributes,
        **staged,
    )
    with sink.staging:
        if computed is None:
            with engine.place(dataset, callbacks=callbacks, footprint=ONE_PASS) as placement:
                _fill(placement, function, sink)
        else:
            for first, last in output_blocks(dataset, sink.block_rows):
                if not sink.has((first, last)):
                    sink.write(first, computed[first:last])
        if not is_file and grid is None:
            before_end()
            sink.commit()
            return
        arrays = {each.name or "label": each.open() for each in sink.arrays}
        values = {name: partial(rows_of, array) for name, array in arrays.items()}
        if is_file:
            write_label_file(target, dataset, values, overwrite=overwrite, before_end=before_end)
        else:
            options |= {"attributes": attributes, "before_end": before_end}
            write_grid(url, grid, values, **options)
    sink.staging.discard()
