"""AnnData files as rows, and labels written back to them, without the anndata library."""

from __future__ import annotations

from typing import Any

import numpy as np

from daskcluster.errors import DatasetNotFoundError, InvalidDataError, MissingExtraError
from daskcluster.extras import install_command


def is_anndata(source: Any) -> bool:
    """Return True for an AnnData object, without importing its library."""
    return type(source).__module__.partition(".")[0] == "anndata" and hasattr(source, "obsm")


def anndata_rows(adata: Any, name: str | None) -> Any:
    """Return ``adata.X``, or the array `name` of its ``obsm`` or ``layers``.

    Raises
    ------
    DatasetNotFoundError
        There is no such array.
    InvalidDataError
        Rows stay in a file.
    """
    if name is None or name == "X":
        rows = adata.X
        if rows is None:
            raise DatasetNotFoundError(
                "The AnnData has no X; name an array of its obsm with array=."
            )
    elif name in adata.obsm:
        rows = adata.obsm[name]
    elif name in adata.layers:
        rows = adata.layers[name]
    else:
        known = ", ".join([*adata.obsm, *adata.layers]) or "none"
        raise DatasetNotFoundError(
            f"array={name!r} should be 'X' or an array of obsm or layers; there are: {known}."
        )
    if getattr(adata, "isbacked", False) and rows is adata.X:
        raise InvalidDataError(
            "The AnnData is backed by a file; open that file, e.g. open_dataset('cells.h5ad'), load it "
            "with .to_memory(), or write it with .write_zarr(URL)."
        )
    return rows


def annotate(adata: Any, labels: Any, key: str = "kmeans", **facts: Any) -> None:
    """Write labels to ``adata.obs[key]`` as categories of text, as single-cell programs do.

    Parameters
    ----------
    adata : AnnData
        Changed.
    labels : array-like of shape (n,)
        Of its rows, e.g. ``model.labels_`` or ``model.predict(...)``.
    key : str
    **facts
        Plain values for ``adata.uns[key]``, e.g. ``n_clusters=8``.

    Raises
    ------
    InvalidDataError
        Not one label for each row.
    MissingExtraError
        pandas is not installed.

    Notes
    -----
    Cost: no pass over the rows, one over the labels; memory for one text per row meanwhile, and for one
    code per row in ``obs``.

    Examples
    --------
    >>> import daskcluster as dc
    >>> rows = dc.open_dataset(adata, array="X_pca")  # doctest: +SKIP
    >>> dc.annotate(adata, dc.KMeans(8).fit(rows).labels_, "clusters")  # doctest: +SKIP
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingExtraError(
            f"annotating needs pandas; install it with: {install_command('anndata')}."
        ) from error
    values = np.asarray(labels)
    if values.shape != (adata.n_obs,):
        raise InvalidDataError(
            f"labels of shape {values.shape} should be of shape ({adata.n_obs},), one for each row."
        )
    known = [str(label) for label in np.unique(values).tolist()]
    texts = [str(label) for label in values.tolist()]
    adata.obs[key] = pd.Categorical(texts, categories=known)
    adata.uns[key] = dict(facts)
