"""Row blocks of a dask array, computed in this process."""

from __future__ import annotations

from typing import Any

import dask
import numpy as np

from daskcluster.errors import InvalidDataError


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
