"""Which reader a source needs: npz, text, parquet, or any dataset."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from daskcluster.data.npz import is_sparse_npz, npz_table, open_sparse_npz
from daskcluster.data.open import open_dataset
from daskcluster.data.sparse import SparseDataset
from daskcluster.data.table import Block, Table, parquet_table, text_table
from daskcluster.errors import InvalidParameterError
from daskcluster.storage.location import locate


def open_table(
    source: Any,
    *,
    array: str | None = None,
    weights: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    flatten: bool = False,
) -> Table:
    """Open a file by its suffix, or anything that `open_dataset` takes.

    Parameters
    ----------
    source : str, array or Table
        ``.npy``, ``.npz``, ``.csv`` or ``.tsv`` (also ``.gz``), ``.parquet``, or a dataset's source. A
        table is taken as it is.
    array : str, optional
        Which array of a ``.npz`` or Zarr group; a ``.npz`` with one matrix needs none.
    weights : str, optional
        Column of a csv or parquet file (by name, or csv by number), array of a ``.npz``; else as in
        `open_dataset`.
    """
    if isinstance(source, Table):
        return source
    suffix = _suffix(source)
    if suffix == ".npz":
        location = locate(source, storage_options)
        if is_sparse_npz(location):
            return _dataset_table(open_sparse_npz(location, array, weights))
        return npz_table(location, array, weights, flatten=flatten)
    if suffix in (".csv", ".tsv", ".txt"):
        _refuse_array(array, suffix)
        return text_table(locate(source, storage_options), weights)
    if suffix in (".parquet", ".pq"):
        _refuse_array(array, suffix)
        return parquet_table(locate(source, storage_options), weights)
    if not any(isinstance(place, (str, os.PathLike)) for place in (source, weights)):
        storage_options = None  # they are the output's
    dataset = open_dataset(
        source, array=array, weights=weights, storage_options=storage_options, flatten=flatten
    )
    return _dataset_table(dataset)


def _suffix(source: Any) -> str:
    name = str(source).lower() if isinstance(source, str) or hasattr(source, "__fspath__") else ""
    name = name.removesuffix(".gz")
    return name[name.rfind(".") :] if "." in name.rsplit("/", 1)[-1] else ""


def _refuse_array(array: str | None, suffix: str) -> None:
    if array is not None:
        raise InvalidParameterError(
            f"array={array!r} names an array of a Zarr group or .npz; a {suffix} file holds one table."
        )


def _dataset_table(dataset: Any) -> Table:
    def blocks() -> Iterator[Block]:
        for chunk in dataset.chunks(dataset.partitions):
            yield chunk.rows, chunk.weights

    entries = dataset.n_entries if isinstance(dataset, SparseDataset) else None
    weighted = dataset.weights is not None
    return Table(
        dataset.n_rows, dataset.n_features, dataset.dtype, weighted, blocks, n_entries=entries
    )
