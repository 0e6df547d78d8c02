"""Information about a dataset that needs no rows to be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daskcluster.chunk import compute_dtype
from daskcluster.data.csr import csr_of
from daskcluster.data.nodes import list_arrays, open_node
from daskcluster.data.parquet import ParquetFormat, read_footer
from daskcluster.data.row_files import FilesDataset
from daskcluster.data.tables import TableFormat, schema_with
from daskcluster.data.weighted import stored_attributes
from daskcluster.data.zarr import PARTS, ZarrDataset, ZarrSparseDataset
from daskcluster.storage.location import locate_rows
from daskcluster.typing import Dataset


def describe(dataset: Dataset) -> dict[str, Any]:
    """Return facts about a dataset, plain enough for JSON.

    Parameters
    ----------
    dataset : Dataset

    Returns
    -------
    dict
        ``rows, features, dtype, computed_in, weighted, bytes, chunks, chunk_rows, partitions,
        partition_rows, reach, in_memory``; of a Zarr array also ``source, format, array_shape,
        array_chunks, shards, codecs, bytes_stored`` (None where the store cannot be listed),
        ``shuffled`` (with which seed, or None if nothing is known of that); of files ``source, format,
        files, bytes_stored``; of files of tables also ``feature_columns, id_column, weights_column``, of
        Parquet ``columns`` with their types; of named features
        in other sources ``feature_names``; of the cells of a grid ``grid_shape``; of CSR rows also
        ``stored_values``; of a saved coreset also ``coreset``, what it was drawn from.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster.data.open import open_source
    >>> facts = describe(open_source(np.zeros((2000, 4), np.uint8)))
    >>> facts["rows"], facts["bytes"], facts["computed_in"], facts["reach"]
    (2000, 8000, 'float32', 'process')
    """
    sizes, parts = dataset.chunk_sizes, dataset.partitions
    facts: dict[str, Any] = {
        "rows": dataset.n_rows,
        "features": dataset.n_features,
        "dtype": str(dataset.dtype),
        "computed_in": str(compute_dtype(dataset.dtype)),
        "weighted": dataset.weights is not None,
        "bytes": dataset.bytes_of((0, dataset.n_rows)),
        "chunks": len(sizes),
        "chunk_rows": max(sizes),
        "partitions": len(parts),
        "partition_rows": max(stop - start for start, stop in parts),
        "reach": dataset.visibility.name.lower(),
        "in_memory": dataset.in_memory,
    }
    if csr_of(dataset) is not None:
        facts |= _sparse_facts(dataset)
    if isinstance(dataset, ZarrDataset):
        facts |= _zarr_facts(dataset)
    if isinstance(dataset, FilesDataset):
        facts |= _files_facts(dataset)
    elif (names := getattr(dataset, "feature_names", None)) is not None:
        facts["feature_names"] = list(names)
    if (grid := getattr(dataset, "grid", None)) is not None:
        facts["grid_shape"] = list(grid.shape)
    coreset = stored_attributes(dataset).get("coreset")
    return facts | {"coreset": dict(coreset)} if isinstance(coreset, Mapping) else facts


def _files_facts(dataset: FilesDataset) -> dict[str, Any]:
    facts = {
        "source": dataset.source,
        "format": dataset.form.kind,
        "files": len(dataset.files),
        "bytes_stored": sum(file.size for file in dataset.files),
    }
    if isinstance(dataset.form, ParquetFormat):
        facts["columns"] = _parquet_columns(dataset)
    if isinstance(dataset.form, TableFormat):
        columns = dataset.form.columns
        facts |= {
            "feature_columns": list(columns.names),
            "id_column": columns.id_column,
            "weights_column": columns.weights,
        }
    return facts


def _parquet_columns(dataset: FilesDataset) -> list[str]:
    """Return the columns of Parquet files with their types."""
    file = dataset.files[0]
    footer = read_footer(dataset.place_of(file), file.size, file.version)
    schema = schema_with(footer.schema.to_arrow_schema(), file)
    return [f"{field.name} ({field.type})" for field in schema]


def _sparse_facts(dataset: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {"stored_values": dataset.n_entries}
    if not isinstance(dataset, ZarrSparseDataset):
        return facts
    stored = [_bytes_stored(dataset.group[part]) for part in PARTS]
    return facts | {
        "source": dataset.source,
        "format": dataset.group.metadata.zarr_format,
        "bytes_stored": sum(size for size in stored if size is not None) or None,
    }


def _zarr_facts(dataset: ZarrDataset) -> dict[str, Any]:
    array = dataset.array
    return {
        "source": dataset.source,
        "format": array.metadata.zarr_format,
        "array_shape": list(array.shape),
        "array_chunks": list(array.chunks),
        "shards": list(array.shards) if array.shards else None,
        "codecs": [type(codec).__name__ for codec in (*array.filters, *array.compressors)],
        "bytes_stored": _bytes_stored(array),
        "shuffled": _how_shuffled(array),
    }


def _how_shuffled(array: Any) -> str | None:
    found = array.attrs.get("shuffled")
    if not isinstance(found, Mapping):
        return None
    return ", ".join(f"{name}={value}" for name, value in found.items())


def arrays_at(
    url: Any, *, storage_options: Mapping[str, Any] | None = None
) -> dict[str, str] | None:
    """Return what `list_arrays` says of the Zarr group at a URL; None if it is none."""
    try:
        return list_arrays(open_node(locate_rows(url, storage_options)))
    except Exception:  # not a group, or one that cannot be listed: the caller says what it needs
        return None


def _bytes_stored(array: Any) -> int | None:
    try:
        return int(array.nbytes_stored())
    except Exception:  # a store that cannot be listed; the other facts stand
        return None
