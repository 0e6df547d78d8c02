"""Destinations of per-row results: an array in memory, or Zarr arrays written whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from daskcluster.data.writer import StagedArray
from daskcluster.errors import OutputExistsError
from daskcluster.storage.files import list_files
from daskcluster.storage.staging import Staging
from daskcluster.storage.zarr_stores import group_document
from daskcluster.typing import Range, Visibility

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
        arrays = tuple(
            StagedArray.of(staging, name, shape, chunk_rows, kind) for name, kind in kinds.items()
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
