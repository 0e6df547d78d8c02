"""The registry of data sources: kinds of objects and URLs, each a `Source`, tried in order.

`register_source` adds one from outside; it is asked before ours.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

from daskcluster.data.anndata import anndata_rows, is_anndata
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
    """

    name: str
    takes: Callable[[Any], bool]
    open: Callable[..., Dataset] | str
    has_arrays: bool = False


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
) -> Dataset:
    """Open what was given by the first source that takes it.

    Raises
    ------
    InvalidParameterError
        ``array=`` was given for what has no arrays to choose from.
    """
    if isinstance(given, (str, os.PathLike)):
        given, array = locate(given, storage_options), array or None
    source = next(each for each in SOURCES if each.takes(given))
    more = {"array": array} if source.has_arrays else {}
    if array is not None and not more:
        what = f"source is a {type(given).__name__}"
        if isinstance(given, Location):
            what = f"{given.url!r} is a {source.name} file"
        raise InvalidParameterError(
            f"array={array!r} names an array of a Zarr group, but {what}; leave array= out."
        )
    opens = source.open if callable(source.open) else resolve_name(source.open)
    dataset: Dataset = opens(given, flatten=flatten, **more)
    return dataset


def _is_file(*endings: str) -> Callable[[Any], bool]:
    return lambda given: isinstance(given, Location) and given.url.lower().endswith(endings)


def is_zarr(given: Any) -> bool:
    """Return True for an object of zarr, without importing it."""
    return type(given).__module__.partition(".")[0] == "zarr"


SOURCES = [
    Source(".npy", _is_file(".npy"), "daskcluster.data.array:open_npy"),
    Source(
        "to convert",
        _is_file(".npz", ".csv", ".tsv", ".parquet", ".csv.gz", ".pq"),
        "daskcluster.data.open:refuse_file",
        has_arrays=True,
    ),
    Source(
        "Zarr",
        lambda given: isinstance(given, Location),
        "daskcluster.data.open:open_url",
        has_arrays=True,
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
        lambda given, array, flatten: open_source(anndata_rows(given, array), flatten=flatten),
        has_arrays=True,
    ),
    Source("Zarr object", is_zarr, "daskcluster.data.open:open_object"),
    Source(
        "Dask",
        lambda given: hasattr(given, "__dask_graph__"),
        "daskcluster.data.dask_array:open_dask",
    ),
    Source("scipy sparse", is_sparse, lambda given, **_: open_sparse(given)),
    Source("in memory", lambda given: True, "daskcluster.data.array:open_array_like"),
]
"""Asked in this order: files by their endings, other URLs, then objects; the last one takes all."""
