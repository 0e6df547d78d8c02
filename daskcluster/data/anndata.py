"""Names of features in AnnData, and labels written back to it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any

import numpy as np

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
    index = group["var"].attrs.get("_index")
    node: Any = group["var"].get(index) if index is not None else None
    if getattr(node, "shape", ()) != (n_features,):
        return None
    return usable_names((node.asstr() if hasattr(node, "asstr") else node)[:], n_features)


def annotate(adata: Any, labels: Any, key: str = "kmeans", **facts: Any) -> None:
    """Write labels to ``adata.obs[key]`` as categories of text, as single-cell programs do.

    Parameters
    ----------
    adata : AnnData, or path of an .h5ad file or of the Zarr store of one
        Changed. A file is written anew next to its place, and takes it when it is whole; of a store,
        ``obs`` and ``uns`` alone are written.
    labels : array-like of shape (n,)
        One label for each of its rows, e.g. ``model.labels_`` or ``model.predict(...)``.
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
    adata.obs[key] = _categories(labels, adata.n_obs)
    adata.uns[key] = dict(facts)


def _categories(labels: Any, n_rows: int) -> Any:
    pd = import_extra("pandas", "anndata", "Annotating needs pandas")
    if np.ma.is_masked(labels):
        raise InvalidDataError(
            f"{int(np.ma.count_masked(labels))} labels are masked, and every cell needs one; fill them, "
            "e.g. with numpy.ma.filled(labels, -1)."
        )
    values = np.asarray(labels)
    if values.shape != (n_rows,):
        raise InvalidDataError(
            f"labels of shape {values.shape} should be of shape ({n_rows},), one for each row."
        )
    known = [str(label) for label in np.unique(values).tolist()]
    return pd.Categorical([str(label) for label in values.tolist()], categories=known)


def _annotate_file(place: Location, labels: Any, key: str, facts: Mapping[str, Any]) -> None:
    io = import_extra("anndata.io", "anndata", "Annotating a file needs anndata")

    def write(content: Any) -> None:
        obs = io.read_elem(content["obs"])
        obs[key] = _categories(labels, len(obs))
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
