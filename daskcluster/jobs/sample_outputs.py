"""Outputs of a balanced sample: the ids of its rows, and the rows themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np

from daskcluster.data.chosen import chosen_rows
from daskcluster.data.convert import convert
from daskcluster.data.label_files import is_file_output, rows_of, write_label_file
from daskcluster.data.table import Block, Table
from daskcluster.data.weighted_store import MARK
from daskcluster.data.writer import write_array
from daskcluster.jobs.balanced_sample import BalancedSample
from daskcluster.sparse_rows import SparseRows
from daskcluster.storage.location import locate
from daskcluster.storage.staging import check_free

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
        URL of the rows, as Zarr, in the order of the ids.
    weighted : bool
        Write the rows with their weights, as a group of ``X`` and ``weights`` that every estimator takes.
    overwrite : bool
    storage_options : mapping, optional

    Raises
    ------
    OutputExistsError

    Notes
    -----
    Cost: for rows, reads every storage chunk with at least one of them, in this process; memory is about
    128 MB, or the whole sample for sparse rows.
    """
    options: dict[str, Any] = {"overwrite": overwrite, "storage_options": storage_options}
    if rows is not None:
        convert(_table(sample, weighted=weighted), rows, **options)
    chosen = _ChosenIds(sample)
    # Ids come last: who finds them finds the rows.
    if not is_file_output(output):
        write_array(output, iter([chosen.numbers]), len(sample), np.dtype(np.int64), **options)
        return
    place = locate(output, storage_options)
    check_free(output, kinds=("file",), **options)
    columns = {"cluster": sample.clusters, "weight": sample.weights}
    if output.lower().endswith(".npy"):
        columns = {"row": chosen.numbers}
    values = {name: partial(rows_of, array) for name, array in columns.items()}
    write_label_file(place, chosen, values, overwrite=overwrite)


class _ChosenIds:
    """Ids of the rows of a sample, in the form in which `write_label_file` reads them."""

    def __init__(self, sample: BalancedSample) -> None:
        self._dataset: Any = sample.dataset
        self._rows = sample.rows
        self.n_rows = len(sample)
        self.id_column: str | None = getattr(sample.dataset, "id_column", None)
        edges = [*range(0, self.n_rows, _STEP), self.n_rows]
        self.chunk_sizes = tuple(last - first for first, last in pairwise(edges))

    def ids(self, start: int, stop: int) -> Any:
        """Return the ids of rows `start` to `stop` of the sample."""
        parts = list(self._parts(self._rows[start:stop]))
        if all(isinstance(part, np.ndarray) for part in parts):
            return np.concatenate(parts)
        from daskcluster.data.arrow_columns import import_pyarrow

        pa = import_pyarrow()
        arrays = [piece for part in parts for piece in getattr(part, "chunks", [part])]
        return pa.chunked_array(arrays, type=parts[0].type)

    @cached_property
    def numbers(self) -> np.ndarray:
        """Numbers of the rows in the source, int64 (m,)."""
        return self._rows if self.id_column is not None else self.ids(0, self.n_rows)

    def _parts(self, rows: np.ndarray) -> Iterator[Any]:
        edges = np.append(0, np.cumsum(self._dataset.chunk_sizes))
        cuts = np.unique(np.searchsorted(rows, edges))
        for first, last in pairwise(cuts.tolist()):
            here = rows[first:last]
            ids = self._dataset.ids(int(here[0]), int(here[-1]) + 1)
            at = here - here[0]
            yield ids[at] if isinstance(ids, np.ndarray) else ids.take(at)


def _table(sample: BalancedSample, *, weighted: bool) -> Table:
    dataset: Any = sample.dataset
    weights = sample.weights if weighted else None
    shape = len(sample), dataset.n_features, dataset.dtype, weighted
    account = {"size": len(sample), "n_rows": dataset.n_rows, "seed": sample.seed}
    attributes = {"sample": account, **MARK}
    first = chosen_rows(dataset, sample.rows[:1])
    if isinstance(first, SparseRows):
        every = sample.take()
        assert isinstance(every, SparseRows)
        return Table(
            *shape,
            lambda: iter([(every, weights)]),
            n_entries=len(every.data),
            attributes=attributes,
        )
    step = max(1, _BLOCK_BYTES // max(1, dataset.bytes_of((0, 1))))

    def blocks() -> Iterator[Block]:
        for start in range(0, len(sample), step):
            part = slice(start, start + step)
            yield (
                chosen_rows(dataset, sample.rows[part]),
                None if weights is None else weights[part],
            )

    return Table(*shape, blocks, attributes=attributes)
