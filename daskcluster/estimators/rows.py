"""Functions of rows under a fitted model, mapped over rows wherever they are, into arrays or files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pickle import PicklingError
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.assign import RowFunction
from daskcluster.chunkwise.feature_scaling import FeatureScaling
from daskcluster.data.checks import frame_rows, is_sparse, without_mask
from daskcluster.data.dataset import refuse_replacing
from daskcluster.data.grid import (
    feature_axes,
    grid_mapping,
    variables_as_features,
)
from daskcluster.data.identity import fingerprint_of_rows
from daskcluster.data.label_files import (
    GRID_KINDS,
    check_file,
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
from daskcluster.data.memory import scipy_rows
from daskcluster.data.missing import ALL, SOME, presence
from daskcluster.data.writer import ArraySink, ZarrSink
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.engine import Engine, Placement
from daskcluster.engine.local import MIN_ITEM_BYTES
from daskcluster.engine.memory import ONE_PASS
from daskcluster.engine.operations import output_blocks
from daskcluster.estimators.inputs import is_dask_frame
from daskcluster.events import Callback
from daskcluster.sparse_rows import SparseRows
from daskcluster.storage.files import check_space
from daskcluster.storage.location import locate
from daskcluster.storage.staging import check_free
from daskcluster.typing import Dataset, Range, Recipe, Visibility

FunctionFor = Callable[[np.dtype[Any]], RowFunction]
"""(dtype of the rows as they are compared) -> the function of such rows."""


def map_rows(
    dataset: Dataset, function: RowFunction, engine: Engine, callbacks: Sequence[Callback] = ()
) -> np.ndarray:
    """Return the results of all rows of a dataset, shape (n,) or (n, width). One pass.

    With ``missing="drop"``, rows that were left out get NaN, or -1 for integers.
    """
    if engine.name == "local" and dataset.in_memory and not callbacks:
        n_bytes = dataset.n_rows * dataset.n_features * dataset.dtype.itemsize
        if 0 < n_bytes <= MIN_ITEM_BYTES:  # a placement would take a quarter of the time of one row
            parts = list(map(function.ready(), dataset.chunks([(0, dataset.n_rows)])))
            return spread(mask_of_source(dataset), np.concatenate(parts))
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
    callbacks : sequence of callables, default ()
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
    check_file(str(url), dataset)
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


class Labels(NDArrayOperatorsMixin):
    """Lazy labels of all rows of a dataset, so that `fit` needs no extra pass for them.

    They are used like an array: what needs their values, such as indexing, iterating, comparing or an
    attribute of arrays, computes them once. `save` writes them to Zarr chunk by chunk without holding
    them, and `to_dask` returns a lazy dask array with the rows' chunks.

    Parameters
    ----------
    dataset : Dataset
    function : RowFunction
        The function that labels rows.
    engine : Engine, or anything that estimators take as ``engine``
    computed : ndarray of shape (n,), int32, optional
        The labels, where a pass had them.

    Notes
    -----
    Cost: one pass for all labels, and 4 bytes per row once they are computed; no pass until then. `save` is
    one pass, and holds no more than the blocks that are being written; no pass if they are computed.
    """

    def __init__(
        self,
        dataset: Dataset,
        function: RowFunction,
        engine: Any,
        *,
        computed: np.ndarray | None = None,
    ) -> None:
        self._dataset, self._function, self._engine = dataset, function, engine
        self._array = None if computed is None else spread(mask_of_source(dataset), computed)

    __hash__ = None  # type: ignore[assignment]
    ndim = 1

    def __len__(self) -> int:
        mask = mask_of_source(self._dataset)
        return self._dataset.n_rows if mask is None else len(mask)

    def __repr__(self) -> str:
        return (
            f"<Labels of {len(self)} rows, int32; numpy.asarray(...) or .save(url) computes them>"
        )

    @property
    def is_computed(self) -> bool:
        """Whether they are computed and in memory."""
        return self._array is not None

    @property
    def shape(self) -> tuple[int]:
        return (len(self),)

    @property
    def size(self) -> int:
        return len(self)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.int32)

    def ids(self) -> Any:
        """Return the ids of the rows, in memory; None if they have none."""
        rows: Any = self._dataset
        source = rows if mask_of_source(rows) is None else rows.grid.source
        return None if source.id_column is None else source.ids(0, source.n_rows)

    @property
    def travels(self) -> bool:
        """Whether a pickle has them: where other processes can read the rows, or once they are computed."""
        return self._array is not None or self._dataset.visibility is not Visibility.PROCESS

    def __reduce__(self) -> tuple[Any, ...]:
        dataset: Any = self._dataset
        if dataset.visibility is not Visibility.PROCESS:
            return _reopened, (dataset, getattr(dataset, "grid", None), self._function)
        if self._array is not None:
            return np.asarray, (self._array,)
        raise PicklingError(
            "labels_ cannot be pickled before they are computed, since no other process can read these "
            "rows; call numpy.asarray(labels_) first."
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Labels:
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self._array is None:
            self._array = map_rows(
                self._dataset, self._function, choose_engine(self._engine, self._dataset)
            )
        if copy is False and dtype is not None and np.dtype(dtype) != self.dtype:
            raise ValueError(f"Labels are int32, and cannot be {np.dtype(dtype)} without a copy.")
        array = self._array if dtype is None else self._array.astype(dtype, copy=False)
        return array.copy() if copy else array

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if options.get("out") is not None:
            raise TypeError("labels_ cannot be changed in place; change a copy: np.array(labels_).")
        plain = [np.asarray(each) if isinstance(each, Labels) else each for each in inputs]
        return getattr(ufunc, method)(*plain, **options)

    def __getitem__(self, rows: Any) -> Any:
        return np.asarray(self)[rows]

    def __iter__(self) -> Iterator[Any]:
        return iter(np.asarray(self))

    def __bool__(self) -> bool:
        return bool(np.asarray(self))

    def __getattr__(self, name: str) -> Any:
        # The methods and attributes of arrays; others, and protocols such as that of pickle, are missing.
        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(np.asarray(self), name)

    def save(
        self,
        url: str,
        *,
        overwrite: bool = False,
        storage_options: Any = None,
        resume: bool = False,
    ) -> None:
        """Write the labels to `url`: a 1-D int32 Zarr array with the chunks of the rows.

        For the cells of a grid (`open_grid`), a Zarr group that `xarray.open_zarr` opens, with an array
        ``label`` in the shape of the grid, its coordinates, and -1 where there are no data. A file with the
        ids of the rows if it ends in .parquet, .csv or .npy (labels alone).

        With `resume`, an interrupted call continues.
        """
        options = {"overwrite": overwrite, "storage_options": storage_options, "resume": resume}
        self.write(url, **options)

    def write(self, url: str, **options: Any) -> None:
        """Write the labels as `save` does; `options` are those of `save_rows`."""
        dataset, mask = self._dataset, mask_of_source(self._dataset)
        computed = self._array if self._array is None or mask is None else self._array[mask]
        engine = choose_engine(self._engine, dataset)
        save_rows(dataset, self._function, engine, url, computed=computed, **options)

    def like_rows(self) -> Any:
        """Return ``labels_``: an array for a dask array, a Series for a dask frame, else these labels."""
        if getattr(self._dataset, "frame", None) is not None:
            rows: Any = self._dataset
            return map_lazily(rows.frame, lambda _: self._function, rows.scaling)
        is_dask = hasattr(getattr(self._dataset, "array", None), "__dask_graph__")
        return self.to_dask() if is_dask else self

    def to_dask(self) -> Any:
        """Return a lazy dask array, int32 (n,), with the rows' chunks."""
        if self._array is not None:
            import dask.array as da

            rows = getattr(self._dataset, "array", None)
            chunks = getattr(rows, "chunks", None) if hasattr(rows, "__dask_graph__") else None
            sizes = (chunks or [source_chunks(self._dataset)])[:1]
            return da.from_array(self._array, chunks=tuple(map(tuple, sizes)))
        return lazy_rows(self._dataset, self._function)


def _reopened(dataset: Any, grid: Any, function: RowFunction) -> Labels:
    """Return pickled labels; the pickle of a dataset does not have its grid."""
    return Labels(dataset if grid is None else dataset.with_facts(grid=grid), function, None)
