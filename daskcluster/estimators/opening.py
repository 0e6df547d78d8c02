"""`open_dataset`, with optional scaling of features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.feature_scaling import (
    FEATURES,
    PARTIAL,
    SCALES,
    FeatureParams,
    FeatureScaling,
    FeatureStatistics,
)
from daskcluster.chunkwise.present import PRESENT
from daskcluster.data.columns import ColumnChoice
from daskcluster.data.dataset import RowDataset
from daskcluster.data.grid import GridShape
from daskcluster.data.missing import ALL, MISSING, presence, without_incomplete
from daskcluster.data.open import open_dataset as open_rows
from daskcluster.data.sink import ArraySink
from daskcluster.data.sparse import SparseDataset
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.engine import Placement
from daskcluster.engine.memory import ONE_PASS
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidDataError, InvalidParameterError, WrongTypeError
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
    nulls: str = "error",
    missing: str = "error",
    scale: str | None = None,
    engine: Any = None,
) -> Dataset:
    """Open rows for clustering, from any source. Reads only metadata and weights.

    Parameters
    ----------
    source : str, path or array
        A Zarr array (v2 or v3) or group by path or fsspec URL (``file://``, ``memory://``, ``s3://``,
        ``gs://``, ``abfs://``), also one that holds CSR rows in AnnData's layout (encoding-type
        ``csr_matrix``), or a saved coreset, which brings its weights; a zarr.Array or such a zarr.Group.
        A ``.npy``, ``.npz``, ``.parquet``, ``.csv``, ``.tsv``, ``.h5ad`` or ``.h5`` file, or many of one
        kind as one dataset: a folder, a pattern such as
        ``s3://bucket/emb/*.parquet``, or a list of files; numbers in names count as numbers, so that
        ``part-2`` comes before ``part-10``. A numpy array or memmap, a list of rows, a pandas DataFrame, an
        Arrow table or what gives one (polars, DuckDB, Hugging Face datasets), a Lance dataset or the URL
        of one, a dask array or DataFrame, a
        scipy sparse matrix, an AnnData, or a dataset. Shape (n, d); float16, bfloat16, float32, float64,
        any integers, bool.
    array : str, optional
        Which array (or CSR group) of a Zarr group, HDF5 or .npz file, e.g. ``"X"``; of an AnnData ``X``
        (the default), or an array of ``obsm`` or ``layers``.
    weights : array-like of shape (n,), or str, optional
        Row weights: finite, >= 0, not all zero. A string names an array of the same Zarr group or a column
        of the same table, or is the URL of a 1-D Zarr array or ``.npy`` file.
    storage_options : dict, optional
        Options of the file system, e.g. ``{"anon": True}``. Those that look like credentials stay in
        this process; workers resolve their own from their environment.
    flatten : bool, default False
        Accept shape (..., d), e.g. a raster (y, x, bands): all axes before the last become rows, in
        C order.
    columns : str or sequence of str, optional
        Of a table (Parquet, Arrow, a data frame): the columns of features, either numbers or lists of
        numbers of one length. Default: the one list column of numbers if there is one, else all columns.
    drop : str or sequence of str, optional
        Columns of a table that are no features.
    id_column : str, optional
        The column of a table that names the rows: no feature, and written next to labels.
    nulls : {"error", "drop"}, default "error"
        Rows of a table that lack a value: an error that names the first one, or they are left out.
    missing : {"error", "drop", "mean", "partial"}, default "error"
        Rows with NaN or masked values: an error of the fit that names the first one; or they are left out,
        and the others numbered anew (labels saved to Zarr are -1 for them, files of labels name the
        others); or NaN is replaced by the mean of the feature over all rows that have it, also in rows that
        the model labels; or distances are taken over the features that a row has (`daskcluster.KMeans`
        alone).
    scale : {"standard", "minmax"}, optional
        Scale the features: ``"standard"`` subtracts the mean and divides by the standard deviation,
        ``"minmax"`` maps the range to [0, 1]. The scale is computed in one pass now and applied to every
        block that is read later; rows in memory are copied. Sparse rows are divided but not shifted, so
        that they stay sparse; distances do not depend on the shift. k-means estimators report centres in
        the data's own units, store the scale in their models, and apply it to new rows.
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
    choice = ColumnChoice.of(columns, drop=drop, id_column=id_column, nulls=nulls)
    opened = open_rows(
        source,
        array=array,
        weights=weights,
        storage_options=storage_options,
        flatten=flatten,
        columns=choice,
    )
    if missing != "error":
        opened = without_missing(opened, missing, engine=engine)
    return opened if scale is None else scaled(opened, scale, engine=engine)


