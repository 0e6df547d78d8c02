"""Columns of a parquet file, streamed by row group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from daskcluster.data.frame import check_columns, frame_dtype
from daskcluster.data.partitions import READ_BYTES
from daskcluster.data.table import Block, Table, open_binary
from daskcluster.errors import InvalidDataError, InvalidParameterError, MissingExtraError
from daskcluster.storage.location import Location


def parquet_table(location: Location, weights: Any) -> Table:
    """Open the numeric columns of a parquet file; `weights` names the column of row weights.

    Raises
    ------
    MissingExtraError
        pyarrow is not installed.
    InvalidDataError
        No parquet file, or columns that are no real numbers.
    InvalidParameterError
        No such column of weights.
    """
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError(
            'Parquet files need pyarrow. Remedy: pip install "daskcluster[parquet]".'
        ) from error
    try:
        with open_binary(location) as stream, pq.ParquetFile(stream) as file:
            n_rows = file.metadata.num_rows
            schema = file.schema_arrow
    except (ValueError, OSError) as error:
        raise InvalidDataError(
            f"{location.url!r} is no readable parquet file ({error})."
        ) from error
    names = [name for name in schema.names if name != weights]
    if weights is not None and weights not in schema.names:
        raise InvalidParameterError(
            f"There is no column {weights!r} in {location.url!r} for the weights; columns: {schema.names}."
        )
    dtype = _arrow_dtype(schema, names)

    def blocks() -> Iterator[Block]:
        step = max(1, READ_BYTES // max(1, len(names) * dtype.itemsize))
        with open_binary(location) as stream, pq.ParquetFile(stream) as file:
            for batch in file.iter_batches(batch_size=step):
                rows = np.column_stack([_column(batch.column(name), dtype) for name in names])
                yield (
                    rows,
                    None if weights is None else _column(batch.column(weights), np.dtype(float)),
                )

    return Table(n_rows, len(names), dtype, weights is not None, blocks)


def _arrow_dtype(schema: Any, names: list[str]) -> np.dtype[Any]:
    dtypes = {}
    for name in names:
        try:
            dtypes[name] = np.dtype(schema.field(name).type.to_pandas_dtype())
        except (NotImplementedError, TypeError):
            dtypes[name] = np.dtype(object)
    check_columns(dtypes)
    kinds = set(dtypes.values())
    nullable = any(schema.field(name).nullable for name in names)
    only = next(iter(kinds))
    if len(kinds) == 1 and (only.kind == "f" or not nullable):
        return only
    return frame_dtype(dtypes.values())


def _column(column: Any, dtype: np.dtype[Any]) -> np.ndarray:
    # A missing value becomes NaN, which a fit then names with its row.
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype == object:
        values = np.array([np.nan if value is None else value for value in values], dtype=float)
    return values.astype(dtype, copy=False)
