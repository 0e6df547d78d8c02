"""Write rows, and results of rows, to Zarr chunk by chunk: in bounded memory, from one process or many."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from daskcluster.errors import DaskClusterError, InvalidParameterError, OutputExistsError
from daskcluster.sparse_rows import INDEX_DTYPE, Rows, SparseRows
from daskcluster.storage.files import list_files
from daskcluster.storage.location import Location, explain
from daskcluster.storage.process_local import open_once
from daskcluster.storage.retry import retry
from daskcluster.storage.staging import Staging
from daskcluster.storage.zarr_stores import HEAD, group_document, open_store
from daskcluster.typing import Range, Visibility

if TYPE_CHECKING:
    import zarr


CHUNK_BYTES = 8 << 20
"""Decoded bytes of a chunk: measured fastest to read, and large enough for object stores."""

_WRITERS = 2

ROWS, WEIGHTS, INDICES = "X", "weights", "indices"
"""Names in a group that holds rows, their weights, and which rows of a source they are."""
ROW_KINDS = ("array", "group")
"""Kinds of nodes that rows may replace."""
_CSR = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0"}
_STARTS = 1 << 20
"""Rows whose beginnings make a chunk."""
_UNKNOWN = 1 << 46
"""A length that no data reaches; the metadata gets the true one at the end."""


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

    @classmethod
    def of(
        cls,
        staging: Staging,
        name: str,
        shape: tuple[int, ...],
        chunk_rows: int,
        dtype: Any,
        *,
        shard_rows: int | None = None,
        **described: Any,
    ) -> Self:
        """Return an array to write in a staging; see `array_metadata`."""
        metadata = array_metadata(shape, chunk_rows, dtype, shard_rows=shard_rows, **described)
        return cls(staging.work, name, metadata, shard_rows or chunk_rows)

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
    start : int, default 0
        Rows that are written already, in whole blocks.
    """

    def __init__(self, array: StagedArray, start: int = 0) -> None:
        self._array = array
        shape = array.open().shape
        self._buffer = np.empty((array.block_rows, *shape[1:]), array.open().dtype)
        self._filled = 0
        self._start = start
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

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self._pool.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True)
class RowsShape:
    """The facts of rows that have to be known before they are written.

    Attributes
    ----------
    n_rows, n_features : int
    dtype : dtype
    n_entries : int or None
        The stored values of CSR rows, about; None for dense rows.
    """

    n_rows: int
    n_features: int
    dtype: np.dtype[Any]
    n_entries: int | None = None

    @classmethod
    def of(cls, rows: Any) -> Self:
        """Return the shape of a dataset, or of `Rows`."""
        if hasattr(rows, "n_rows"):
            return cls(rows.n_rows, rows.n_features, rows.dtype, getattr(rows, "n_entries", None))
        n_entries = len(rows.data) if isinstance(rows, SparseRows) else None
        return cls(len(rows), rows.shape[1], rows.dtype, n_entries)

    @property
    def chunked_bytes(self) -> int:
        """Bytes of a row in the arrays that are cut by rows."""
        return self.n_features * self.dtype.itemsize if self.n_entries is None else 8

    @property
    def entries_per_chunk(self) -> int:
        """Stored values, and columns, of a chunk of about 8 MB."""
        entries = CHUNK_BYTES // (self.dtype.itemsize + INDEX_DTYPE.itemsize)
        return max(1, min(entries, self.n_entries or 0))


