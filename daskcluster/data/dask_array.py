"""Rows of dask arrays and dataframes, computed block by block in this process.

The graph never travels: on a cluster the rows are written to scratch Zarr first (`to_scratch`).
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.array.utils import meta_from_array

from daskcluster.annotations import without_annotations
from daskcluster.data.checks import (
    check_columns,
    check_dtype,
    check_shape,
    frame_dtype,
    frame_rows,
    is_sparse,
    without_mask,
    without_masks,
)
from daskcluster.data.csr import CsrLayout
from daskcluster.data.dataset import RowDataset
from daskcluster.data.memory import scipy_rows
from daskcluster.data.missing import ALL, presence
from daskcluster.data.recipes import HeldRecipe
from daskcluster.data.spec import (
    AS_THEY_ARE,
    RowsSpec,
    looks_like_path,
    names_of,
    refuse_duplicates,
    warn_of_id_columns,
)
from daskcluster.data.weighted import array_weights
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.sparse_rows import INDEX_DTYPE, Rows, SparseRows, join_rows


def scheduler_for(collection: Any) -> dict[str, Any]:
    """Return dask's threads, unless blocks are already on a cluster (persisted): then its client's."""
    if "distributed" not in sys.modules:
        return {"scheduler": "threads"}
    from distributed import futures_of

    futures = futures_of(collection)
    return {"scheduler": futures[0].client.get if futures else "threads"}


_WHAT = "the dask array"


def open_dask_sparse(array: Any) -> DaskDataset:
    """Open a dask array of sparse blocks, with one chunk along the columns; its row chunks become known.

    Raises
    ------
    InvalidDataError
        Wrong shape, or a block that is not sparse.

    Notes
    -----
    Cost: every block is computed once, for the lengths of its rows; 8 bytes a row are kept.
    """
    lengths = [dask.delayed(_counts)(block) for block in array.to_delayed().ravel()]
    counts = dask.compute(*lengths, **scheduler_for(array))
    check_shape((sum(map(len, counts)), array.shape[1]), flatten=False, what="dask array")
    chunks = (tuple(map(len, counts)), array.chunks[1])
    array = da.Array(array.dask, array.name, chunks, meta=meta_from_array(array))
    return DaskDataset((array, counts))


def _as_sparse_rows(block: Any, start: int = 0) -> SparseRows:
    if not is_sparse(block):
        raise InvalidDataError(
            f"A block of the dask array is a {type(block).__name__}, and its metadata says that blocks are "
            "sparse; make all of them sparse, e.g. with array.map_blocks(scipy.sparse.csr_array)."
        )
    return scipy_rows(block, start, _WHAT)


def _counts(block: Any) -> np.ndarray:
    """Return the number of stored values of each row, duplicates added up."""
    return np.diff(_as_sparse_rows(block).indptr)


class DaskDataset(RowDataset):
    """Rows of a dask array of shape (n, d) whose row chunks are known, dense or CSR.

    A block is computed with dask's threads when a pass comes to it, and again in the next pass unless
    the engine keeps it; blocks without rows are skipped.

    Parameters
    ----------
    held : tuple of (dask.array.Array, tuple of ndarray of int64 or None)
        An array of one chunk along the columns; if its blocks are of any scipy sparse format, the number of
        stored values of each row, for each block.
    recipe : HeldRecipe, optional
        Recipe of the same array, if it has been given one before.
    """

    def __init__(
        self, held: tuple[Any, tuple[np.ndarray, ...] | None], recipe: HeldRecipe | None = None
    ) -> None:
        array, counts = held
        edges, csr = np.cumsum((0, *array.chunks[0]), dtype=np.int64), None
        keep = np.append(np.diff(edges) > 0, True)
        self._block_of = np.flatnonzero(keep[:-1])
        self._scheduler = scheduler_for(array)
        if counts is not None:
            indptr = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
            csr = CsrLayout(indptr, array.dtype.itemsize + INDEX_DTYPE.itemsize)
        super().__init__(array.shape[1], array.dtype, edges[keep], csr)
        self.array = array
        # Blocks are persisted, and computed by the workers that hold them.
        self.on_cluster = self._scheduler != {"scheduler": "threads"}
        self.frame: Any = None
        what = f"dask array of shape {(self.n_rows, self.n_features)}"
        self._recipe = recipe or HeldRecipe.of(held, what, DaskDataset)

    @property
    def source(self) -> str:
        return "dask array" if self.csr is None else "dask array of sparse blocks"

    @without_annotations
    def fetch(self, start: int, stop: int) -> Rows:
        first = int(np.searchsorted(self._edges, start, side="right")) - 1
        last = int(np.searchsorted(self._edges, stop, side="left"))
        wanted = [self.array.blocks[int(i)] for i in self._block_of[first:last]]
        blocks, origin = dask.compute(*wanted, **self._scheduler), int(self._edges[first])
        for i, block in enumerate(blocks, first):
            expected = (int(self._edges[i + 1] - self._edges[i]), self.n_features)
            if block.shape != expected:
                raise InvalidDataError(
                    f"Block {i} of the dask array has shape={block.shape} where its metadata says "
                    f"{expected}; correct its chunks, e.g. with array.compute_chunk_sizes()."
                )
        if self.csr is not None:
            found = join_rows([_as_sparse_rows(block, origin) for block in blocks])
            return found[start - origin : stop - origin].astype(self.dtype)
        rows = [_as_rows(block, self.dtype) for block in blocks]
        whole = rows[0] if len(rows) == 1 else np.concatenate(rows)
        return whole[start - origin : stop - origin].astype(self.dtype, copy=False)


def rows_of(source: Any, spec: RowsSpec = AS_THEY_ARE) -> Any:
    """Return a dask array or frame as a dask array (n, d) of plain blocks, one chunk along the columns.

    Nothing is computed, unless it is not known how many columns there are: row chunks may stay unknown.
    """
    if not isinstance(source, da.Array):
        source = _frame_array(source, spec)
    source = without_masks(source)
    if source.ndim == 2 and np.isnan(source.shape[1]):
        source = with_known_chunks(source)
    if source.ndim == 2 and source.numblocks[1] > 1:
        source = source.rechunk({1: -1})
    return source


@without_annotations
def with_known_chunks(array: Any) -> Any:
    """Return a dask array whose chunk lengths are known; unknown ones are computed, all at once.

    The array that was given does not change.
    """
    if not np.isnan(array.shape).any():
        return array
    with dask.config.set(**scheduler_for(array)):
        return array.copy().compute_chunk_sizes()


def _frame_array(frame: Any, spec: RowsSpec) -> Any:
    if getattr(frame, "ndim", 0) != 2 or not hasattr(frame, "to_dask_array"):
        raise InvalidDataError(
            f"source is a dask {type(frame).__name__}; a dask array of shape (n, d) or a dask DataFrame is "
            "needed, e.g. series.to_frame()."
        )
    frame = frame[_features(frame, spec)]
    check_columns(frame.dtypes)
    dtypes = set(frame.dtypes)
    if len(dtypes) != 1 or not isinstance(next(iter(dtypes)), np.dtype):
        # Mixed and nullable columns are converted where the rows are, partition by partition.
        frame = frame.astype(frame_dtype(dtypes))
    return frame.to_dask_array()


def _features(frame: Any, spec: RowsSpec) -> list[Any]:
    refuse_duplicates(frame.columns, spec, "the dask DataFrame")
    asked = (spec.id_column, spec.weights, *spec.drop, *(spec.features or ()))
    for name in asked:
        if name is not None and name not in frame.columns:
            raise InvalidParameterError(
                f"There is no column {name!r} in the frame; columns: {', '.join(map(str, frame.columns))}."
            )
    chosen = spec.features_among(frame.columns)
    if chosen is not None:
        return list(chosen)
    others = {spec.id_column, spec.weights, *spec.drop}
    return [name for name in frame.columns if name not in others]


class _LazyColumn:
    """A column of a dask DataFrame, computed as a whole when some of it is first asked for."""

    def __init__(self, series: Any) -> None:
        self._series = series
        self._values: Any = None

    @without_annotations
    def __getitem__(self, rows: Any) -> Any:
        if self._values is None:
            self._values = np.asarray(self._series.compute(**scheduler_for(self._series)))
        return self._values[rows]


@without_annotations
def open_dask(source: Any, spec: RowsSpec) -> RowDataset:
    """Open a dask array or frame; of a frame, the columns that were chosen.

    Raises
    ------
    InvalidDataError, InvalidParameterError
    """
    if not hasattr(source, "columns"):
        spec.refuse_all_but((), f"source is a dask {type(source).__name__}")
        return _open_array(source, flatten=spec.flatten)
    if looks_like_path(spec.weights or "") and spec.weights not in source.columns:
        spec = replace(spec, weights=None)
    names = _features(source, spec)
    if spec.features is None and len(names) > 1:
        warn_of_id_columns(names)
    dataset = _open_array(rows_of(source, spec), flatten=spec.flatten)
    facts = {"frame": source[names], "feature_names": names_of(names)}
    if spec.weights is not None:
        column = source[[spec.weights]]
        weights_of_rows = frame_rows(column.compute(**scheduler_for(column)))[:, 0]
        facts["own_weights"] = array_weights(weights_of_rows, dataset.n_rows)
        facts["weights_column"] = spec.weights
    if spec.id_column is not None:
        facts["id_column"] = spec.id_column
        facts["own_ids"] = _LazyColumn(source[spec.id_column])
    return dataset.with_facts(**facts)


def _open_array(source: Any, *, flatten: bool = False) -> RowDataset:
    """Open a dask array or frame; unknown chunk lengths are computed once, block by block.

    So are the lengths of the rows of an array whose blocks are scipy sparse matrices or arrays.

    Raises
    ------
    InvalidDataError
        Wrong shape or dtype.
    """
    array = rows_of(source)
    shape = tuple(-1 if np.isnan(size) else int(size) for size in array.shape)
    check_shape(shape, flatten=flatten, what="dask array")
    check_dtype(array.dtype, what="dask array")
    if is_sparse(meta_from_array(array)):
        return open_dask_sparse(array)
    array = with_known_chunks(array)
    if flatten and array.ndim > 2:
        array = array.reshape(-1, array.shape[-1]).rechunk({1: -1})
    check_shape(array.shape, flatten=False, what="dask array")
    return DaskDataset((array, None))


def _as_rows(block: Any, dtype: np.dtype[Any]) -> np.ndarray:
    if not hasattr(block, "__array__") or hasattr(block, "toarray"):
        raise InvalidDataError(
            f"The blocks of the dask array are {type(block).__name__}, and its metadata says numpy arrays; "
            "give sparse blocks as what they are, e.g. array.map_blocks(scipy.sparse.csr_array, "
            "meta=scipy.sparse.csr_array((0, 0))), or convert them, e.g. with "
            "array.map_blocks(lambda block: block.toarray())."
        )
    if dtype.kind in "biu" and not (presence(block) == ALL).all():
        raise InvalidDataError(
            f"A block of the dask array lacks values, and its metadata says {dtype}, which has no NaN for "
            "them; make it floating, e.g. with array.astype('float32'), or leave these rows out."
        )
    return without_mask(block)
