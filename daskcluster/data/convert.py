"""Convert files of rows to Zarr: streamed, in bounded memory, written whole or not at all."""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daskcluster.data.checks import check_dtype
from daskcluster.data.dataset import refuse_replacing
from daskcluster.data.identity import fingerprint_of_rows
from daskcluster.data.missing import ALL, presence
from daskcluster.data.open import open_source
from daskcluster.data.sources import is_list_of_files
from daskcluster.data.spec import RowsSpec
from daskcluster.data.text_files import open_csv_files
from daskcluster.data.writer import ROW_KINDS, ROWS, WEIGHTS, RowsShape, RowsWriter
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.events import Event, PassEnded, PassProgress, PassStarted, publish
from daskcluster.invariance import varies_with
from daskcluster.sparse_rows import Rows, SparseRows
from daskcluster.storage.files import check_space, match_files
from daskcluster.storage.location import locate
from daskcluster.storage.staging import Staging, refuse_sources
from daskcluster.typing import Dataset


def _opened(
    source: Any, spec: RowsSpec, weights: Any, storage_options: Mapping[str, Any] | None
) -> Dataset:
    """Open a text file of any ending, or anything that `open_dataset` takes."""
    is_path = isinstance(source, (str, os.PathLike))
    if is_path and re.search(r"^[^*?[]+\.(csv|tsv|txt)(\.\w+)?$", str(source).lower()):
        location, files = match_files(locate(source, storage_options))
        spec.refuse_all_but(("columns",), f"{location.url!r} is a text file")
        return open_csv_files(location, files, spec)
    named = is_path or is_list_of_files(source)
    if not (named or isinstance(weights, (str, os.PathLike))):
        storage_options = None  # they are the output's
    return open_source(source, spec, weights=weights, storage_options=storage_options)


@dataclass(frozen=True)
class Conversion:
    """Record of a conversion.

    Attributes
    ----------
    url : str
    array, weights : str or None
        Names within the group at `url`; None if the rows are the array at `url` itself.
    n_rows, n_features : int
    dtype : str
    chunk_rows : int
        Rows of a chunk; of CSR rows, whose chunks are cut by values, on average.
    shard_rows : int or None
    seconds : float
    n_entries : int or None
        Stored values, if the rows are CSR.
    """

    url: str
    array: str | None
    weights: str | None
    n_rows: int
    n_features: int
    dtype: str
    chunk_rows: int
    shard_rows: int | None
    seconds: float
    n_entries: int | None = None


