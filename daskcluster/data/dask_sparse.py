"""Rows of dask arrays whose blocks are scipy sparse matrices or arrays: they stay sparse."""

from __future__ import annotations

from typing import Any

import dask
import numpy as np

from daskcluster.data.checks import check_shape
from daskcluster.data.dask_blocks import DaskBlocks, scheduler_for
from daskcluster.data.dataset import RowDataset
from daskcluster.data.recipes import HeldRecipe
from daskcluster.data.sparse import SparseDataset
from daskcluster.data.sparse_memory import is_sparse, scipy_rows
from daskcluster.data.sparse_zarr import write_sparse_scratch
from daskcluster.errors import InvalidDataError
from daskcluster.sparse_rows import INDEX_DTYPE, SparseRows, join_rows
from daskcluster.typing import Reach, Recipe

_WHAT = "the dask array"


class DaskSparseDataset(SparseDataset):
    """CSR rows of a dask array (n, d), computed block by block in this process.

    Parameters
    ----------
    array : dask.array.Array
        One chunk along the columns; blocks of any scipy sparse format.
    counts : tuple of ndarray of int64
        Stored values of each row, for each block.
    recipe : HeldRecipe, optional
        Of the same array, if it has been given one before.
    """

    def __init__(
        self, array: Any, counts: tuple[np.ndarray, ...], recipe: HeldRecipe | None = None
    ) -> None:
        self._blocks = DaskBlocks(array, tuple(len(block) for block in counts))
        indptr = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
        entry_bytes = array.dtype.itemsize + INDEX_DTYPE.itemsize
        super().__init__(array.shape[1], array.dtype, indptr, entry_bytes, self._blocks.edges)
        self.array = array
        what = f"dask array of shape {(self.n_rows, self.n_features)}"
        self._recipe = recipe or HeldRecipe.of((array, counts), what, _of_blocks)

    @property
    def source(self) -> str:
        return "dask array of sparse blocks"

    @property
    def own_reach(self) -> Reach:
        return Reach.PROCESS

    def own_recipe(self) -> Recipe:
        return self._recipe

    def fetch(self, start: int, stop: int) -> SparseRows:
        blocks, origin = self._blocks.compute(start, stop)
        rows = join_rows([_as_rows(block, origin) for block in blocks])
        assert isinstance(rows, SparseRows)
        return rows[start - origin : stop - origin].astype(self.dtype)

    def to_scratch(self, folder: str) -> RowDataset:
        """Write the rows (and weights) to Zarr in `folder` once, and return that dataset."""
        return write_sparse_scratch(self, folder)


def open_dask_sparse(array: Any) -> DaskSparseDataset:
    """Open a dask array of sparse blocks, with one chunk along the columns.

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
    return DaskSparseDataset(array, counts)


def _of_blocks(held: tuple[Any, tuple[np.ndarray, ...]], recipe: HeldRecipe) -> DaskSparseDataset:
    array, counts = held
    return DaskSparseDataset(array, counts, recipe)


def _as_rows(block: Any, start: int = 0) -> SparseRows:
    if not is_sparse(block):
        raise InvalidDataError(
            f"A block of the dask array is a {type(block).__name__}, and its metadata says that blocks are "
            "sparse; make all of them sparse, e.g. with array.map_blocks(scipy.sparse.csr_array)."
        )
    return scipy_rows(block, start, _WHAT)


def _counts(block: Any) -> np.ndarray:
    """Return the number of stored values of each row, duplicates added up."""
    return np.diff(_as_rows(block).indptr)
