"""Partitions as Faiss, Lance and VectorChord take them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.data.tables import import_pyarrow
from daskcluster.errors import InvalidParameterError, MissingExtraError
from daskcluster.extras import install_command

if TYPE_CHECKING:
    from daskcluster.methods.partition.partitions import Partitions


def _write_npy(found: Partitions, out: BinaryIO) -> None:
    np.save(out, found.centres)


def _write_faiss(found: Partitions, out: BinaryIO) -> None:
    out.write(_import_faiss().serialize_index(to_faiss(found, fill=False)).tobytes())


def _write_parquet(found: Partitions, out: BinaryIO) -> None:
    import_pyarrow()
    from pyarrow import parquet

    parquet.write_table(to_vectorchord(found), out)


def _import_faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError(
            f"Faiss is not installed; install it with: {install_command('faiss')}."
        ) from error
    return faiss


@dataclass(frozen=True)
class _CentresFile:
    load: Callable[[], Any]
    write: Callable[[Partitions, BinaryIO], None]


_FILES = {
    ".npy": _CentresFile(lambda: None, _write_npy),
    ".faiss": _CentresFile(_import_faiss, _write_faiss),
    ".parquet": _CentresFile(import_pyarrow, _write_parquet),
}


def centres_writer(url: str) -> Callable[[Partitions, BinaryIO], None]:
    """Return what writes centres to a file with the ending of `url`.

    Raises
    ------
    InvalidParameterError
        There is no such format.
    MissingExtraError
        Its library is not installed.
    """
    kind = _FILES.get(PurePosixPath(url).suffix)
    if kind is None:
        raise InvalidParameterError(
            f"Centres are written to {', '.join(_FILES)} files, but the URL is {url!r}; give it such an "
            "ending."
        )
    kind.load()
    return kind.write


def to_faiss(found: Partitions, *, fill: bool) -> Any:
    """Return an ``IndexIVFFlat``; see `Partitions.to_faiss`."""
    faiss = _import_faiss()
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