@varies_with()
def convert(
    source: Any,
    output: Any,
    *,
    array: str | None = None,
    weights: Any = None,
    dtype: Any = None,
    chunk_rows: int | None = None,
    shard_rows: int | None = None,
    flatten: bool = False,
    columns: Any = None,
    decode: bool | None = None,
    overwrite: bool = False,
    resume: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    callbacks: Sequence[Callable[[Event], None]] = (),
) -> Conversion:
    """Write the rows of `source` to Zarr (format 3, chunks of about 8 MB, blosc-zstd with bit shuffle).

    Parameters
    ----------
    source : str or array
        ``.npz`` (also scipy's of a sparse matrix), ``.csv``, ``.tsv``, or anything that `open_dataset`
        takes, such as a folder of Parquet files.
    output : str
        Path or URL. An array (n, d) at its root; with weights, a group of ``X`` and ``weights``. Sparse
        rows stay sparse: a CSR group in AnnData's layout takes the place of the array.
    array : str, optional
        Which array of a ``.npz`` or Zarr group.
    weights : str, optional
        Column (csv, parquet) or array (npz, Zarr) of the row weights.
    dtype : dtype, optional
        Type of the output; the source's by default, float64 for text.
    chunk_rows : int, optional
        Rows of a chunk; about 8 MB by default.
    shard_rows : int, optional
        Rows of a shard (one object of many chunks), a multiple of `chunk_rows`.
    flatten : bool
        Accept rasters; see `open_dataset`.
    columns : str, sequence of str or mapping, optional
        Which columns of a table; see `daskcluster.jobs.fit`. Ids are not written.
    decode : bool, optional
        Whether attributes of a stored array decode its numbers; see `open_dataset`.
    overwrite : bool
        Replace a Zarr array or group at `output`.
    resume : bool
        Continue an interrupted call of the same arguments after its last whole chunk (of sparse rows, begin
        anew), and keep what is finished if this call fails.
    storage_options : dict, optional
        For source and output.
    callbacks : sequence of callable
        Called with `PassStarted`, `PassProgress` and `PassEnded`.

    Returns
    -------
    Conversion

    Raises
    ------
    OutputExistsError, DatasetNotFoundError, InvalidDataError, InvalidParameterError

    Notes
    -----
    Cost: one pass over the source; memory is about four chunks (or shards) and one block of the source.
    Rows with NaN are written as they are, with a warning of their number.
    """
    started = time.monotonic()
    target = locate(output, storage_options)
    if isinstance(source, (str, os.PathLike)):
        refuse_sources({"output": target}, [locate(source, storage_options)])
    weights = str(weights) if isinstance(weights, int) else weights  # a column of a text file
    spec = RowsSpec.of(
        array=array, flatten=flatten, columns=columns, decode=decode, weights=weights
    )
    rows = _opened(source, spec, weights, storage_options)
    refuse_replacing(rows, output=target)
    shape = replace(RowsShape.of(rows), dtype=_checked_dtype(dtype, rows.dtype))
    others = {} if rows.weights is None else {WEIGHTS: np.float64}
    n_bytes = shape.dtype.itemsize * (shape.n_entries or shape.n_rows * shape.n_features)
    if shape.n_entries is None:
        check_space(output, n_bytes, storage_options=storage_options)
    options: dict[str, Any] = {"overwrite": overwrite, "storage_options": storage_options}
    chunking = {"chunk_rows": chunk_rows, "shard_rows": shard_rows}
    if resume:
        mark = fingerprint_of_rows(rows, target.url, str(shape.dtype), chunk_rows, shard_rows)
        options |= {"mark": mark, "resume": True}
    with Staging.begin(output, kinds=ROW_KINDS, **options) as staging:
        publish(callbacks, PassStarted("convert", rows.n_rows))
        with RowsWriter(staging, shape, others, **chunking) as writer:  # type: ignore[arg-type]
            done = writer.n_rows
            publish(callbacks, PassProgress(done))
            left = [(max(done, start), stop) for start, stop in rows.partitions if stop > done]
            n_incomplete = 0
            for chunk in rows.chunks(left):
                if shape.n_entries is None:
                    n_incomplete += int(np.count_nonzero(presence(chunk.rows) < ALL))
                values = () if chunk.weights is None else (chunk.weights,)
                writer.append(cast_rows(chunk.rows, shape.dtype, chunk.start), *values)
                publish(callbacks, PassProgress(chunk.n_rows))
        staging.commit(writer.documents())
    if n_incomplete:
        warnings.warn(
            f"{n_incomplete:,} of {rows.n_rows - done:,} rows have NaN, which a fit refuses; open the "
            'output with missing="drop" or missing="mean" (--missing).',
            UserWarning,
            stacklevel=2,
        )
    seconds = time.monotonic() - started
    publish(callbacks, PassEnded("convert", seconds, n_bytes))
    return Conversion(
        target.url,
        ROWS if others else None,
        WEIGHTS if others else None,
        rows.n_rows,
        rows.n_features,
        str(shape.dtype),
        writer.chunk_rows,
        shard_rows if shard_rows != writer.chunk_rows else None,
        seconds,
        shape.n_entries,
    )


def _checked_dtype(wanted: Any, source: np.dtype[Any]) -> np.dtype[Any]:
    if wanted is None:
        return source.newbyteorder("=")
    try:
        dtype = np.dtype(wanted)
    except TypeError as error:
        raise InvalidParameterError(f"dtype={wanted!r} is no numpy dtype; e.g. float32.") from error
    check_dtype(dtype, what="output")
    if not np.can_cast(source, dtype, casting="same_kind"):
        raise InvalidParameterError(
            f"dtype={dtype} cannot hold rows of dtype={source} without changing their kind; use a floating "
            "dtype."
        )
    return dtype


def cast_rows(rows: Rows, dtype: np.dtype[Any], start: int) -> Rows:
    """Return rows in another dtype; a value that becomes infinite is refused."""
    values = rows.data if isinstance(rows, SparseRows) else rows
    with np.errstate(over="ignore"):
        converted = values.astype(dtype, copy=False)
    if dtype.kind == values.dtype.kind == "f" and dtype.itemsize < values.dtype.itemsize:
        lost = np.isinf(converted) & np.isfinite(values)
        if lost.any():
            raise InvalidDataError(
                f"{values[lost][0]}, in rows {start} to {start + len(rows) - 1}, is too large for "
                f"dtype={dtype}; keep float64 or scale the column."
            )
    return replace(rows, data=converted) if isinstance(rows, SparseRows) else converted
