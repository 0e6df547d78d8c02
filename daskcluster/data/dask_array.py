"""Rows of dask arrays and frames, computed block by block in this process.

The graph never travels: on a cluster the rows are written to scratch Zarr first (`to_scratch`).
"""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.array.utils import meta_from_array

from daskcluster.data.checks import check_dtype, check_shape
from daskcluster.data.dask_blocks import DaskBlocks, scheduler_for
from daskcluster.data.dask_sparse import open_dask_sparse
from daskcluster.data.dataset import RowDataset
from daskcluster.data.frame import check_columns, frame_dtype
from daskcluster.data.recipes import HeldRecipe
from daskcluster.data.sparse_memory import is_sparse
from daskcluster.data.zarr import write_scratch
from daskcluster.errors import InvalidDataError
from daskcluster.typing import Reach, Recipe


class DaskDataset(RowDataset):
    """Rows of a dask array of shape (n, d) whose row chunks are known.

    A block is computed with dask's threads when a pass comes to it, and again in the next pass unless
    the engine keeps it; blocks without rows are skipped.

    Parameters
    ----------
    array : dask.array.Array
        One chunk along the columns.
    sizes : tuple of int
        Rows of each block, zeros included.
    recipe : HeldRecipe, optional
        Of the same array, if it has been given one before.
    """

    def __init__(
        self, array: Any, sizes: tuple[int, ...], recipe: HeldRecipe | None = None
    ) -> None:
        self._blocks = DaskBlocks(array, sizes)
        super().__init__(array.shape[1], array.dtype, self._blocks.edges)
        self.array = array
        what = f"dask array of shape {(self.n_rows, self.n_features)}"
        self._recipe = recipe or HeldRecipe.of((array, sizes), what, _of_blocks)

    @property
    def source(self) -> str:
        return "dask array"

    @property
    def own_reach(self) -> Reach:
        return Reach.PROCESS

    def own_recipe(self) -> Recipe:
        return self._recipe

    def fetch(self, start: int, stop: int) -> np.ndarray:
        blocks, origin = self._blocks.compute(start, stop)
        rows = [_as_rows(block) for block in blocks]
        whole = rows[0] if len(rows) == 1 else np.concatenate(rows)
        return whole[start - origin : stop - origin].astype(self.dtype, copy=False)

    def to_scratch(self, folder: str) -> RowDataset:
        """Write the rows (and weights) to Zarr in `folder` once, and return that dataset."""
        return write_scratch(self, folder)


def _of_blocks(held: tuple[Any, tuple[int, ...]], recipe: HeldRecipe) -> DaskDataset:
    array, sizes = held
    return DaskDataset(array, sizes, recipe)


def rows_of(source: Any) -> Any:
    """Return a dask array or frame as a dask array (n, d) with one chunk along the columns.

    Nothing is computed: row chunks of a frame stay unknown.
    """
    if not isinstance(source, da.Array):
        source = _frame_array(source)
    if source.ndim == 2 and source.numblocks[1] > 1:
        source = source.rechunk({1: -1})
    return source


def _frame_array(frame: Any) -> Any:
    if getattr(frame, "ndim", 0) != 2 or not hasattr(frame, "to_dask_array"):
        raise InvalidDataError(
            f"source is a dask {type(frame).__name__}; a dask array of shape (n, d) or a dask DataFrame is "
            "needed, e.g. series.to_frame()."
        )
    check_columns(frame.dtypes)
    names = {str(dtype) for dtype in frame.dtypes}
    array = frame.to_dask_array()
    if len(names) == 1 and array.dtype != object:
        return array
    # Mixed and nullable columns are converted where the rows are, partition by partition.
    wanted = frame_dtype(frame.dtypes)
    return frame.astype(wanted).to_dask_array()


def open_dask(source: Any, *, flatten: bool = False) -> RowDataset:
    """Open a dask array or frame; unknown chunk lengths are computed once, block by block.

    So are the lengths of the rows of an array whose blocks are scipy sparse matrices or arrays.

    Raises
    ------
    InvalidDataError
        Wrong shape or dtype.
    """
    array = rows_of(source)
    if array.ndim != 2 or not np.isnan(array.shape[0]):
        check_shape(_known(array.shape), flatten=flatten, what="dask array")
    check_dtype(array.dtype, what="dask array")
    if is_sparse(meta_from_array(array)):
        return open_dask_sparse(array)
    if flatten and array.ndim > 2:
        array = array.reshape(-1, array.shape[-1]).rechunk({1: -1})
    sizes = array.chunks[0]
    if np.isnan(sizes).any():
        sizes = _count_rows(array)
    check_shape((sum(sizes), array.shape[1]), flatten=False, what="dask array")
    return DaskDataset(array, tuple(int(size) for size in sizes))


def _as_rows(block: Any) -> np.ndarray:
    if not hasattr(block, "__array__") or hasattr(block, "toarray"):
        raise InvalidDataError(
            f"The blocks of the dask array are {type(block).__name__}, and its metadata says numpy arrays; "
            "give sparse blocks as what they are, e.g. array.map_blocks(scipy.sparse.csr_array, "
            "meta=scipy.sparse.csr_array((0, 0))), or convert them, e.g. with "
            "array.map_blocks(lambda block: block.toarray())."
        )
    return np.asarray(block)


def _known(shape: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(-1 if np.isnan(size) else int(size) for size in shape)


def _count_rows(array: Any) -> tuple[int, ...]:
    lengths = [dask.delayed(len)(block) for block in array.to_delayed(optimize_graph=True).ravel()]
    return tuple(dask.compute(*lengths, **scheduler_for(array)))
