"""`open_source` and `open_chunk`: turn anything that holds rows into a dataset, as the rows are."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pkgutil import resolve_name
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.data.anndata import (
    ROW_NAMES,
    facts_of_names,
    usable_names,
)
from daskcluster.data.checks import (
    check_dtype,
    check_shape,
    has_list_column,
    is_masked,
    warn_of_ids_in_frame,
)
from daskcluster.data.dataset import RowDataset
from daskcluster.data.grid import Decoding, packed_rows
from daskcluster.data.join import in_order_of
from daskcluster.data.label_files import mask_of_source
from daskcluster.data.memory import open_array_like, open_sparse
from daskcluster.data.nodes import (
    check_current,
    is_csr,
    node_in,
    not_an_array,
    open_node,
    own_metadata,
    warn_of_missing_chunks,
)
from daskcluster.data.recipes import places_behind
from daskcluster.data.row_files import find_row_files
from daskcluster.data.sources import (
    FILES,
    IN_PLACE,
    READ_IN_PLACE,
    is_list_of_files,
    is_zarr,
    source_of,
)
from daskcluster.data.spec import (
    AS_THEY_ARE,
    RowsSpec,
    looks_like_path,
    names_of,
    refuse_duplicates,
)
from daskcluster.data.table_formats import opener_of
from daskcluster.data.tables import open_arrow
from daskcluster.data.weighted import (
    RowWeights,
    array_weights,
    holds_weighted_rows,
    open_weights,
)
from daskcluster.data.writer import ROWS, WEIGHTS
from daskcluster.data.zarr import ZarrDataset, ZarrRecipe, open_csr, recipe_of
from daskcluster.errors import (
    DatasetNotFoundError,
    InvalidDataError,
    InvalidParameterError,
    WrongTypeError,
)
from daskcluster.storage.location import Location, locate, locate_rows
from daskcluster.storage.zarr_stores import location_of
from daskcluster.typing import Dataset


def open_chunk(chunk: Chunk) -> Dataset:
    """Return the rows of a chunk as a dataset in memory: normalized, if those of the chunk are."""
    dataset = open_source(chunk.rows, weights=chunk.weights)
    return dataset.normalized() if chunk.normalize else dataset


def open_source(
    source: Any,
    spec: RowsSpec = AS_THEY_ARE,
    *,
    weights: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Dataset:
    """Open rows as they are stored or held: missing values are NaN, and no scale is applied.

    Parameters
    ----------
    source : anything `daskcluster.open_dataset` takes
    spec : RowsSpec
        Its `missing`, `scale` and `grid` are left to `daskcluster.estimators.opening`.
    weights : str, path or array-like of shape (n,), optional
        In place of the weights of `spec`.
    storage_options : mapping, optional

    Returns
    -------
    Dataset

    Raises
    ------
    DatasetNotFoundError, InvalidDataError, InvalidParameterError, MissingExtraError, WrongTypeError
        See `daskcluster.open_dataset`.

    Notes
    -----
    Cost: no pass over the rows; one pass over the weights, to check them.

    Examples
    --------
    >>> import numpy as np
    >>> dataset = open_source(np.zeros((10, 3), np.float32))
    >>> dataset.n_rows, dataset.n_features, dataset.dtype
    (10, 3, dtype('float32'))
    """
    weights = spec.weights if weights is None else weights
    named = is_list_of_files(source) or isinstance(source, (str, os.PathLike))
    if storage_options and not (named or isinstance(weights, (str, os.PathLike))):
        raise InvalidParameterError(
            f"storage_options say how to reach a URL, but source is a {type(source).__name__}; leave "
            "them out."
        )
    if isinstance(weights, str) and weights != spec.weights:
        spec = replace(spec, weights=weights)
    given = source
    if isinstance(source, (str, os.PathLike)):
        given = locate_rows(source, storage_options)
    elif named:
        given = [locate(each, storage_options) for each in source]
    kind = source_of(given)
    what = f"source is a {type(source).__name__}"
    if isinstance(given, Location):
        what = f"{given.url!r} is a {kind.name} file"
    spec.refuse_all_but(kind.options, what)
    opens = kind.open if callable(kind.open) else resolve_name(kind.open)
    opened: Dataset = opens(given, spec)
    if is_masked(source) and isinstance(opened, RowDataset):
        behind = tuple(places_behind(np.ma.getdata(source)))
        opened = opened.with_facts(read_from=opened.read_from + behind)
    if weights is None or getattr(opened, "weights_column", None) is not None:
        return opened
    if opened.weights is not None:
        raise InvalidParameterError(
            "The dataset carries weights already and weights= was given too; give them once."
        )
    if not isinstance(opened, RowDataset):
        raise WrongTypeError(
            f"weights= cannot be added to a {type(opened).__name__}; give it weights of its own."
        )
    weights = in_order_of(source, weights, "weights")
    left = mask_of_source(opened)
    n_rows = opened.n_rows if left is None else left.size
    own = _open_weights(weights, n_rows, source, spec, storage_options)
    if left is not None:  # weights are those of all rows of the source
        own = array_weights(np.asarray(own.values())[left], opened.n_rows)
    behind = tuple(places_behind(weights))
    return opened.with_facts(own_weights=own, read_from=opened.read_from + behind)


def _open_weights(
    weights: Any,
    n_rows: int,
    source: Any,
    spec: RowsSpec,
    options: Mapping[str, Any] | None,
) -> RowWeights:
    if not isinstance(weights, (str, os.PathLike)):
        if is_zarr(weights) and isinstance(recipe := recipe_of(weights), ZarrRecipe):
            return open_weights(recipe.location, recipe.name, n_rows)
        return array_weights(weights[:] if is_zarr(weights) else weights, n_rows)
    is_file = str(source).lower().endswith(IN_PLACE)
    if spec.array is not None and "://" not in str(weights) and not is_file:
        group = locate_rows(source, options)
        try:
            return open_weights(group, str(weights), n_rows)
        except DatasetNotFoundError:
            if not os.path.exists(weights):
                raise
    if isinstance(weights, str) and not looks_like_path(weights):
        raise InvalidParameterError(
            f"weights={weights!r} names no file or folder here, nor a column or array of the source (a "
            f"{type(source).__name__}); give the weights, or the URL of a Zarr array or .npy file."
        )
    place = locate_rows(weights, options)
    if str(weights).lower().endswith(".npy"):
        from daskcluster.data.numpy_files import read_npy

        return array_weights(read_npy(place), n_rows)
    return open_weights(place, "", n_rows)


def open_files(given: Location | Sequence[Location], spec: RowsSpec) -> RowDataset:
    """Open files of one kind as one dataset: a file, a folder, a pattern, or a list of files.

    Raises
    ------
    DatasetNotFoundError
        No file matches.
    InvalidDataError
        Files of several kinds, or of a kind that is not read in place.
    """
    location, files = find_row_files(given, IN_PLACE)
    shown = location.url if not isinstance(given, Location) else given.url
    if not files:
        raise DatasetNotFoundError(
            f"There is no file at {shown!r} that is read in place: {READ_IN_PLACE}; check the URL, or "
            "convert other files with: daskcluster convert FILE OUTPUT.zarr"
        )
    urls = [f"{location.url}/{file.name}".rstrip("/").lower() for file in files]
    kinds = {next((k for k in FILES if url.endswith(k.endings)), None) for url in urls}
    kind = kinds.pop()
    if kinds or kind is None:
        names = ", ".join(sorted(file.name for file in files)[:3])
        raise InvalidDataError(
            f"The files at {shown!r} are not all of one kind ({names} ...); choose those that are, "
            f"e.g. with {shown.rstrip('/')}/*.parquet, or convert others with: daskcluster convert "
            "FILE OUTPUT.zarr"
        )
    spec.refuse_all_but(kind.options, f"{shown!r} is a {kind.endings[0]} file")
    opened: RowDataset = resolve_name(kind.open)(location, files, spec)
    return opened


def open_folder(location: Location, spec: RowsSpec) -> RowDataset:
    """Open what is at a URL: a Zarr array or group, a table of a version, else a folder of files."""
    try:
        dataset = open_url(location, spec)
    except DatasetNotFoundError:
        opens = opener_of(location)
        if opens is None and not _holds_files(location):
            raise
        if opens is None:
            return open_files(location, spec)
        spec.refuse_all_but(("columns",), f"{location.url!r} is a table")
        return opens(location, spec)
    spec.refuse_all_but(("array", "decode"), f"{location.url!r} holds arrays")
    return dataset


def _holds_files(location: Location) -> bool:
    try:
        return any(file.name for file in find_row_files(location, IN_PLACE)[1])
    except DatasetNotFoundError:
        return False


def open_frame(frame: Any, spec: RowsSpec) -> RowDataset:
    """Open a pandas DataFrame: columns of numbers, or a column of lists (which needs pyarrow)."""
    check_shape(frame.shape, flatten=False, what="DataFrame")
    if looks_like_path(spec.weights or "") and spec.weights not in frame.columns:
        spec = replace(spec, weights=None)
    refuse_duplicates(frame.columns, spec, "the DataFrame")
    if spec.chooses_columns or spec.weights or has_list_column(frame):
        # Arrow takes no duplicates, not even where none of them is read.
        return open_arrow(frame.loc[:, ~frame.columns.duplicated()], spec)
    chosen = spec.features_among(frame.columns)
    if chosen is None:
        warn_of_ids_in_frame(frame)
    else:
        frame = frame[list(chosen)]
    if all(
        getattr(dtype, "fill_value", None) == 0 for dtype in frame.dtypes
    ):  # sparse columns alone
        dataset: RowDataset = open_sparse(frame.sparse.to_coo())
    else:
        dataset = open_array_like(frame, spec)
    return dataset.with_facts(feature_names=names_of(frame.columns))


def open_anndata(adata: Any, spec: RowsSpec) -> Any:
    """Open ``adata.X``, or an array of its ``obsm`` or ``layers``; views too, and X of a backed one.

    Raises
    ------
    DatasetNotFoundError
        There is no such array.
    InvalidDataError
        A view of rows that stay in a file.
    """
    parts = {"obsm": adata.obsm, "layers": adata.layers}
    group, _, key = (spec.array or "X").rpartition("/")
    is_x = key == "X" and not group
    if is_x and adata.isbacked:
        if adata.is_view:
            raise InvalidDataError(
                "The AnnData is a view of a file; open the whole file, e.g. open_dataset('cells.h5ad'), "
                "or load the view with .to_memory()."
            )
        return open_source(str(adata.filename), replace(spec, array="X"))
    among = [parts[group]] if group in parts else parts.values() if not group else []
    rows = adata.X if is_x else next((part[key] for part in among if key in part), None)
    if rows is None and is_x:
        raise DatasetNotFoundError("The AnnData has no X; name an array of its obsm with array=.")
    if rows is None:
        known = ", ".join([*adata.obsm, *adata.layers]) or "none"
        raise DatasetNotFoundError(
            f"array={spec.array!r} should be 'X' or an array of obsm or layers; there are: {known}."
        )
    dataset: Any = open_source(_without_view(rows), replace(spec, array=None))
    ids = np.asarray(adata.obs_names, dtype=object)
    dataset = dataset.with_facts(id_column=ROW_NAMES, own_ids=ids)
    if is_x or key not in adata.obsm:
        names = usable_names(adata.var_names, dataset.n_features)
        return dataset.with_facts(feature_names=names)
    return dataset


def _without_view(rows: Any) -> Any:
    """Return what a view of AnnData is a view of: classes of its own are for changes through a view."""
    if not type(rows).__module__.startswith("anndata"):
        return rows
    if hasattr(rows, "tocsr"):
        return rows.tocsr(copy=False)[:]
    if hasattr(rows, "columns"):
        import pandas as pd

        return pd.DataFrame(rows)
    return rows if hasattr(rows, "__dask_graph__") else np.asarray(rows)


def open_url(location: Location, spec: RowsSpec) -> RowDataset:
    """Open an array, a group of CSR rows, or what `write_weighted` wrote."""
    name, node, facts_of = _found(location, spec.array or "")
    if not name and holds_weighted_rows(node):
        rows = open_url(location, replace(spec, array=ROWS))
        return rows.with_weights(open_weights(location, WEIGHTS, rows.n_rows))
    place = location.child(name) if name else location
    if is_csr(node):
        for part in ("data", "indices"):
            if part in node:
                warn_of_missing_chunks(node[part], place.child(part))
        rows = open_csr(node, location, name)
    else:
        if not hasattr(node, "chunks"):
            raise not_an_array(node, repr(location.url), name)
        what = f"array at {location.url!r}"
        check_dtype(node.dtype, what=what)
        check_shape(node.shape, flatten=spec.flatten, what=what)
        warn_of_missing_chunks(node, place)
        rows = packed_rows(node, location, name, spec.decode)
    return rows.with_facts(**facts_of(rows))


def _found(
    location: Location, name: str
) -> tuple[str, Any, Callable[[RowDataset], dict[str, Any]]]:
    """Return the path and the node of an array, and what tells the names of its rows and features.

    In an AnnData, the arrays of ``obsm`` and ``layers`` are found by their names alone, too.
    """
    root: Any = open_node(location, "") if name else None
    if getattr(root, "attrs", {}).get("encoding-type") != "anndata":
        return name, open_node(location, name), lambda rows: {}
    path = next(
        (f"{group}{name}" for group in ("", "obsm/", "layers/") if group + name in root), name
    )
    return path, open_node(location, path), partial(facts_of_names, root, location, path)


def refuse_cells(source: Any, spec: RowsSpec) -> RowDataset:
    """Refuse xarray where rows alone are taken: which axes hold features is for `open_grid` to say.

    Raises
    ------
    WrongTypeError
    """
    raise WrongTypeError(
        f"source is a {type(source).__name__} of xarray, and rows are needed; open it with "
        "open_grid(source, features=...) and pass the dataset of the grid."
    )


def open_object(node: Any, spec: RowsSpec) -> RowDataset:
    """Open a `zarr.Array`, CSR rows of a `zarr.Group`, or one of the arrays of a group.

    Raises
    ------
    InvalidDataError
        A group without the name of an array, or an object that is not as the store has it now.
    """
    location = location_of(node)
    if location is not None:
        check_current(node, location)
        return open_url(location, spec)
    name = spec.array or ""
    where = f"the {type(node).__name__} of zarr in a {type(node.store).__name__}"
    array: Any = node_in(own_metadata(node), name, where)
    if is_csr(array):
        return open_csr(array)
    if not hasattr(array, "shape"):
        raise not_an_array(array, where, name)
    check_dtype(array.dtype, what="Zarr array")
    check_shape(array.shape, flatten=spec.flatten, what="Zarr array")
    decoding, decoded = Decoding.of(array, "its store", spec.decode)
    if decoding is not None:
        raise InvalidDataError(
            "source is a zarr.Array whose attributes say how to decode it, in a store of this process "
            "alone; pass its values as an array, or as an xarray.DataArray."
        )
    return ZarrDataset(array, recipe_of(array)).with_facts(decoded=decoded)
