"""Outputs of a balanced sample: the ids of its rows, and the rows themselves."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np

from daskcluster.chunk import row_dtype
from daskcluster.data.csr import csr_of
from daskcluster.data.dataset import chosen_ids, chosen_rows, refuse_replacing
from daskcluster.data.label_files import is_file_output, rows_of, write_label_file
from daskcluster.data.weighted import MARK
from daskcluster.data.writer import ROW_KINDS, WEIGHTS, RowsShape, RowsWriter, write_values
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.jobs.balanced_sample import BalancedSample
from daskcluster.sparse_rows import SparseRows
from daskcluster.storage.location import locate
from daskcluster.storage.staging import Staging, check_free

PARQUET = (".parquet", ".pq")
_STEP = 1 << 20
"""Rows of a file of ids that are written at once."""
_BLOCK_BYTES = 1 << 26
"""Bytes of rows that are read at once."""


def write_sample(
    sample: BalancedSample,
    output: str,
    *,
    rows: str | None = None,
    weighted: bool = False,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Write the ids of the rows of a sample and, if requested, the rows; each whole or not at all.

    Parameters
    ----------
    sample : BalancedSample
    output : str
        A file that ends in .parquet or .csv, of ids, clusters and weights; else row numbers alone, as
        .npy or a Zarr array.
    rows : str, optional
        URL of the rows, in the order of the ids: a Parquet file if it ends in .parquet, else Zarr. The file
        has the ids, too, and a column for each named feature, or one of lists, ``X``.
    weighted : bool
        Write the rows with their weights: as a group of ``X`` and ``weights`` that every estimator takes,
        or in a column ``weight``.
    overwrite : bool
    storage_options : mapping, optional

    Raises
    ------
    OutputExistsError
    InvalidDataError
        Sparse rows, which Parquet does not hold.

    Notes
    -----
    Cost: for rows, reads every storage chunk with at least one of them, in this process; memory is about
    128 MB, or the whole sample for sparse rows.
    """
    options: dict[str, Any] = {"overwrite": overwrite, "storage_options": storage_options}
    place = locate(output, storage_options)
    rows_place = None if rows is None else locate(rows, storage_options)
    refuse_replacing(sample.dataset, output=place, rows=rows_place)
    if rows is not None and is_file_output(rows):
        _write_parquet(sample, rows, weighted=weighted, **options)
    elif rows is not None:
        _write_zarr(sample, rows, weighted=weighted, **options)
    chosen = _ChosenIds(sample)
    # Ids come last: who finds them finds the rows.
    if not is_file_output(output):
        write_values(output, [chosen.numbers], len(sample), np.dtype(np.int64), **options)
        return
    check_free(output, kinds=("file",), **options)
    columns = {"cluster": sample.clusters, "weight": sample.weights}
    if output.lower().endswith(".npy"):
        columns = {"row": chosen.numbers}
    values = {name: partial(rows_of, array) for name, array in columns.items()}
    write_label_file(place, chosen, values, overwrite=overwrite)


class _ChosenIds:
    """Ids of the rows of a sample, in the form in which `write_label_file` reads them."""

    def __init__(self, sample: BalancedSample, step: int = _STEP) -> None:
        self._dataset: Any = sample.dataset
        self._rows = sample.rows
        self.n_rows = len(sample)
        self.id_column: str | None = getattr(sample.dataset, "id_column", None)
        edges = [*range(0, self.n_rows, step), self.n_rows]
        self.chunk_sizes = tuple(last - first for first, last in pairwise(edges))

    def ids(self, start: int, stop: int) -> Any:
        """Return the ids of rows `start` to `stop` of the sample."""
        return chosen_ids(self._dataset, self._rows[start:stop])

    @cached_property
    def numbers(self) -> np.ndarray:
        """Numbers of the rows in the source, int64 (m,)."""
        return self._rows if self.id_column is not None else self.ids(0, self.n_rows)


def check_rows(rows: str | None, dataset: Any = None) -> None:
    """Raise, before any work, if rows cannot be written to this URL.

    Raises
    ------
    InvalidParameterError, InvalidDataError
    """
    if rows is None or not is_file_output(rows):
        return
    if not rows.lower().endswith(PARQUET):
        raise InvalidParameterError(
            f"rows={rows!r} should end in {' or '.join(PARQUET)}, or in .zarr: rows are written as Parquet "
            "or Zarr."
        )
    if csr_of(dataset) is not None:
        raise InvalidDataError(
            f"rows={rows!r} should be Zarr: the rows are sparse, which Parquet does not hold; write them "
            "to a URL that ends in .zarr."
        )


class _Values:
    """Rows of a sample, of which the features are read one after another."""

    def __init__(self, sample: BalancedSample) -> None:
        self._dataset, self._numbers = sample.dataset, sample.rows
        self.dtype = row_dtype(sample.dataset.dtype)
        self._span, self._rows = (0, 0), np.empty((0, 0))

    def rows(self, start: int, stop: int) -> np.ndarray:
        if self._span != (start, stop):
            found = chosen_rows(self._dataset, self._numbers[start:stop])
            self._rows = np.asarray(found).astype(self.dtype, copy=False)
            self._span = start, stop
        return self._rows

    def feature(self, column: int, start: int, stop: int) -> np.ndarray:
        return np.ascontiguousarray(self.rows(start, stop)[:, column])


def _write_parquet(
    sample: BalancedSample,
    rows: str,
    *,
    weighted: bool,
    overwrite: bool,
    storage_options: Mapping[str, Any] | None,
) -> None:
    dataset: Any = sample.dataset
    check_rows(rows, dataset)
    check_free(rows, kinds=("file",), overwrite=overwrite, storage_options=storage_options)
    found = _Values(sample)
    bytes_of_row = max(1, dataset.n_features * found.dtype.itemsize)
    chosen = _ChosenIds(sample, max(1, _BLOCK_BYTES // bytes_of_row))
    names = getattr(dataset, "feature_names", None) or ()
    taken = {chosen.id_column or "row", "weight"}
    values: dict[str, Any] = {"X": found.rows}
    if names and not taken & set(names):
        values = {name: partial(found.feature, column) for column, name in enumerate(names)}
    if weighted:
        values["weight"] = partial(rows_of, sample.weights)
    place = locate(rows, storage_options)
    write_label_file(place, chosen, values, overwrite=overwrite, row_bytes=bytes_of_row)


def _write_zarr(sample: BalancedSample, url: str, *, weighted: bool, **options: Any) -> None:
    dataset: Any = sample.dataset
    step = max(1, _BLOCK_BYTES // max(1, dataset.bytes_of((0, 1))))
    shape, every = RowsShape(len(sample), dataset.n_features, dataset.dtype), None
    if isinstance(chosen_rows(dataset, sample.rows[:1]), SparseRows):
        every = sample.take()
        shape = RowsShape.of(every)
    others = {WEIGHTS: np.float64} if weighted else {}
    account = {"size": len(sample), "n_rows": dataset.n_rows, "seed": sample.seed}
    with Staging.begin(url, kinds=ROW_KINDS, **options) as staging:
        with RowsWriter(staging, shape, others, group={"sample": account, **MARK}) as writer:
            for start in range(0, len(sample), step):
                part = slice(start, start + step)
                values = (sample.weights[part],) if weighted else ()
                rows = chosen_rows(dataset, sample.rows[part]) if every is None else every[part]
                writer.append(rows, *values)
        staging.commit(writer.documents())
