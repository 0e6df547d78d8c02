"""Per-row results as lazy dask arrays with the row chunks of their input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.assign import RowParams, prepare_rows
from daskcluster.chunkwise.feature_scaling import FeatureScaling
from daskcluster.data.checks import frame_rows
from daskcluster.data.masked import without_mask
from daskcluster.data.memory import is_sparse, scipy_rows
from daskcluster.sparse_rows import SparseRows
from daskcluster.typing import Dataset, Recipe


def lazy_block(
    rows: Any,
    fn: Callable[..., np.ndarray],
    params: RowParams,
    dtype: Any,
    width: int,
    normalize: bool,
) -> np.ndarray:
    """Return the result of `fn` for one block; the body of every lazy task."""
    shape = (0, width) if width else (0,)
    if is_sparse(rows):
        rows = scipy_rows(rows, what="a block of the dask array")
    if len(rows) == 0:
        return np.empty(shape, dtype)
    rows = rows if isinstance(rows, SparseRows) else without_mask(rows)
    return fn(Chunk(rows, normalize=normalize), prepare_rows(params))


def map_blocks(
    X: Any,
    fn: Callable[..., np.ndarray],
    params: RowParams,
    dtype: Any,
    width: int = 0,
    *,
    normalize: bool = False,
) -> Any:
    """Map `fn` over the row blocks of a dask array or frame, without computing anything.

    Parameters
    ----------
    X : dask.array.Array or dask DataFrame
    fn : callable
        Module-level function (chunk, prepared) -> rows.
    params : RowParams
    dtype : dtype
    width : int
        Columns of the result; 0 makes it 1-D.
    normalize : bool
        Rows are scaled to length one (cosine metric).
    """
    # Imported here, since only callers with a dask collection have imported dask.
    from daskcluster.data.dask_array import rows_of

    rows = rows_of(X)
    chunks = (rows.chunks[0], (width,)) if width else (rows.chunks[0],)
    return rows.map_blocks(
        lazy_block,
        fn,
        params,
        dtype,
        width,
        normalize,
        dtype=dtype,
        chunks=chunks,
        drop_axis=None if width else 1,
        meta=np.empty((0, 0) if width else (0,), dtype),
    )


def scaled_blocks(X: Any, scaling: FeatureScaling) -> Any:
    """Return the scaled rows of a dask array or frame as a lazy dask array."""
    from daskcluster.data.dask_array import rows_of

    rows = rows_of(X)
    dtype = scaling.dtype_of(rows.dtype)
    return rows.map_blocks(_scaled_block, scaling, dtype=dtype, meta=np.empty((0, 0)))


def _scaled_block(block: Any, scaling: FeatureScaling) -> Any:
    return scaling.apply(without_mask(block) if isinstance(block, np.ndarray) else block)


def map_frame(
    X: Any,
    fn: Callable[..., np.ndarray],
    params: RowParams,
    dtype: Any,
    width: int = 0,
    *,
    normalize: bool = False,
    scaling: FeatureScaling | None = None,
) -> Any:
    """Map `fn` over the partitions of a dask DataFrame, without computing anything.

    Parameters
    ----------
    X : dask DataFrame
    fn, params, dtype, width, normalize
        As of `map_blocks`.
    scaling : FeatureScaling, optional
        What rows are brought to first.

    Returns
    -------
    dask Series, or DataFrame where the results have a width or fields
        With the partitions and the index of `X`.
    """
    empty = np.empty((0, width) if width else 0, dtype)
    work = fn, params, dtype, width, normalize, scaling
    return X.map_partitions(_frame_block, *work, meta=_as_frame(empty))


def _frame_block(
    frame: Any,
    fn: Callable[..., np.ndarray],
    params: RowParams,
    dtype: Any,
    width: int,
    normalize: bool,
    scaling: FeatureScaling | None,
) -> Any:
    rows: Any = frame_rows(frame)
    rows = rows if scaling is None else scaling.apply(rows)
    return _as_frame(lazy_block(rows, fn, params, dtype, width, normalize), frame.index)


def _as_frame(values: np.ndarray, index: Any = None) -> Any:
    import pandas as pd

    if values.ndim == 1:
        return pd.Series(values, index)
    names = values.dtype.names
    if names is None:
        return pd.DataFrame(values, index)
    columns = {
        name if values.shape[1] == 1 else f"{name}_{i}": values[name][:, i]
        for name in names
        for i in range(values.shape[1])
    }
    return pd.DataFrame(columns, index)


def is_dask_frame(X: Any) -> bool:
    """Return True for a dask DataFrame, without importing it."""
    return hasattr(X, "__dask_graph__") and hasattr(X, "map_partitions") and hasattr(X, "columns")


def lazy_rows(
    dataset: Dataset, fn: Callable[..., np.ndarray], params: RowParams, dtype: Any, width: int = 0
) -> Any:
    """Map `fn` over the chunks of a dataset as a lazy dask array; tasks open the dataset by recipe."""
    own, scaling = getattr(dataset, "array", None), getattr(dataset, "scaling", None)
    if hasattr(own, "__dask_graph__"):
        own = own if scaling is None else scaled_blocks(own, scaling)
        # The rows are a dask collection, which can be read wherever the result is computed.
        return map_blocks(own, fn, params, dtype, width, normalize=dataset.normalize)

    import dask.array as da
    from dask import delayed

    recipe = dataset.recipe()
    parts, start = [], 0
    for size in dataset.chunk_sizes:
        if size == 0:
            continue
        block = delayed(_read_and_map, pure=True)(
            recipe, (start, start + size), fn, params, dtype, width
        )
        shape = (size, width) if width else (size,)
        parts.append(da.from_delayed(block, shape=shape, dtype=dtype))
        start += size
    return da.concatenate(parts)


def _read_and_map(
    recipe: Recipe,
    span: tuple[int, int],
    fn: Callable[..., np.ndarray],
    params: RowParams,
    dtype: Any,
    width: int,
) -> np.ndarray:
    chunk = recipe.open().load(span)
    return lazy_block(chunk.rows, fn, params, dtype, width, chunk.normalize)
