"""Convert files of rows to Zarr: streamed, in bounded memory, written whole or not at all."""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.data.checks import check_dtype
from daskcluster.data.converted import (
    ROWS,
    WEIGHTS,
    Block,
    Table,
    WeightsWriter,
    Written,
    cast,
    cast_sparse,
)
from daskcluster.data.csv_files import open_csv_files
from daskcluster.data.dataset import stored_at
from daskcluster.data.missing import ALL, presence
from daskcluster.data.open import open_source
from daskcluster.data.sources import is_list_of_files
from daskcluster.data.sparse import SparseDataset
from daskcluster.data.sparse_zarr import CsrLayout, CsrWriter, refuse_row_chunks
from daskcluster.data.spec import RowsSpec
from daskcluster.data.writer import (
    RowWriter,
    StagedArray,
    array_metadata,
    check_chunking,
    good_chunk_rows,
)
from daskcluster.errors import InvalidParameterError
from daskcluster.events import Event, PassEnded, PassProgress, PassStarted, publish
from daskcluster.storage.disk_space import check_space
from daskcluster.storage.files import match_files
from daskcluster.storage.location import locate
from daskcluster.storage.staging import Staging, refuse_sources
from daskcluster.storage.zarr_stores import group_document


def open_table(
    source: Any,
    *,
    array: str | None = None,
    weights: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    flatten: bool = False,
    columns: Any = None,
    decode: bool | None = None,
) -> Table:
    """Open a file by its suffix, or anything that `open_dataset` takes.

    Parameters
    ----------
    source : str, array or Table
        ``.csv``, ``.tsv`` or ``.txt``, also compressed, or anything that `open_dataset` takes. A table is
        taken as it is.
    array, weights, storage_options, flatten, columns, decode
        See `convert`.
    """
    if isinstance(source, Table):
        return source
    weights = str(weights) if isinstance(weights, int) else weights  # a column of a text file
    spec = RowsSpec.of(
        array=array, flatten=flatten, columns=columns, decode=decode, weights=weights
    )
    if _is_text(source):
        location, files = match_files(locate(source, storage_options))
        spec.refuse_all_but(("columns",), f"{location.url!r} is a text file")
        return _dataset_table(open_csv_files(location, files, spec))
    named = is_list_of_files(source) or isinstance(source, (str, os.PathLike))
    if not (named or isinstance(weights, (str, os.PathLike))):
        storage_options = None  # they are the output's
    return _dataset_table(
        open_source(source, spec, weights=weights, storage_options=storage_options)
    )


def _is_text(source: Any) -> bool:
    """Return True for one file of text, also compressed in a way that is not read in place."""
    if not isinstance(source, (str, os.PathLike)) or any(mark in str(source) for mark in "*?["):
        return False
    return re.search(r"\.(csv|tsv|txt)(\.\w+)?$", str(source).lower()) is not None


def _dataset_table(dataset: Any) -> Table:
    def blocks() -> Iterator[Block]:
        for chunk in dataset.chunks(dataset.partitions):
            yield chunk.rows, chunk.weights

    entries = dataset.n_entries if isinstance(dataset, SparseDataset) else None
    weighted = dataset.weights is not None
    return Table(
        dataset.n_rows,
        dataset.n_features,
        dataset.dtype,
        weighted,
        blocks,
        n_entries=entries,
        stored_at=stored_at(dataset),
    )


