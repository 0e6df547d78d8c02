"""Names of features in AnnData, and labels written back to it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.data.join import positions_by_id
from daskcluster.data.nodes import open_node
from daskcluster.errors import DatasetNotFoundError, InvalidDataError
from daskcluster.extras import import_extra
from daskcluster.storage.files import new_file
from daskcluster.storage.location import Location, locate


def usable_names(names: Any, n_features: int) -> tuple[str, ...] | None:
    """Return the names of features; None unless each feature has one."""
    found = tuple(map(str, names))
    return found if len(found) == n_features else None


def stored_names(group: Any, array: str, n_features: int) -> tuple[str, ...] | None:
    """Return the names of the features of X or of a layer of an AnnData in HDF5 or Zarr; None of others.

    Parameters
    ----------
    group : h5py.File or zarr.Group
    array : str
        Path of the rows in it.
    n_features : int
    """
    if not (array == "X" or array.startswith("layers/")) or "var" not in group:
        return None
    path = path_of_names(group, "var", n_features)
    return None if path is None else usable_names(read_names(group[path], slice(None)), n_features)


def path_of_names(group: Any, axis: str, n: int) -> str | None:
    """Return the path of the names of the `n` rows (obs) or features (var) of a stored AnnData, or None."""
    index = group[axis].attrs.get("_index") if axis in group else None
    node: Any = None if index is None else group[axis].get(index)
    # A column that may lack values is a group of values and a mask.
    values = "/values" if node is not None and not hasattr(node, "shape") else ""
    if values and node is not None:
        node = node.get("values")
    return f"{axis}/{index}{values}" if getattr(node, "shape", ()) == (n,) else None


def read_names(node: Any, span: slice) -> np.ndarray:
    """Return names that an array of HDF5 or Zarr holds."""
    return np.asarray((node.asstr() if hasattr(node, "asstr") else node)[span], dtype=object)


@dataclass(frozen=True)
class StoredNames:
    """Names of rows in a Zarr array, read when they are asked for."""

    location: Location

    def __getitem__(self, span: slice) -> np.ndarray:
        return read_names(open_node(self.location), span)


ROW_NAMES = "obs_names"
"""The column of ids that the names of an AnnData's rows become in files of labels."""


def facts_of_names(group: Any, location: Location, array: str, rows: Any) -> dict[str, Any]:
    """Return the names of features and rows of an array of an AnnData in Zarr, as facts of `rows`."""
    facts: dict[str, Any] = {}
    features = stored_names(group, array, rows.n_features)
    if features is not None:
        facts |= {"feature_names": features, "read_from": (location.child("var"),)}
    path = path_of_names(group, "obs", rows.n_rows)
    if path is not None:
        facts |= {"id_column": ROW_NAMES, "own_ids": StoredNames(location.child(path))}
    return facts


def annotate(adata: Any, labels: Any, key: str = "kmeans", **facts: Any) -> None:
    """Write labels to ``adata.obs[key]`` as categories of text, as single-cell programs do.

    Parameters
    ----------
    adata : AnnData, or path of an .h5ad file or of the Zarr store of one
        Changed. A file is written anew next to its place, and takes it when it is whole; of a store,
        ``obs`` and ``uns`` alone are written.
    labels : array-like of shape (n,)
        One label for each of its rows, e.g. ``model.labels_`` or ``model.predict(...)``. Labels that know
        the ids of their rows, which are ``labels_`` of a stored AnnData or table with ids and pandas Series
        by their index, are matched with ``obs_names``; others by position. -1, which rows that were left
        out have, becomes a missing value.
    key : str, default "kmeans"
    **facts
        Plain values for ``adata.uns[key]``, e.g. ``n_clusters=8``.

    Raises
    ------
    DatasetNotFoundError
        There is no such file.
    InvalidDataError
        Not one label for each row.
    MissingExtraError
        pandas is not installed, or anndata for a file.

    Notes
    -----
    Cost: no pass over the rows, one over the labels; memory for one text per row meanwhile, and for one
    code per row in ``obs``. An .h5ad file is copied once.

    Examples
    --------
    >>> import daskcluster as dc
    >>> rows = dc.open_dataset(adata, array="X_pca")  # doctest: +SKIP
    >>> dc.annotate(adata, dc.KMeans(8).fit(rows).labels_, "clusters")  # doctest: +SKIP
    """
    if isinstance(adata, (str, os.PathLike)):
        _annotate_file(locate(adata), labels, key, facts)
        return
    adata.obs[key] = _categories(labels, adata.obs)
    adata.uns[key] = dict(facts)


def _categories(labels: Any, obs: Any) -> Any:
    pd = import_extra("pandas", "anndata", "Annotating needs pandas")
    if np.ma.is_masked(labels):
        raise InvalidDataError(
            f"{int(np.ma.count_masked(labels))} labels are masked, and every cell needs one; fill them, "
            "e.g. with numpy.ma.filled(labels, -1)."
        )
    ids = labels.ids() if hasattr(labels, "ids") else getattr(labels, "index", None)
    values = np.asarray(labels)
    if ids is not None and not callable(ids) and values.ndim == 1:
        texts = map(str, getattr(ids, "to_pylist", lambda: ids)())
        values = values[positions_by_id(pd.Index(list(texts)), obs.index.astype(str), "labels")]
    if values.shape != (len(obs),):
        raise InvalidDataError(
            f"labels of shape {values.shape} should be of shape ({len(obs)},), one for each row."
        )
    is_left_out = values == -1 if values.dtype.kind == "i" else np.zeros(len(values), bool)
    known = [str(label) for label in np.unique(values[~is_left_out]).tolist()]
    shown = np.array([str(label) for label in values.tolist()], dtype=object)
    shown[is_left_out] = None
    return pd.Categorical(shown, categories=known)


def _annotate_file(place: Location, labels: Any, key: str, facts: Mapping[str, Any]) -> None:
    io = import_extra("anndata.io", "anndata", "Annotating a file needs anndata")

    def write(content: Any) -> None:
        obs = io.read_elem(content["obs"])
        obs[key] = _categories(labels, obs)
        io.write_elem(content, "obs", obs)
        io.write_elem(content.require_group("uns"), key, dict(facts))

    if not place.is_local or not os.path.exists(place.url):
        raise DatasetNotFoundError(f"There is no file {place.url!r} on this host; check the path.")
    if os.path.isdir(place.url):
        import zarr

        write(zarr.open_group(place.url, mode="r+", use_consolidated=False))
        if zarr.open_group(place.url, mode="r").metadata.consolidated_metadata is not None:
            zarr.consolidate_metadata(place.url)
        return
    import h5py

    with new_file(place, overwrite=True) as out:
        shutil.copy2(place.url, out.name)
        with h5py.File(out.name, "r+") as content:
            write(content)