class RowsWriter:
    """Writes rows, dense or CSR, and arrays of one value a row next to them, block by block.

    Use as a context manager, then publish its `documents`. Rows alone are an array at the root of the
    staging, or a group of CSR rows in AnnData's layout; with other arrays they are ``X`` in a group of all.
    Memory is about three chunks (or shards) of each array.

    Parameters
    ----------
    staging : Staging
    shape : RowsShape
    others : mapping of str to dtype, optional
        Names of the other arrays.
    chunk_rows : int, optional
        Rows of a chunk; about 8 MB by default, and always for CSR rows.
    shard_rows : int, optional
    attributes : mapping, optional
        Attributes of every array.
    group : mapping, optional
        Attributes of the group, if there is one.

    Attributes
    ----------
    n_rows : int
        Rows that are written or held; those of an interrupted writer, if the staging resumes. CSR rows,
        whose blocks are cut by values, begin anew.

    Raises
    ------
    InvalidParameterError
        Chunks or shards of so many rows for CSR rows, which are cut by values, or shards that are not whole
        chunks.
    """

    def __init__(
        self,
        staging: Staging,
        shape: RowsShape,
        others: Mapping[str, Any] | None = None,
        *,
        chunk_rows: int | None = None,
        shard_rows: int | None = None,
        attributes: Mapping[str, Any] | None = None,
        group: Mapping[str, Any] | None = None,
    ) -> None:
        self.shape, self.n_rows, self.n_entries = shape, 0, 0
        self._shard_rows, self._group = shard_rows, dict(group or {})
        self._attributes = dict(attributes or {})
        self._prefix = f"{ROWS}/" if others else ""
        if shape.n_entries is not None:
            refuse_row_chunks(chunk_rows, shard_rows)
        self._step = good_chunk_rows(shape.chunked_bytes, shape.n_rows)
        if chunk_rows is not None:
            self._step = chunk_rows
        check_chunking(self._step, shard_rows)
        if shape.n_entries is None:
            self._arrays = [
                self.staged_array(staging, ROWS if others else "", shape.dtype, shape.n_features)
            ]
            self.chunk_rows = self._step
        else:
            chunk, starts = shape.entries_per_chunk, shape.n_rows + 1
            parts = (
                ("data", _UNKNOWN, chunk, shape.dtype),
                ("indices", _UNKNOWN, chunk, INDEX_DTYPE),
                ("indptr", starts, min(_STARTS, starts), np.int64),
            )
            self._arrays = [
                StagedArray.of(staging, f"{self._prefix}{name}", (length,), step, dtype)
                for name, length, step, dtype in parts
            ]
            per_chunk = chunk * shape.n_rows // max(1, shape.n_entries)
            self.chunk_rows = max(1, min(shape.n_rows, per_chunk))
        self._others = [
            self.staged_array(staging, name, dtype) for name, dtype in (others or {}).items()
        ]
        if staging.stays and shape.n_entries is None:
            self.n_rows = min(shape.n_rows, _rows_in_front([*self._arrays, *self._others]))
        self._stack = ExitStack()

    def staged_array(self, staging: Staging, name: str, dtype: Any, *axes: int) -> StagedArray:
        """Return an array of as many rows, in chunks of as many, with the same attributes."""
        return StagedArray.of(
            staging,
            name,
            (self.shape.n_rows, *axes),
            self._step,
            dtype,
            shard_rows=self._shard_rows,
            attributes=self._attributes,
        )

    def begin_with(self, array: StagedArray, staging: Staging) -> None:
        """Begin no later than an array of another staging does, which is written along with these."""
        if staging.stays and self.n_rows:
            self.n_rows = min(self.n_rows, _rows_in_front([array]))

    def __enter__(self) -> Self:
        arrays = (*self._arrays, *self._others)
        opened = [self._stack.enter_context(RowWriter(each, self.n_rows)) for each in arrays]
        self._rows, self._values = opened[: len(self._arrays)], opened[len(self._arrays) :]
        if self.shape.n_entries is not None:
            self._rows[2].append(np.zeros(1, np.int64))
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._stack.__exit__(kind, error, trace)

    def append(self, rows: Rows, *others: np.ndarray) -> None:
        """Append rows (m, d), and values (m,) of each of the other arrays."""
        if isinstance(rows, SparseRows):
            ends = rows.offsets[1:] + self.n_entries
            for writer, values in zip(self._rows, (rows.data, rows.indices, ends), strict=True):
                writer.append(values)
            self.n_entries += len(rows.data)
        else:
            self._rows[0].append(rows)
        for writer, own in zip(self._values, others, strict=True):
            writer.append(own)
        self.n_rows += len(rows)

    def documents(self) -> dict[str, bytes]:
        """Return the metadata of all that was written, for `Staging.commit`."""
        found: dict[str, bytes] = {}
        if self.shape.n_entries is not None:
            for array, length in zip(self._arrays, (self.n_entries,) * 2 + (None,), strict=True):
                found |= array.document(length)
            shape = {"shape": [self.n_rows, self.shape.n_features]}
            found |= group_document({**self._attributes, **_CSR, **shape}, self._prefix)
        else:
            found |= self._arrays[0].document()
        for array in self._others:
            found |= array.document()
        # The group last: until it is there, nothing is found at the URL.
        return found | (group_document(self._group) if self._others else {})


def refuse_row_chunks(chunk_rows: int | None, shard_rows: int | None) -> None:
    """Refuse chunks of so many rows for CSR rows, whose chunks are cut by values."""
    if chunk_rows is not None or shard_rows is not None:
        name, value = ("chunk_rows", chunk_rows) if chunk_rows else ("shard_rows", shard_rows)
        raise InvalidParameterError(
            f"{name}={value} is for dense rows; the chunks of sparse rows are cut by values, leave it out."
        )


