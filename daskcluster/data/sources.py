"""The registry of data sources: kinds of objects and URLs, each a `Source`, tried in order.

`register_source` adds one from outside; it is asked before ours.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from typing import Any

from daskcluster.data.anndata import is_anndata
from daskcluster.data.arrow import is_arrow, is_huggingface
from daskcluster.data.checks import is_frame
from daskcluster.data.columns import ColumnChoice
from daskcluster.data.lance import is_lance
from daskcluster.data.memory import MemorySparseDataset, is_sparse, open_sparse
from daskcluster.errors import InvalidParameterError
from daskcluster.sparse_rows import SparseRows
from daskcluster.storage.location import Location, locate
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
    open : callable (object, *, flatten) -> Dataset, or str
        ``"module:function"`` is imported when it is first needed. What it gets is said in
        `daskcluster.open_dataset`.
    has_arrays : bool
        ``array=`` chooses one of several, and `open` gets it; else it is refused.
    has_columns : bool
        The rows are those of a table: `open` gets ``columns``, a `ColumnChoice`; else a choice is refused.
    """

    name: str
    takes: Callable[[Any], bool]
    open: Callable[..., Dataset] | str
    has_arrays: bool = False
    has_columns: bool = False


def register_source(source: Source) -> None:
    """Let `daskcluster.open_dataset`, fits and the command line take one more kind of source.

    It is asked before all others. Registering another one under the same name replaces it.

    Parameters
    ----------
    source : Source
        The dataset that it opens is best a `daskcluster.data.dataset.RowDataset`, which asks for little.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster.data.array import ArrayDataset
    >>> def takes(given):
    ...     return isinstance(given, Location) and given.scheme == "ones"
    >>> register_source(Source("ones", takes, lambda given, flatten: ArrayDataset(np.ones((9, 2)))))
    >>> open_source("ones://nine").n_rows
    9
    >>> del SOURCES[0]
    """
    SOURCES[:] = [source, *(each for each in SOURCES if each.name != source.name)]


def open_source(
    given: Any,
    *,
    array: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    flatten: bool = False,
    columns: ColumnChoice | None = None,
) -> Dataset:
    """Open what was given by the first source that takes it.

    Raises
    ------
    InvalidParameterError
        ``array=`` was given for what has no arrays to choose from, or columns for what has none.
    """
    if isinstance(given, (str, os.PathLike)):
        given, array = locate(given, storage_options), array or None
    elif is_list_of_files(given):
        given = [locate(each, storage_options) for each in given]
    source = next(each for each in SOURCES if each.takes(given))
    more: dict[str, Any] = {"array": array} if source.has_arrays else {}
    if source.has_columns:
        more["columns"] = columns
    elif columns is not None and not replace(columns, weights=None).is_default:
        what = repr(given.url) if isinstance(given, Location) else f"a {type(given).__name__}"
        raise InvalidParameterError(
            f"columns=, drop=, id_column= and nulls= choose columns of a table, and the source ({what}) is "
            "none; leave them out."
        )
    if array is not None and not source.has_arrays:
        what = f"source is a {type(given).__name__}"
        if isinstance(given, Location):
            what = f"{given.url!r} is a {source.name} file"
        raise InvalidParameterError(
            f"array={array!r} names an array of a Zarr group, but {what}; leave array= out."
        )
    opens = source.open if callable(source.open) else resolve_name(source.open)
    dataset: Dataset = opens(given, flatten=flatten, **more)
    return dataset


def is_list_of_files(given: Any) -> bool:
    """Return True for a list or tuple of paths and URLs."""
    return (
        isinstance(given, (list, tuple))
        and bool(given)
        and all(isinstance(each, (str, os.PathLike)) for each in given)
    )


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


IN_PLACE = (
    ".npy", ".parquet", ".pq", ".h5ad", ".h5", ".hdf5", ".csv", ".tsv", ".csv.gz", ".tsv.gz",
    ".npz",
)  # fmt: skip
"""Endings of files that are read in place, one or many."""

SOURCES = [
    Source("Lance", is_lance, "daskcluster.data.lance:open_lance", has_columns=True),
    Source(
        "file",
        _is_files,
        "daskcluster.data.open:open_files",
        has_arrays=True,
        has_columns=True,
    ),
    Source(
        "Zarr",
        lambda given: isinstance(given, Location),
        "daskcluster.data.open:open_folder",
        has_arrays=True,
        has_columns=True,
    ),
    Source("dataset", lambda given: isinstance(given, Dataset), lambda given, **_: given),
    Source(
        "SparseRows",
        lambda given: isinstance(given, SparseRows),
        lambda given, **_: MemorySparseDataset(given),
    ),
    Source(
        "AnnData",
        is_anndata,
        "daskcluster.data.anndata:open_anndata",
        has_arrays=True,
    ),
    Source("Zarr object", is_zarr, "daskcluster.data.open:open_object"),
    Source(
        "Dask",
        lambda given: hasattr(given, "__dask_graph__"),
        "daskcluster.data.dask_array:open_dask",
        has_columns=True,
    ),
    Source("pandas", is_frame, "daskcluster.data.open:open_frame", has_columns=True),
    Source("Arrow", is_table, "daskcluster.data.arrow:open_arrow", has_columns=True),
    Source("scipy sparse", is_sparse, lambda given, **_: open_sparse(given)),
    Source("in memory", lambda given: True, "daskcluster.data.array:open_array_like"),
]
"""Asked in this order: files by their endings, other URLs, then objects; the last one takes all."""
