"""Where per-row results go: an array in memory, or a Zarr array that is whole or absent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from daskcluster.data.staged_sink import StagedSink
from daskcluster.data.writer import StagedArray, array_metadata
from daskcluster.data.written_blocks import finished_blocks
from daskcluster.storage.staging import Staging
from daskcluster.typing import Range, Reach


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
    def reach(self) -> Reach:
        return Reach.PROCESS

    def has(self, span: Range) -> bool:
        """Return False: nobody has written here before."""
        return False

    def write(self, start: int, values: np.ndarray) -> None:
        """Write `values` to the rows from `start` on."""
        self.array[start : start + len(values)] = values


@dataclass(frozen=True)
class ZarrSink(StagedSink):
    """Results of any number of processes, written to a Zarr array that is whole or absent.

    Made by `create`; picklable, without credentials. Nothing can be opened at the URL before `commit`.

    Examples
    --------
    >>> import numpy as np, zarr
    >>> sink = ZarrSink.create("memory://sink-example", n_rows=5, chunk_rows=2)
    >>> with sink.transaction():
    ...     for start in (4, 0, 2):
    ...         sink.write(start, np.arange(start, min(start + 2, 5)))
    >>> zarr.open_array("memory://sink-example", mode="r")[:].tolist()
    [0, 1, 2, 3, 4]
    """

    @classmethod
    def create(
        cls,
        url: Any,
        *,
        n_rows: int,
        chunk_rows: int,
        dtype: Any = np.int32,
        width: int = 0,
        overwrite: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        mark: str = "",
        resume: bool = False,
    ) -> Self:
        """Begin an output of `n_rows` rows.

        Parameters
        ----------
        url : str
            Path or URL of the array.
        chunk_rows : int
            Rows of an output chunk; as many as the input's chunks have.
        dtype : dtype, default int32
        width : int, default 0
            Columns of a 2-D output; 0 makes it 1-D.
        overwrite : bool
            Replace a Zarr array that is there.
        mark, resume
            Go on with an interrupted output; see `Staging.begin`.

        Raises
        ------
        OutputExistsError
            Something is there already.
        """
        chunk_rows = max(1, min(int(chunk_rows), n_rows))
        shape = (n_rows, width) if width else (n_rows,)
        metadata = array_metadata(shape, chunk_rows, dtype)
        staging = Staging.begin(
            url, overwrite=overwrite, storage_options=storage_options, mark=mark, resume=resume
        )
        arrays = (StagedArray(staging.work, "", metadata, chunk_rows),)
        return cls(staging, arrays, finished_blocks(arrays) if resume else frozenset())

    def write(self, start: int, values: np.ndarray) -> None:
        """Write whole blocks from row `start` on; from any process, in any order."""
        self.arrays[0].write(start, values)

    def documents(self) -> dict[str, bytes]:
        """Return the metadata of the array, by path."""
        return self.arrays[0].document()