def write_rows(
    url: Any,
    blocks: Iterable[Rows],
    rows: Any,
    *,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Write blocks of rows, dense or CSR, to a new Zarr array or group at `url`, whole or absent.

    Parameters
    ----------
    url : str
    blocks : iterable of Rows
        In order; CSR rows in canonical form.
    rows : RowsShape or dataset
        What the blocks are of.
    overwrite : bool
    storage_options : mapping, optional

    Raises
    ------
    OutputExistsError
        Something is there already.
    """
    shape = rows if isinstance(rows, RowsShape) else RowsShape.of(rows)
    options: dict[str, Any] = {"overwrite": overwrite, "storage_options": storage_options}
    with Staging.begin(url, kinds=ROW_KINDS, **options) as staging:
        with RowsWriter(staging, shape) as writer:
            for block in blocks:
                writer.append(block)
        staging.commit(writer.documents())


def write_values(
    url: str,
    blocks: Iterable[np.ndarray],
    n_rows: int,
    dtype: np.dtype[Any],
    *,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Write blocks of one value a row to a new Zarr array (n,) at `url`, whole or absent."""
    with Staging.begin(url, overwrite=overwrite, storage_options=storage_options) as staging:
        step = good_chunk_rows(dtype.itemsize, n_rows)
        array = StagedArray.of(staging, "", (n_rows,), step, dtype)
        with RowWriter(array) as writer:
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
        Place of a 1-D Zarr array.
    start : int
    values : ndarray of shape (n,)
    chunk_rows : int
        Rows of a chunk of the array, if it is not there yet.

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


_READERS = 8


def finished_blocks(arrays: Sequence[StagedArray]) -> frozenset[int]:
    """Return the numbers of the blocks that all arrays have, and that can be read back.

    Notes
    -----
    Cost: one listing of each array, and a read of what is there. Disks that lost their power can have
    files without content; object stores have whole objects.
    """
    found = frozenset.intersection(*(_listed(array) for array in arrays))
    for array in arrays:
        if array.work.is_local:
            with ThreadPoolExecutor(_READERS, thread_name_prefix="daskcluster-blocks") as pool:
                sound = pool.map(lambda block, array=array: _is_sound(array, block), sorted(found))
                found = frozenset(
                    block for block, good in zip(sorted(found), sound, strict=True) if good
                )
    return found


def _rows_in_front(arrays: Sequence[StagedArray]) -> int:
    """Return the rows before the first block that an interrupted writer has not written."""
    finished = finished_blocks(arrays)
    return next(n for n in count() if n not in finished) * arrays[0].block_rows


def covers(blocks: frozenset[int], block_rows: int, span: Range) -> bool:
    """Return True if all rows of a range lie in these blocks.

    Examples
    --------
    >>> covers(frozenset({0, 1}), 4, (0, 8)), covers(frozenset({0, 1}), 4, (4, 9))
    (True, False)
    """
    start, stop = span
    return all(block in blocks for block in range(start // block_rows, -(-stop // block_rows)))


def check_whole(staging: Staging, arrays: Sequence[StagedArray]) -> None:
    """Refuse to publish an output of which blocks are missing.

    Raises
    ------
    OutputExistsError
    """
    for array in arrays:
        n_rows = array.open().shape[0]
        missing = set(range(-(-n_rows // array.block_rows))) - _listed(array)
        if missing:
            raise OutputExistsError(
                f"{len(missing)} blocks of the unfinished output {staging.target.url!r} were taken away "
                "while it was being written, most likely by another process that went on with it; run only "
                "one at a time, and this one again with resume."
            )


def _listed(array: StagedArray) -> frozenset[int]:
    files = list_files(array.work.child(f"{array.name}/c"))
    blocks = [file.name.split("/")[0] for file in files if file.size > 0]
    return frozenset(int(block) for block in blocks if block.isdecimal())


def _is_sound(array: StagedArray, block: int) -> bool:
    start = block * array.block_rows
    try:
        array.open()[start : start + array.block_rows]
    except Exception:  # codecs raise various errors on foreign bytes
        return False
    return True


@dataclass(frozen=True)
class ArraySink:
    """Results of threads, written into one array.

    Attributes
    ----------
    array : ndarray of shape (n, ...)
    """

    array: np.ndarray

    @property
    def block_rows(self) -> int:
        return 1

    @property
    def visibility(self) -> Visibility:
        return Visibility.PROCESS

    def has(self, span: Range) -> bool:
        """Return False: there is no earlier output."""
        return False

    def write(self, start: int, values: np.ndarray) -> None:
        """Write `values` to the rows from `start` on."""
        self.array[start : start + len(values)] = values


KINDS = ("group",)
"""Kinds of nodes that structured results may replace."""


@dataclass(frozen=True)
class ZarrSink:
    """Results of any number of processes, written to Zarr; the output is whole or absent.

    An array, or a group of an array for each field of structured results. Made by `create`; picklable,
    without credentials. Nothing can be opened at the URL before `commit`.

    Attributes
    ----------
    staging : Staging
    arrays : tuple of StagedArray
        All that is written, in blocks of the same rows. The array of unstructured results has no name.
    attributes : mapping
        Plain JSON values: what a group says of itself.
    finished : frozenset of int
        Numbers of the blocks that an earlier writer has left.

    Examples
    --------
    >>> import numpy as np, zarr
    >>> sink = ZarrSink.create("memory://sink-example", n_rows=5, chunk_rows=2)
    >>> with sink.transaction():
    ...     for start in (4, 0, 2):
    ...         sink.write(start, np.arange(start, min(start + 2, 5)))
    >>> zarr.open_array("memory://sink-example", mode="r")[:].tolist()
    [0, 1, 2, 3, 4]
    >>> dtype = np.dtype([("label", np.int32), ("share", np.float32)])
    >>> sink = ZarrSink.create("memory://group-sink", n_rows=3, chunk_rows=2, dtype=dtype, width=1)
    >>> with sink.transaction():
    ...     for start, stop in ((2, 3), (0, 2)):
    ...         sink.write(start, np.full((stop - start, 1), np.array((stop, 0.5), dtype)))
    >>> zarr.open_group("memory://group-sink", mode="r")["label"][:, 0].tolist()
    [2, 2, 3]
    """

    staging: Staging
    arrays: tuple[StagedArray, ...]
    attributes: Mapping[str, Any]
    finished: frozenset[int] = frozenset()

    @classmethod
    def create(
        cls,
        url: Any,
        *,
        n_rows: int,
        chunk_rows: int,
        dtype: Any = np.int32,
        width: int = 0,
        attributes: Mapping[str, Any] | None = None,
        overwrite: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        mark: str = "",
        resume: bool = False,
    ) -> Self:
        """Begin an output of `n_rows` rows.

        Parameters
        ----------
        url : str
            Path or URL of the array or group.
        chunk_rows : int
            Rows of an output chunk; as many as the input's chunks have.
        dtype : dtype, default int32
            The fields of a structured one are the names and dtypes of arrays.
        width : int, default 0
            Columns of each array; 0 makes it 1-D.
        attributes : mapping, optional
            Those of a group.
        overwrite : bool
            Replace a Zarr array, or a group by structured results.
        mark, resume
            Resume an interrupted output; see `Staging.begin`.

        Raises
        ------
        OutputExistsError
            Something is there that may not be replaced.
        """
        chunk_rows = max(1, min(int(chunk_rows), n_rows))
        fields = np.dtype(dtype).fields
        options: dict[str, Any] = {} if fields is None else {"kinds": KINDS}
        options |= {"overwrite": overwrite, "storage_options": storage_options}
        staging = Staging.begin(url, mark=mark, resume=resume, **options)
        kinds = {"": dtype} if fields is None else {name: kind[0] for name, kind in fields.items()}
        shape = (n_rows, width) if width else (n_rows,)
        with staging:
            arrays = tuple(
                StagedArray.of(staging, name, shape, chunk_rows, kind)
                for name, kind in kinds.items()
            )
            finished = finished_blocks(arrays) if resume else frozenset()
        return cls(staging, arrays, dict(attributes or {}), finished)

    def write(self, start: int, values: np.ndarray) -> None:
        """Write whole blocks from row `start` on; from any process, in any order."""
        for array in self.arrays:
            column = np.ascontiguousarray(values[array.name]) if array.name else values
            array.write(start, column.reshape(len(column), *array.open().shape[1:]))

    def documents(self) -> dict[str, bytes]:
        """Return the metadata that makes the output readable, by path, in the order of writing."""
        found: dict[str, bytes] = {}
        for array in self.arrays:
            found |= array.document()
        # The group last: until it is there, nothing is found at the URL.
        return found | (group_document(self.attributes) if self.arrays[0].name else {})

    @property
    def block_rows(self) -> int:
        return self.arrays[0].block_rows

    @property
    def visibility(self) -> Visibility:
        return self.staging.work.visibility

    def has(self, span: Range) -> bool:
        """Return True if an earlier writer has written all rows of a range."""
        return covers(self.finished, self.block_rows, span)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "finished": frozenset()}  # the driver knows what is left to do

    def commit(self) -> None:
        """Make the output readable at its URL."""
        if self.staging.mark:
            check_whole(self.staging, self.arrays)
        self.staging.commit(self.documents())

    def abort(self) -> None:
        """Remove what has been written, unless another writer may continue it."""
        self.staging.abort()

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Commit at the end of the block, or abort if it raises."""
        with self.staging:
            yield self
            self.commit()


def read_results(place: Location, into: np.ndarray) -> None:
    """Read what a `ZarrSink` has written at a place into an array (n,) of its dtype."""
    import zarr

    node: Any = zarr.open(open_store(place), mode="r")
    if into.dtype.names is None:
        into[:] = node[:]
    for name in into.dtype.names or ():
        into[name] = node[name][:]
