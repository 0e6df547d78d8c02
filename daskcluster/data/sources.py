"""The registry of data sources: kinds of objects and URLs, each a `Source`, tried in order.

`register_source` adds one from outside; it is asked before ours.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from daskcluster.data.checks import (
    is_anndata,
    is_arrow,
    is_frame,
    is_huggingface,
    is_mapped_file,
    is_sparse,
    is_xarray,
)
from daskcluster.deprecation import moved
from daskcluster.sparse_rows import SparseRows
from daskcluster.storage.files import COMPRESSED
from daskcluster.storage.location import Location
from daskcluster.typing import Dataset


@dataclass(frozen=True)
class Source:
    """One kind of source.

    Attributes
    ----------
    name : str
        For people, and to register it once.
    takes : callable (object) -> bool
        Whether it opens what was given: a `Location` for paths and URLs, else the object itself. Asked
        of every source, so it should be quick and import nothing.
    open : callable (object, RowsSpec) -> Dataset, or str
        ``"module:function"`` is imported when it is first needed.
    options : tuple of {"array", "columns", "decode"}
        What of the spec `open` heeds, as well as ``flatten``; the rest is refused when it is given.
        Columns are those of tables; missing values and scales are dealt with after `open`.
    has_arrays, has_columns : bool
        For a source of version 0.1, whose `open` has the arguments ``flatten``, ``array`` and ``columns``.
    """

    name: str
    takes: Callable[[Any], bool]
    open: Callable[..., Dataset] | str
    options: tuple[str, ...] = ()
    has_arrays: bool = False
    has_columns: bool = False


def source_of(given: Any) -> Source:
    """Return the first source that takes what was given: an object, a `Location`, or a list of these."""
    return next(each for each in SOURCES if each.takes(given))


def is_list_of_files(given: Any) -> bool:
    """Return True for a list or tuple of paths and URLs."""
    return (
        isinstance(given, (list, tuple))
        and bool(given)
        and all(isinstance(each, (str, os.PathLike)) for each in given)
    )


def _is_dataset(given: Any) -> bool:
    # A check against a protocol takes as long as the labels of a hundred rows.
    return hasattr(given, "partitions") and isinstance(given, Dataset)


def _is_files(given: Any) -> bool:
    if isinstance(given, Location):
        is_name = given.is_local and os.path.exists(given.url)  # of a folder with brackets, say
        is_pattern = any(mark in given.url for mark in "*?[") and not is_name
        return is_pattern or given.url.lower().endswith(IN_PLACE)
    return isinstance(given, list) and bool(given) and isinstance(given[0], Location)


def is_table(given: Any) -> bool:
    """Return True for tables of other libraries than pandas and dask; nothing is imported."""
    return is_arrow(given) or is_huggingface(given)


def is_zarr(given: Any) -> bool:
    """Return True for an object of zarr, without importing it."""
    return type(given).__module__.partition(".")[0] == "zarr"


def is_hdf5(given: Any) -> bool:
    """Return True for a dataset, group or file of h5py, without importing it."""
    return type(given).__module__.partition(".")[0] == "h5py" and hasattr(given, "attrs")


def _is_lance(given: Any) -> bool:
    if isinstance(given, Location):
        return given.url.lower().endswith(".lance") and not _is_files(given)
    return type(given).__module__.startswith("lance.") and hasattr(given, "get_fragments")


def _is_iceberg(given: Any) -> bool:
    if isinstance(given, Location):
        return given.url.endswith(".metadata.json")
    return type(given).__module__.startswith("pyiceberg.table") and hasattr(given, "scan")


def _is_delta(given: Any) -> bool:
    return type(given).__module__.startswith("deltalake.") and hasattr(given, "table_uri")


EVERY = ("array", "columns", "decode")
"""Options of sources that hold arrays and tables, which refuse what does not suit these."""


@dataclass(frozen=True)
class FileKind:
    """A kind of files that are read in place, one or many as one dataset; see `Source`.

    Attributes
    ----------
    endings : tuple of str
        The first one is what errors call such files.
    open : str
        ``"module:function"``, called with a location, files relative to it and a spec.
    options : tuple of {"array", "columns", "decode"}
    """

    endings: tuple[str, ...]
    open: str
    options: tuple[str, ...] = ()


def _with_compressed(*endings: str) -> tuple[str, ...]:
    return tuple(ending + more for ending in endings for more in ("", *COMPRESSED))


FILES = (
    FileKind((".npy",), "daskcluster.data.numpy_files:open_numpy"),
    FileKind((".npz",), "daskcluster.data.numpy_files:open_numpy", ("array",)),
    FileKind(
        (".h5", ".hdf5", ".h5ad"), "daskcluster.data.hdf5_files:open_hdf5", ("array", "decode")
    ),
    FileKind(
        _with_compressed(".csv", ".tsv"),
        "daskcluster.data.text_files:open_csv_files",
        ("columns",),
    ),
    FileKind(
        _with_compressed(".jsonl", ".ndjson"),
        "daskcluster.data.json_lines:open_json_lines",
        ("columns",),
    ),
    FileKind((".parquet", ".pq"), "daskcluster.data.parquet:open_parquet", ("columns",)),
    FileKind(
        (".arrow", ".feather", ".ipc"),
        "daskcluster.data.arrow_files:open_arrow_files",
        ("columns",),
    ),
    FileKind((".orc",), "daskcluster.data.arrow_files:open_orc_files", ("columns",)),
)
IN_PLACE = tuple(ending for kind in FILES for ending in kind.endings)
"""Endings of files that are read in place, one or many."""
READ_IN_PLACE = (
    ", ".join(ending for ending in IN_PLACE if not ending.endswith(COMPRESSED))
    + f" (and text with {', '.join(COMPRESSED)})"
)
"""What errors say of these endings."""

SOURCES = [
    Source("Lance", _is_lance, "daskcluster.data.table_formats:open_lance", ("columns",)),
    Source("Iceberg", _is_iceberg, "daskcluster.data.table_formats:open_iceberg", ("columns",)),
    Source("Delta", _is_delta, "daskcluster.data.table_formats:open_delta", ("columns",)),
    Source("file", _is_files, "daskcluster.data.open:open_files", EVERY),
    Source(
        "Zarr",
        lambda given: isinstance(given, Location),
        "daskcluster.data.open:open_folder",
        EVERY,
    ),
    Source("dataset", _is_dataset, lambda given, spec: given),
    Source(
        "SparseRows",
        lambda given: isinstance(given, SparseRows),
        "daskcluster.data.memory:open_sparse",
    ),
    Source("AnnData", is_anndata, "daskcluster.data.open:open_anndata", ("array",)),
    Source("Zarr object", is_zarr, "daskcluster.data.open:open_object", ("array", "decode")),
    Source(
        "HDF5 object",
        is_hdf5,
        "daskcluster.data.hdf5_files:open_hdf5_object",
        ("array", "decode"),
    ),
    Source("xarray", is_xarray, "daskcluster.data.open:refuse_cells", EVERY),
    Source(
        "Dask",
        lambda given: hasattr(given, "__dask_graph__"),
        "daskcluster.data.dask_array:open_dask",
        ("columns",),
    ),
    Source("pandas", is_frame, "daskcluster.data.open:open_frame", ("columns",)),
    Source("Arrow", is_table, "daskcluster.data.tables:open_arrow", ("columns",)),
    Source("scipy sparse", is_sparse, "daskcluster.data.memory:open_sparse"),
    Source("memmap", is_mapped_file, "daskcluster.data.numpy_files:open_mapped"),
    Source("in memory", lambda given: True, "daskcluster.data.memory:open_array_like"),
]
"""Asked in this order: files by their endings, other URLs, then objects; the last one takes all."""


__getattr__ = moved(__name__, register_source="daskcluster.extending:register_source")