def write_sparse(
    table: Table,
    staging: Staging,
    dtype: np.dtype[Any],
    chunk_rows: int | None,
    shard_rows: int | None,
    callbacks: Sequence[Callable[[Event], None]],
) -> Written:
    """Write the rows (and weights) of a table of CSR rows.

    Raises
    ------
    InvalidParameterError
        Chunks or shards of so many rows are asked for: those of CSR rows are cut by values.
    """
    refuse_row_chunks(chunk_rows, shard_rows)
    assert table.n_entries is not None
    shape = CsrLayout(table.n_rows, table.n_features, dtype, table.n_entries)
    weights = _staged_weights(staging, table.n_rows) if table.weighted else None
    with ExitStack() as stack:
        writer = stack.enter_context(CsrWriter(staging, ROWS if weights else "", shape))
        weights_writer = stack.enter_context(WeightsWriter(weights)) if weights else None
        done = 0
        for block, part in table.blocks():
            writer.append(cast_sparse(block, dtype, done))
            if weights_writer is not None and part is not None:
                weights_writer.append(part)
            done += len(block)
            publish(callbacks, PassProgress(len(block)))
    documents = writer.documents()
    if weights is not None:
        # The group last: until it is there, nothing is found at the URL.
        documents |= weights.document() | group_document(table.attributes)
    chunk = max(1, writer.chunk * done // max(1, table.n_entries))
    return Written(documents, done, table.n_entries * dtype.itemsize, min(chunk, done))


def _staged_weights(staging: Staging, n_rows: int) -> StagedArray:
    step = good_chunk_rows(8, n_rows)
    return StagedArray(staging.work, WEIGHTS, array_metadata((n_rows,), step, np.float64), step)


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
        Of CSR rows, whose chunks are cut by values, on average.
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
        Of the output; the source's by default, float64 for text.
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
    storage_options : dict, optional
        For source and output.
    callbacks : sequence of callable
        Hear `PassStarted`, `PassProgress` and `PassEnded`.

    Returns
    -------
    Conversion

    Raises
    ------
    OutputExistsError, DatasetNotFoundError, InvalidDataError, InvalidParameterError

    Notes
    -----
    Cost: one pass over the source; memory is about four chunks (or shards) and one block of the source.
    """
    started = time.monotonic()
    target = locate(output, storage_options)
    if isinstance(source, (str, os.PathLike)):
        refuse_sources({"output": target}, [locate(source, storage_options)])
    table = open_table(
        source,
        array=array,
        weights=weights,
        storage_options=storage_options,
        flatten=flatten,
        columns=columns,
        decode=decode,
    )
    refuse_sources({"output": target}, table.stored_at)
    wanted = _checked_dtype(dtype, table.dtype)
    options: dict[str, Any] = {"overwrite": overwrite, "storage_options": storage_options}
    if table.n_entries is None:
        n_bytes = table.n_rows * table.n_features * wanted.itemsize
        check_space(output, n_bytes, storage_options=storage_options)
    with Staging.begin(output, kinds=("array", "group"), **options) as staging:
        publish(callbacks, PassStarted("convert", table.n_rows))
        if table.n_entries is not None:
            written = write_sparse(table, staging, wanted, chunk_rows, shard_rows, callbacks)
        else:
            written = _write(table, staging, wanted, chunk_rows, shard_rows, callbacks)
        staging.commit(written.documents)
    seconds = time.monotonic() - started
    publish(callbacks, PassEnded("convert", seconds, written.n_bytes))
    return Conversion(
        target.url,
        ROWS if table.weighted else None,
        WEIGHTS if table.weighted else None,
        written.n_rows,
        table.n_features,
        str(wanted),
        written.chunk_rows,
        written.shard_rows,
        seconds,
        table.n_entries,
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


def _write(
    table: Table,
    staging: Staging,
    dtype: np.dtype[Any],
    chunk_rows: int | None,
    shard_rows: int | None,
    callbacks: Sequence[Callable[[Event], None]],
) -> Written:
    row_bytes = table.n_features * dtype.itemsize
    step = chunk_rows or good_chunk_rows(row_bytes)
    step = min(step, table.n_rows) if chunk_rows is None else step
    check_chunking(step, shard_rows)
    length = table.n_rows
    name = ROWS if table.weighted else ""
    rows = _staged(staging, name, (length, table.n_features), step, shard_rows, dtype)
    weights = (
        _staged(staging, WEIGHTS, (length,), step, shard_rows, np.dtype(float)) if name else None
    )
    n_incomplete = 0
    with ExitStack() as stack:
        writer = stack.enter_context(RowWriter(rows))
        weights_writer = stack.enter_context(WeightsWriter(weights)) if weights else None
        for block, part in table.blocks():
            n_incomplete += int(np.count_nonzero(presence(block) < ALL))
            writer.append(cast(block, dtype, writer.n_rows))
            if weights_writer is not None and part is not None:
                weights_writer.append(part)
            publish(callbacks, PassProgress(len(block)))
    n_rows = writer.n_rows
    if n_incomplete:
        warnings.warn(
            f"{n_incomplete:,} of {n_rows:,} rows have NaN, which a fit refuses; open the output with "
            'missing="drop" or missing="mean" (--missing).',
            UserWarning,
            stacklevel=3,
        )
    documents = rows.document(n_rows)
    if weights is not None:
        # The group last: until it is there, nothing is found at the URL.
        documents |= weights.document(n_rows) | group_document(table.attributes)
    shard = shard_rows if shard_rows != step else None
    return Written(documents, n_rows, n_rows * row_bytes, step, shard)


def _staged(
    staging: Staging,
    name: str,
    shape: tuple[int, ...],
    step: int,
    shard_rows: int | None,
    dtype: np.dtype[Any],
) -> StagedArray:
    metadata = array_metadata(shape, step, dtype, shard_rows=shard_rows)
    return StagedArray(staging.work, name, metadata, shard_rows or step)