def without_missing(
    dataset: Dataset, missing: str, *, engine: Any = None, callbacks: Sequence[Callback] = ()
) -> Dataset:
    """Return the rows without NaN: those that have one are left out, or filled with means.

    Parameters
    ----------
    dataset : Dataset
    missing : {"drop", "mean", "partial"}
    engine : see `daskcluster.KMeans`
    callbacks : sequence of callables
        Hear the progress of the passes.

    Raises
    ------
    InvalidDataError
        No row is complete, or a feature has no value at all.
    InvalidParameterError, WrongTypeError
        Another way than these, or sparse rows.
    """
    if missing not in MISSING:
        raise InvalidParameterError(f"missing={missing!r} should be one of {', '.join(MISSING)}.")
    if not isinstance(dataset, RowDataset) or isinstance(dataset, SparseDataset):
        raise WrongTypeError(
            f"missing={missing!r} cannot be applied to a {type(dataset).__name__}; remove NaN from its "
            "rows."
        )
    if dataset.dtype.kind in "biu":
        return dataset
    chosen = choose_engine(engine, dataset)
    with chosen.place(dataset, callbacks=callbacks, footprint=ONE_PASS) as placement:
        if missing == "drop":
            found = presence_of(placement)
            if not (found == ALL).any():
                raise InvalidDataError(
                    f"None of the {dataset.n_rows} rows is complete; use missing='mean', or leave out the "
                    "features that lack values."
                )
            return _left(dataset, found)
        counts: np.ndarray = placement.reduce(PRESENT, dataset.n_features)
    if not counts.all():
        raise InvalidDataError(
            f"Feature {int(np.argmin(counts))} has no value in any row, so it has no mean; leave it out."
        )
    unweighted = dataset.with_weights(None)  # type: ignore[arg-type]
    zeros = unweighted.with_scaling(FeatureScaling.filling(np.zeros(dataset.n_features)))
    means = learn_scaling(zeros, "standard", chosen, callbacks).shift
    means = means * (dataset.n_rows / counts)
    by_cluster = missing == "partial"
    kind = FeatureScaling.of_clusters if by_cluster else FeatureScaling.filling
    return dataset.with_scaling(kind(means))


def _left(dataset: RowDataset, found: np.ndarray) -> RowDataset:
    """Return the complete rows; labels that are saved to Zarr have -1 for the others."""
    rows = without_incomplete(dataset, found)
    if rows is dataset:
        return dataset
    cells = dataset.grid or GridShape((dataset.n_rows,))
    mask = np.ones(cells.shape, bool) if cells.mask is None else cells.mask.copy()
    mask[mask] = found == ALL
    return rows.with_grid(replace(cells, mask=mask))


def presence_of(placement: Placement, nodata: float | None = None) -> np.ndarray:
    """Return the `presence` of all rows, uint8 (n,), in one pass."""
    found = ArraySink(np.empty(placement.dataset.n_rows, np.uint8))
    placement.map_rows(_presence, found, nodata, name="missing values")
    return found.array


def _presence(chunk: Chunk, nodata: float | None) -> np.ndarray:
    return presence(np.asarray(chunk.rows), nodata)


def scaled(
    dataset: Dataset, scale: str, *, engine: Any = None, callbacks: Sequence[Callback] = ()
) -> Dataset:
    """Return `dataset` with scaled features; the scale is computed from its rows in one pass.

    Parameters
    ----------
    dataset : Dataset
    scale : {"standard", "minmax"}
    engine : see `daskcluster.KMeans`
    callbacks : sequence of callables
        Called with the events of the pass.
    """
    if scale not in SCALES:
        raise InvalidParameterError(
            f"scale={scale!r} should be one of {', '.join(SCALES)}, or None."
        )
    if not isinstance(dataset, RowDataset):
        raise WrongTypeError(f"scale= cannot be applied to a {type(dataset).__name__}.")
    filled = dataset.scaling
    if filled is not None and filled.kind == PARTIAL:
        raise InvalidParameterError(
            f"scale={scale!r} cannot be combined with missing='partial'; scale the rows in the source, "
            "or use missing='mean'."
        )
    if filled is not None and filled.scales:
        raise InvalidParameterError(
            f"scale={scale!r} cannot be applied, since the dataset is already scaled "
            f"({filled.kind}); open its source instead."
        )
    found = learn_scaling(dataset, scale, engine, callbacks)
    return dataset.with_scaling(found if filled is None else replace(found, fill=filled.fill))


def learn_scaling(
    dataset: Dataset, scale: str, engine: Any, callbacks: Sequence[Callback]
) -> FeatureScaling:
    """Return the scaling of the rows of `dataset`. One pass; the bits depend on the rows alone."""
    sparse = isinstance(dataset, SparseDataset)
    with choose_engine(engine, dataset).place(
        dataset, callbacks=callbacks, footprint=ONE_PASS
    ) as placement:
        rows = ScaledPlacement(placement)
        origin = rows.origin.astype(np.float64)
        origin = np.zeros_like(origin) if sparse else origin
        found: FeatureStatistics = rows.reduce(FEATURES, lambda scale: FeatureParams(origin, scale))
    return found.scaling(scale, origin, centred=not sparse)


def scaled_like(dataset: Dataset, scaling: FeatureScaling | None) -> Dataset:
    """Return new rows on the scale of a fit, with its values in place of those that are missing.

    Rows that bring values of their own for what is missing keep these.

    Raises
    ------
    InvalidParameterError
        The rows are on another scale than the fit.
    """
    own = getattr(dataset, "scaling", None)
    if own is not None and not own.scales:
        by_cluster = scaling is not None and own.kind == scaling.kind == PARTIAL
        if scaling is None or not (scaling.scales or by_cluster):
            return dataset
        if by_cluster:
            return dataset.with_scaling(scaling)  # type: ignore[attr-defined]
        scaling = replace(scaling, fill=own.fill)
        own = None
    if scaling is None and own is None:
        return dataset
    if own is not None and not own.same_as(scaling):
        raise InvalidParameterError(
            "The rows were opened with a scale that is not that of the fit; open them without scale: "
            "the scale of the fit is applied to them."
        )
    if own is not None or scaling is None:
        return dataset
    if not isinstance(dataset, RowDataset):
        raise WrongTypeError(f"a {type(dataset).__name__} cannot be scaled; give it scaled rows.")
    return dataset.with_scaling(scaling)
