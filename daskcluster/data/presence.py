"""Which rows of a Zarr array are stored: those whose chunks were written."""

from __future__ import annotations

from collections.abc import Collection
from itertools import product
from typing import Any

from daskcluster.data.sparse_zarr import is_csr

CSR_PARTS = ("data", "indices", "indptr")


def _grid(array: Any) -> list[int]:
    stored = array.shards or array.chunks
    return [-(-length // step) for length, step in zip(array.shape, stored, strict=True)]


def _key(array: Any, place: tuple[int, ...]) -> str:
    name: str = array.metadata.encode_chunk_key(place)
    return name


def leading_rows(array: Any, names: Collection[str], first: int = 0) -> int:
    """Return how many rows are stored without a gap, from row `first` on.

    Parameters
    ----------
    array : zarr.Array
    names : collection of str
        Names of the files below the array.
    first : int
        Rows before it are not looked at.

    Returns
    -------
    int
        The row after the last one; `first` if the chunk that holds it is missing.
    """
    steps, grid = array.shards or array.chunks, _grid(array)
    others = [range(count) for count in grid[1:]]
    for chunk in range(first // steps[0], grid[0]):
        if not all(_key(array, (chunk, *rest)) in names for rest in product(*others)):
            return max(first, min(chunk * steps[0], array.shape[0]))
    return int(array.shape[0])


def missing_chunks(node: Any, names: Collection[str]) -> tuple[int, int]:
    """Return how many chunks (or shards) of an array or CSR group are not stored, and how many there are.

    Parameters
    ----------
    node : zarr.Array or zarr.Group
    names : collection of str
        Names of the files below it.
    """
    if is_csr(node):
        missing = total = 0
        for part in CSR_PARTS:
            below = {name[len(part) + 1 :] for name in names if name.startswith(f"{part}/")}
            lacking, count = missing_chunks(node[part], below)
            missing, total = missing + lacking, total + count
        return missing, total
    places = list(product(*(range(count) for count in _grid(node))))
    return sum(_key(node, place) not in names for place in places), len(places)


def last_chunk_start(array: Any, n_rows: int) -> int:
    """Return the row at which the chunk begins that holds row ``n_rows - 1``."""
    step = (array.shards or array.chunks)[0]
    return (max(1, n_rows) - 1) // step * step
