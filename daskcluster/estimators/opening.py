"""`open_dataset`: rows from any source, as a spec says, without missing values and on a scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from daskcluster.data.open import open_source
from daskcluster.data.spec import RowsSpec
from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.grids import is_raster, open_grid
from daskcluster.estimators.prepared import prepared
from daskcluster.events import Callback
from daskcluster.typing import Dataset


def open_dataset(
    source: Any,
    *,
    array: str | None = None,
    weights: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    flatten: bool = False,
    columns: str | Sequence[str] | None = None,
    drop: str | Sequence[str] | None = None,
    id_column: str | None = None,
    nulls: str | None = None,
    missing: str | None = None,
    scale: str | None = None,
    decode: bool | None = None,
    engine: Any = None,
) -> Dataset:
    """Open rows for clustering, from any source. Reads only metadata and weights.

    Parameters
    ----------
    source : str, path or array
        A Zarr array (v2 or v3) or group by path or fsspec URL (``file://``, ``memory://``, ``s3://``,
        ``gs://``, ``abfs://``), also one that holds CSR rows in AnnData's layout (encoding-type
        ``csr_matrix``), or a saved coreset, which brings its weights; a zarr.Array or such a zarr.Group; a
        GeoTIFF (``.tif``), of which cells with data are rows and bands features, see `open_grid`.
        A ``.npy``, ``.npz``, ``.parquet``, ``.arrow``, ``.feather``, ``.csv``, ``.tsv``, ``.jsonl``,
        ``.h5ad`` or ``.h5`` file, or many of one kind as one dataset: a folder, a pattern such as
        ``s3://bucket/emb/*.parquet``, or a list of files; numbers in names count as numbers, so that
        ``part-2`` comes before ``part-10``. A numpy array or memmap, a list of rows, a pandas DataFrame, an
        Arrow table or what gives one (polars, DuckDB, Hugging Face datasets), a Lance dataset or the URL
        of one, a dask array or DataFrame, a scipy sparse matrix, an AnnData, or a dataset. Shape (n, d);
        float16, bfloat16, float32, float64, any integers, bool.
    array : str, optional
        Which array (or CSR group) of a Zarr group, HDF5 or .npz file, e.g. ``"X"``; of an AnnData ``X``
        (the default), or an array of ``obsm`` or ``layers``.
    weights : array-like of shape (n,), or str, optional
        Row weights: finite, >= 0, not all zero. A string names an array of the same Zarr group or file, or
        a column of the same table, or is the URL of a 1-D Zarr array or ``.npy`` file.
    storage_options : dict, optional
        Options of the file system, e.g. ``{"anon": True}``. Those that look like credentials stay in
        this process; workers resolve their own from their environment.
    flatten : bool, default False
        Accept shape (..., d), e.g. a raster (y, x, bands): all axes before the last become rows, in
        C order.
    columns : str or sequence of str, optional
        For a table (Parquet, Arrow, a data frame): the columns of features, either numbers or lists of
        numbers of one length. Default: the one list column of numbers if there is one, else all columns.
    drop : str or sequence of str, optional
        Columns of a table that are no features.
    id_column : str, optional
        The column of a table that names the rows: no feature, and written next to labels.
    nulls : {"error", "drop"}, optional
        ``"drop"`` is an older name of ``missing="drop"``.
    missing : {"error", "drop", "mean", "partial"}, optional
        Rows with NaN, null or masked values: an error of the fit that names the first one; or they are left
        out, and ``n_rows`` counts the others (labels have -1 for them, distances NaN: results have an entry
        for every row of the source); or NaN is replaced by the mean of the feature over all rows that have
        it, also in rows that the model labels; or distances are taken over the features that a row has
        (`daskcluster.KMeans` alone). Default: ``"error"``, but ``"drop"`` for cells of a GeoTIFF, and for
        rows under a model that was fitted so.
    scale : {"standard", "minmax"}, optional
        Scale the features: ``"standard"`` subtracts the mean and divides by the standard deviation,
        ``"minmax"`` maps the range to [0, 1]. The scale is computed in one pass now and applied to every
        block that is read later; rows in memory are copied. Sparse rows are divided but not shifted, so
        that they stay sparse; distances do not depend on the shift. k-means estimators report centres in
        the data's own units, store the scale in their models, and apply it to new rows.
    decode : bool, optional
        Whether the attributes ``scale_factor``, ``add_offset``, ``_FillValue``, ``missing_value`` and
        ``_Unsigned`` of an array in Zarr or HDF5 decode its numbers, as xarray does. Default: they do.
        Models remember it.
    engine : see `daskcluster.KMeans`
        Runs that pass.

    Returns
    -------
    Dataset

    Raises
    ------
    DatasetNotFoundError
        The source or its array does not exist, or may not be read.
    InvalidDataError
        Wrong shape or dtype, a damaged store, or with `scale` a row that is not finite.
    InvalidParameterError
        Weights are not one finite number >= 0 per row, or are given twice; `scale` is unknown.
    MissingExtraError
        The cloud's client is not installed.
    WrongTypeError
        The type of `source` is not supported.

    Notes
    -----
    Cost: no pass over the rows, one with `scale` or ``missing="drop"``, two with ``"mean"`` or
    ``"partial"``; one pass over the weights, to check them. The footers of
    Parquet files are read, 16 at a time; ``nulls="drop"`` reads the row groups once that may lack values.
    A row group of more than 64 MB is streamed: one thread decodes it from its start. Frames of unknown
    length are computed once for their lengths. Scaling costs a few operations a value in each pass.

    Examples
    --------
    >>> import numpy as np
    >>> dataset = open_dataset(np.zeros((10, 3), np.float32))
    >>> dataset.n_rows, dataset.n_features, dataset.dtype
    (10, 3, dtype('float32'))
    >>> open_dataset(np.array([[0.0], [5.0], [10.0]]), scale="minmax").to_numpy().ravel()
    array([0. , 0.5, 1. ])
    """
    spec = RowsSpec.of(
        array=array,
        columns=columns,
        drop=drop,
        id_column=id_column,
        nulls=nulls,
        weights=weights,
        missing=missing,
        scale=scale,
        flatten=flatten,
        decode=decode,
    )
    opened = open_stored(
        source, spec, weights=weights, storage_options=storage_options, engine=engine
    )
    return prepared(*opened, engine=engine)


def open_stored(
    source: Any,
    spec: RowsSpec,
    *,
    weights: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
) -> tuple[Dataset, RowsSpec]:
    """Open rows, or the cells of a grid, as they are, and say what is left of the spec for `prepared`.

    Missing values of a grid are dealt with here: a cell without any value is no row.

    Raises
    ------
    InvalidParameterError
        An option that grids do not have.
    """
    if not spec.grid and not is_raster(source):
        found = open_source(source, spec, weights=weights, storage_options=storage_options)
        return found, spec
    spec.refuse_all_but(("array", "decode"), "features and nodata are those of a grid")
    if weights is not None or spec.weights or spec.flatten:
        raise InvalidParameterError(
            "weights and flatten cannot be given together with features or nodata of a grid; leave them "
            "out."
        )
    grid = open_grid(
        source,
        **(spec.grid or {}),
        array=spec.array,
        decode=spec.decode,
        missing="drop" if spec.missing in (None, "error") else spec.missing,
        storage_options=storage_options,
        engine=engine,
        callbacks=callbacks,
    )
    return grid.dataset, replace(spec, missing=None)
