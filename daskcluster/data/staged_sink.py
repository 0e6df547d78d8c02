"""Per-row results of any number of processes, in staged arrays that are whole or absent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from daskcluster.data.writer import StagedArray
from daskcluster.data.written_blocks import check_whole, covers
from daskcluster.storage.staging import Staging
from daskcluster.typing import Range, Reach


@dataclass(frozen=True)
class StagedSink(ABC):
    """Base of sinks that any number of processes write to; picklable, without credentials.

    Attributes
    ----------
    staging : Staging
    arrays : tuple of StagedArray
        All that is written, in blocks of the same rows.
    finished : frozenset of int
        Numbers of the blocks that an earlier writer has left.
    """

    staging: Staging
    arrays: tuple[StagedArray, ...]
    finished: frozenset[int] = frozenset()

    @abstractmethod
    def write(self, start: int, values: np.ndarray) -> None:
        """Write whole blocks from row `start` on; from any process, in any order."""

    @abstractmethod
    def documents(self) -> dict[str, bytes]:
        """Return the metadata that makes the output readable, by path, in the order of writing."""

    @property
    def block_rows(self) -> int:
        return self.arrays[0].block_rows

    @property
    def reach(self) -> Reach:
        return self.staging.work.reach

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
        """Remove what has been written, unless another writer may go on with it."""
        self.staging.abort()

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Commit at the end of the block, or abort if it raises."""
        with self.staging:
            yield self
            self.commit()
