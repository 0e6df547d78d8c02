"""Rows of dask arrays and dataframes, computed block by block in this process.

The graph never travels: on a cluster the rows are written to scratch Zarr first (`to_scratch`).
"""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.array.utils import meta_from_array

from daskcluster.data.checks import check_columns, check_dtype, check_shape, frame_dtype
from daskcluster.data.dataset import RowDataset
from daskcluster.data.memory import is_sparse, scipy_rows
from daskcluster.data.recipes import HeldRecipe
from daskcluster.data.sparse import SparseDataset
from daskcluster.data.sparse_zarr import write_sparse_scratch
from daskcluster.data.zarr import write_scratch
from daskcluster.errors import InvalidDataError
from daskcluster.sparse_rows import INDEX_DTYPE, SparseRows, join_rows
from daskcluster.typing import Recipe, Visibility


class DaskBlocks:
    """The row blocks of a dask array (n, d), blocks without rows left out.

    Parameters
    ----------
    array : dask.array.Array
        One chunk along the columns.
    sizes : tuple of int
        Rows of each block, zeros included.

    Attributes
    ----------
    edges : ndarray of int64
        Rows at which blocks begin, and n.
    """

    def __init__(self, array: Any, sizes: tuple[int, ...]) -> None:
        edges = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        keep = np.append(np.diff(edges) > 0, True)
        self.array = array
        self.edges: np.ndarray = edges[keep].astype(np.int64)
        self._block_of = np.flatnonzero(keep[:-1])
        self._scheduler = scheduler_for(array)

    def compute(self, start: int, stop: int) -> tuple[list[Any], int]:
        """Return the blocks with the rows `start` to `stop`, and the row that the first begins with.

        Raises
        ------
        InvalidDataError
            A block has another shape than the metadata says.
        """
        first = int(np.searchsorted(self.edges, start, side="right")) - 1
        last = int(np.searchsorted(self.edges, stop, side="left"))
        wanted = [self.array.blocks[int(i)] for i in self._block_of[first:last]]
        blocks = list(dask.compute(*wanted, **self._scheduler))
        for i, block in enumerate(blocks, first):
            self._check(block, i)
        return blocks, int(self.edges[first])

    def _check(self, block: Any, i: int) -> None:
        expected = (int(self.edges[i + 1] - self.edges[i]), self.array.shape[1])
        if block.shape != expected:
            raise InvalidDataError(
                f"Block {i} of the dask array has shape={block.shape} where its metadata says "
                f"{expected}; correct its chunks, e.g. with array.compute_chunk_sizes()."
            )


def scheduler_for(array: Any) -> dict[str, Any]:
    """Return dask's threads, unless blocks are already on a cluster (persisted): then its client."""
    graph = array.__dask_graph__()
    for layer in getattr(graph, "layers", {"": graph}).values():
        # A persisted layer holds futures alone, so one value tells.
        value = next(iter(layer.values()), None) if _is_plain_layer(layer) else None
        if type(value).__module__.startswith("distributed"):
            return {}
    return {"scheduler": "threads"}


def _is_plain_layer(layer: Any) -> bool:
    return type(layer).__name__ in ("MaterializedLayer", "dict")


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
        self._recipe = recipe or HeldRecipe.of((array, counts), what, _of_sparse_blocks)

    @property
    def source(self) -> str:
        return "dask array of sparse blocks"

    @property
    def own_visibility(self) -> Visibility:
        return Visibility.PROCESS

    def own_recipe(self) -> Recipe:
        return self._recipe

    def fetch(self, start: int, stop: int) -> SparseRows:
        blocks, origin = self._blocks.compute(start, stop)
        rows = join_rows([_as_sparse_rows(block, origin) for block in blocks])
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


def _of_sparse_blocks(
    held: tuple[Any, tuple[np.ndarray, ...]], recipe: HeldRecipe
) -> DaskSparseDataset:
    array, counts = held
    return DaskSparseDataset(array, counts, recipe)


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
    def own_visibility(self) -> Visibility:
        return Visibility.PROCESS

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
