"""Write rows to Zarr chunk by chunk, in bounded memory, from one process or many."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from daskcluster.errors import DaskClusterError, InvalidParameterError, OutputExistsError
from daskcluster.storage.location import Location, explain
from daskcluster.storage.process_local import open_once
from daskcluster.storage.retry import retry
from daskcluster.storage.staging import Staging
from daskcluster.storage.zarr_stores import HEAD, open_store

if TYPE_CHECKING:
    import zarr


CHUNK_BYTES = 8 << 20
"""Decoded bytes of a chunk: measured fastest to read, and large enough for object stores."""

_WRITERS = 2


def good_chunk_rows(row_bytes: int, n_rows: int | None = None) -> int:
    """Return how many rows make a chunk of about 8 MB."""
    rows = max(1, CHUNK_BYTES // max(1, row_bytes))
    rows = rows // 1024 * 1024 or rows
    return rows if n_rows is None else max(1, min(rows, n_rows))


def check_chunking(chunk_rows: int, shard_rows: int | None) -> None:
    """Refuse chunks without rows, and shards that are not whole chunks."""
    if chunk_rows < 1:
        raise InvalidParameterError(f"chunk_rows={chunk_rows} should be >= 1.")
    if shard_rows is not None and (shard_rows < chunk_rows or shard_rows % chunk_rows):
        raise InvalidParameterError(
            f"shard_rows={shard_rows} should be a multiple of chunk_rows={chunk_rows}."
        )


def array_metadata(
    shape: tuple[int, ...],
    chunk_rows: int,
    dtype: Any,
    *,
    shard_rows: int | None = None,
    attributes: Mapping[str, Any] | None = None,
    names: Sequence[str] | None = None,
) -> str:
    """Return the Zarr v3 metadata document (JSON) of an array as this package writes it.

    Chunks of whole rows, blosc-zstd at level 3 with bit shuffle.
    """
    import zarr
    from zarr.codecs import BloscCodec
    from zarr.storage import MemoryStore

    array = zarr.create_array(
        MemoryStore(),
        shape=shape,
        chunks=(chunk_rows, *shape[1:]),
        shards=None if shard_rows is None else (shard_rows, *shape[1:]),
        dtype=np.dtype(dtype).newbyteorder("="),
        compressors=BloscCodec(cname="zstd", clevel=3, shuffle="bitshuffle"),
        attributes=dict(attributes or {}),
        dimension_names=names,
        zarr_format=3,
    )
    return json.dumps(array.metadata.to_dict(), allow_nan=False)


@dataclass(frozen=True)
class StagedArray:
    """An array under way: chunks go to the store, the metadata is held back. Picklable.

    Attributes
    ----------
    work : Location
    name : str
        Path below `work`; empty for an array at the root.
    metadata : str
    block_rows : int
        Rows that are written at once: a chunk, or a shard.
    """

    work: Location
    name: str
    metadata: str = field(repr=False)
    block_rows: int

    def write(self, start: int, values: np.ndarray) -> None:
        """Write rows `start` onwards; from any process, in any order.

        Raises
        ------
        InvalidParameterError
            The rows are not whole blocks, which two tasks could then write at once.
        """
        array = self.open()
        stop, n_rows = start + len(values), array.shape[0]
        if start % self.block_rows or (stop % self.block_rows and stop != n_rows) or stop > n_rows:
            raise InvalidParameterError(
                f"rows {start} to {stop} should cover whole blocks of {self.block_rows} rows of the "
                f"{n_rows}; cut the work at multiples of block_rows."
            )
        self.put(start, values)

    def put(self, start: int, values: np.ndarray) -> None:
        """Write rows `start` onwards, unchecked.

        Raises
        ------
        DaskClusterError
            The store does not take them; a disk raises what it raises.
        """
        array, span = self.open(), slice(start, start + len(values))
        try:
            retry(lambda: array.__setitem__(span, values), self.work)
        except OSError as error:
            if self.work.is_local:
                raise
            raise explain(error, self.work, "output") from error

    def open(self) -> zarr.Array[Any]:
        """Return the array, for writing (opened once per process)."""
        return open_once(self, self._open)

    def _open(self) -> zarr.Array[Any]:
        import zarr
        from zarr.storage import StorePath

        path = StorePath(open_store(self.work, read_only=False), self.name)
        metadata: Any = json.loads(self.metadata)
        # Chunks that are all zero are written too: a missing chunk means that a writer died.
        config: Any = {"write_empty_chunks": True}
        return zarr.Array(zarr.AsyncArray(metadata, path, config))

    def document(self, n_rows: int | None = None) -> dict[str, bytes]:
        """Return the metadata by its path, for `Staging.commit`; `n_rows` cuts the array."""
        metadata = json.loads(self.metadata)
        if n_rows is not None:
            metadata["shape"][0] = n_rows
        path = f"{self.name}/{HEAD}" if self.name else HEAD
        return {path: json.dumps(metadata, indent=1).encode()}


class RowWriter:
    """Collects rows into whole blocks and writes them behind the caller.

    Use as a context manager; memory is about three blocks.

    Parameters
    ----------
    array : StagedArray
    """

    def __init__(self, array: StagedArray) -> None:
        self._array = array
        shape = array.open().shape
        self._buffer = np.empty((array.block_rows, *shape[1:]), array.open().dtype)
        self._filled = 0
        self._start = 0
        self._pool = ThreadPoolExecutor(_WRITERS, thread_name_prefix="daskcluster-write")
        self._pending: deque[Future[np.ndarray]] = deque()
        # Blocks are used again: fresh ones would be mapped anew, and scatter the heap.
        self._spare: list[np.ndarray] = []

    @property
    def n_rows(self) -> int:
        """Rows appended so far."""
        return self._start + self._filled

    def append(self, rows: np.ndarray) -> None:
        """Append rows (m, ...), converted to the array's dtype."""
        done = 0
        while done < len(rows):
            taken = min(len(rows) - done, len(self._buffer) - self._filled)
            self._buffer[self._filled : self._filled + taken] = rows[done : done + taken]
            self._filled += taken
            done += taken
            if self._filled == len(self._buffer):
                self._write()

    def _write(self) -> None:
        while len(self._pending) >= _WRITERS:
            self._spare.append(self._pending.popleft().result())
        self._pending.append(self._pool.submit(self._put, self._start, self._buffer, self._filled))
        self._buffer = self._spare.pop() if self._spare else np.empty_like(self._buffer)
        self._start += self._filled
        self._filled = 0

    def _put(self, start: int, buffer: np.ndarray, filled: int) -> np.ndarray:
        self._array.put(start, buffer[:filled])
        return buffer

    def flush(self) -> None:
        """Write what is left and wait for all writes."""
        if self._filled:
            self._write()
        while self._pending:
            self._pending.popleft().result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self._pool.shutdown(wait=True, cancel_futures=True)


