"""Partitions as Faiss, Lance and VectorChord take them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.data.arrow_columns import import_pyarrow
from daskcluster.errors import MissingExtraError
from daskcluster.extras import install_command

if TYPE_CHECKING:
    from daskcluster.methods.partition.partitions import Partitions


def to_faiss(found: Partitions, *, fill: bool) -> Any:
    """Return an ``IndexIVFFlat``; see `Partitions.to_faiss`."""
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError(
            f"to_faiss needs Faiss; install it with: {install_command('faiss')}."
        ) from error
    centres = np.ascontiguousarray(found.centres, np.float32)
    k, d = centres.shape
    cosine = found.metric == "cosine"
    # Rows were assigned by distances, also with cosine, since means are not of length one.
    quantizer: Any = faiss.IndexFlatL2(d)
    quantizer.add(centres)
    measure = faiss.METRIC_INNER_PRODUCT if cosine else faiss.METRIC_L2
    index = faiss.IndexIVFFlat(quantizer, d, k, measure)
    index.own_fields = True
    quantizer.this.disown()
    index.is_trained = True
    if fill:
        for chunk in found.dataset.chunks(found.dataset.partitions):
            for block in Chunk(chunk.rows, chunk.start, normalize=cosine).blocks():
                _add(faiss, index, found, block)
    return index


def _add(faiss: Any, index: Any, found: Partitions, block: Chunk) -> None:
    own = slice(block.start, block.stop)
    rows = np.ascontiguousarray(block.rows, np.float32)
    numbers = np.arange(block.start, block.stop)
    cells = np.column_stack([found.partition[own], found.copies[own]]).astype(np.int64)
    for at in range(cells.shape[1]):
        which = np.flatnonzero(cells[:, at] >= 0)
        if len(which):
            added = [np.ascontiguousarray(each[which]) for each in (rows, numbers, cells[:, at])]
            pointers = [faiss.swig_ptr(each) for each in added]
            index.add_core(len(which), *pointers)


def to_lance(found: Partitions) -> Any:
    """Return the centres as fixed-size lists; see `Partitions.to_lance`."""
    pa = import_pyarrow()
    values = pa.array(np.ascontiguousarray(found.centres, np.float32).ravel())
    return pa.FixedSizeListArray.from_arrays(values, found.centres.shape[1])


def to_vectorchord(found: Partitions) -> Any:
    """Return a table of centres; see `Partitions.to_vectorchord`."""
    pa = import_pyarrow()
    k = len(found.centres)
    columns = {
        "id": pa.array(np.arange(k, dtype=np.int32)),
        "parent": pa.nulls(k, pa.int32()),
        "vector": to_lance(found),
    }
    return pa.table(columns)
