"""Per-row results of several kinds, written to one Zarr group that is whole or absent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from daskcluster.data.staged_sink import StagedSink
from daskcluster.data.writer import StagedArray, array_metadata
from daskcluster.data.written_blocks import finished_blocks
from daskcluster.storage.staging import Staging
from daskcluster.storage.zarr_stores import group_document

KINDS = ("group",)
"""What an output of this kind may replace."""


@dataclass(frozen=True)
class GroupSink(StagedSink):
    """Structured results of any number of processes: each field goes to an array of its name.

    Made by `create`; picklable, without credentials. Nothing can be opened at the URL before `commit`.

    Examples
    --------
    >>> import numpy as np, zarr
    >>> dtype = np.dtype([("label", np.int32), ("share", np.float32)])
    >>> sink = GroupSink.create("memory://group-sink", n_rows=3, chunk_rows=2, dtype=dtype, width=1)
    >>> with sink.transaction():
    ...     for start, stop in ((2, 3), (0, 2)):
    ...         sink.write(start, np.full((stop - start, 1), np.array((stop, 0.5), dtype)))
    >>> zarr.open_group("memory://group-sink", mode="r")["label"][:, 0].tolist()
    [2, 2, 3]
    """

    attributes: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def create(
        cls,
        url: Any,
        *,
        n_rows: int,
        chunk_rows: int,
        dtype: np.dtype[Any],
        width: int,
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
            Path or URL of the group.
        chunk_rows : int
            Rows of an output chunk; as many as the input's chunks have.
        dtype : structured dtype
            Names and dtypes of the arrays.
        width : int
            Columns of each array.
        attributes : mapping, optional
            Plain JSON values: what the group says of itself.
        overwrite : bool
            Replace a Zarr group that is there.
        mark, resume
            Go on with an interrupted output; see `Staging.begin`.

        Raises
        ------
        OutputExistsError
            Something is there that may not be replaced.
        """
        chunk_rows = max(1, min(int(chunk_rows), n_rows))
        staging = Staging.begin(
            url,
            overwrite=overwrite,
            storage_options=storage_options,
            kinds=KINDS,
            mark=mark,
            resume=resume,
        )
        arrays = []
        for name in dtype.names or ():
            metadata = array_metadata((n_rows, width), chunk_rows, dtype[name])
            arrays.append(StagedArray(staging.work, name, metadata, chunk_rows))
        finished = finished_blocks(arrays) if resume else frozenset()
        return cls(staging, tuple(arrays), finished, dict(attributes or {}))

    def write(self, start: int, values: np.ndarray) -> None:
        """Write whole blocks of structured values from row `start` on; from any process, in any order."""
        for array in self.arrays:
            array.write(start, np.ascontiguousarray(values[array.name]))

    def documents(self) -> dict[str, bytes]:
        """Return the metadata of the arrays and of the group, by path."""
        found: dict[str, bytes] = {}
        for array in self.arrays:
            found |= array.document()
        # The group last: until it is there, nothing is found at the URL.
        return found | group_document(self.attributes)
