"""Turns sparse rows into a CSR group: streamed, in bounded memory but for 8 bytes a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from daskcluster.data.converted import ROWS, WEIGHTS, WeightsWriter, Written, cast_sparse
from daskcluster.data.sparse_write import CsrFacts, CsrWriter, refuse_row_chunks
from daskcluster.data.table import Table
from daskcluster.data.writer import StagedArray, array_metadata, good_chunk_rows
from daskcluster.events import Event, PassProgress, publish
from daskcluster.storage.staging import Staging
from daskcluster.storage.zarr_stores import group_document


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
    assert table.n_rows is not None
    assert table.n_entries is not None
    shape = CsrFacts(table.n_rows, table.n_features, dtype, table.n_entries)
    weights = _staged_weights(staging, table.n_rows) if table.weighted else None
    with ExitStack() as stack:
        writer = stack.enter_context(CsrWriter(staging, ROWS if weights else "", shape))
        beside = stack.enter_context(WeightsWriter(weights)) if weights else None
        done = 0
        for block, part in table.blocks():
            writer.append(cast_sparse(block, dtype, done))
            if beside is not None and part is not None:
                beside.append(part)
            done += len(block)
            publish(callbacks, PassProgress(len(block)))
    documents = writer.documents()
    if weights is not None:
        # The group last: until it is there, nothing is found at the URL.
        documents |= weights.document() | group_document({})
    chunk = max(1, writer.chunk * done // max(1, table.n_entries))
    return Written(documents, done, table.n_entries * dtype.itemsize, min(chunk, done))


def _staged_weights(staging: Staging, n_rows: int) -> StagedArray:
    step = good_chunk_rows(8, n_rows)
    return StagedArray(staging.work, WEIGHTS, array_metadata((n_rows,), step, np.float64), step)