def write_array(
    url: str,
    blocks: Iterable[np.ndarray],
    n_rows: int,
    dtype: np.dtype[Any],
    *,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Write blocks of rows, (m, d) or (m,), to a new Zarr array at `url`, whole or absent."""
    with Staging.begin(url, overwrite=overwrite, storage_options=storage_options) as staging:
        blocks = iter(blocks)
        first = next(blocks)
        row_bytes = dtype.itemsize * int(np.prod(first.shape[1:]))
        step = good_chunk_rows(row_bytes, n_rows)
        metadata = array_metadata((n_rows, *first.shape[1:]), step, dtype)
        array = StagedArray(staging.work, "", metadata, step)
        with RowWriter(array) as writer:
            writer.append(first)
            for block in blocks:
                writer.append(block)
        staging.commit(array.document())


UNKNOWN = {"i": -1, "f": np.nan}
"""Values of rows that were not written yet."""


def write_rows_at(place: Location, start: int, values: np.ndarray, chunk_rows: int) -> None:
    """Write the values of rows `start` onwards; the array is made, or grows, as far as needed.

    Doing it again does no harm. One writer at a time.

    Parameters
    ----------
    place : Location
        Of a 1-D Zarr array.
    start : int
    values : ndarray of shape (n,)
    chunk_rows : int
        Of the array, if it is not there yet.

    Raises
    ------
    OutputExistsError
        Something else is there.

    Examples
    --------
    >>> import numpy as np, zarr
    >>> from daskcluster.storage.location import locate
    >>> place = locate("memory://growing-array")
    >>> for start in (0, 2, 2):
    ...     write_rows_at(place, start, np.arange(start, start + 3, dtype=np.int32), 2)
    >>> zarr.open_array("memory://growing-array", mode="r")[:].tolist()
    [0, 1, 2, 3, 4]
    """
    try:
        array = _opened(place, values.dtype, chunk_rows)
        if array.ndim != 1 or array.dtype != values.dtype:
            raise OutputExistsError(
                f"{place.url!r} is an array of {array.ndim} axes and dtype {array.dtype}, where one number "
                f"a row of dtype {values.dtype} is to be written; choose another URL."
            )
        stop = start + len(values)
        if array.shape[0] < stop:
            array.resize((stop,))
        array[start:stop] = values
    except DaskClusterError:
        raise
    except Exception as error:  # clouds' clients have error classes of their own
        raise explain(error, place, "output") from error


def _opened(place: Location, dtype: Any, chunk_rows: int) -> Any:
    import zarr

    store = open_store(place, read_only=False)
    try:
        return zarr.open_array(store, mode="r+")
    except (FileNotFoundError, zarr.errors.NodeNotFoundError):
        return zarr.create_array(
            store,
            shape=(0,),
            chunks=(max(1, chunk_rows),),
            dtype=dtype,
            fill_value=UNKNOWN[np.dtype(dtype).kind],
            zarr_format=3,
        )
