"""Duplicates among the ids of rows: counted by their hashes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from daskcluster.data.tables import import_pyarrow
from daskcluster.kernels.hashing import hash_strings

_MOST_ROWS = 1 << 28
"""More rows are not checked: their hashes would take more than 2 GB."""


class DuplicateIds:
    """Counts duplicates among ids that are added block by block.

    Parameters
    ----------
    name : str
        Of the id column, for the warning.
    n_rows : int

    Notes
    -----
    Cost: 8 bytes a row, and a sort. Ids whose hashes are equal count as equal: of 10^8 different ones that
    happens once in some 4,000 runs. More than 268 million rows are not checked.
    """

    def __init__(self, name: str, n_rows: int) -> None:
        self._name = name
        self._hashes = np.empty(n_rows if n_rows <= _MOST_ROWS else 0, np.uint64)
        self._n_rows = 0

    def add(self, ids: Any) -> None:
        """Add the ids of the next rows, an Arrow array or chunked array."""
        found = hashes_of(ids)
        if len(self._hashes):
            self._hashes[self._n_rows : self._n_rows + len(found)] = found
        self._n_rows += len(found)

    def warn(self, blocks: Callable[[], Iterable[Any]]) -> None:
        """Warn if there are duplicates.

        Parameters
        ----------
        blocks : callable () -> iterable of ids
            All ids once more, to find one that is there twice.
        """
        ordered = np.sort(self._hashes)
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        if not len(twice):
            return
        shown = next(
            (
                ids[int(at[0])].as_py()
                for ids in blocks()
                if len(at := np.flatnonzero(hashes_of(ids) == twice[0]))
            ),
            None,
        )
        warnings.warn(
            f"{len(twice):,} of {self._n_rows:,} rows have an id in column {self._name!r} that an earlier "
            f"row has too, e.g. {shown!r}: a join of labels by id would mix them up.",
            UserWarning,
            stacklevel=2,
        )


def hashes_of(ids: Any) -> np.ndarray:
    """Return a hash of each id of an Arrow array or chunked array, uint64 (n,)."""
    pa = import_pyarrow()
    parts = [_hashes(pa, part) for part in getattr(ids, "chunks", [ids])]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _hashes(pa: Any, ids: Any) -> np.ndarray:
    strings = ids.cast(pa.large_string()).fill_null("")
    if not len(strings):
        return np.empty(0, np.uint64)
    _, offsets, content = strings.buffers()
    starts = np.frombuffer(offsets, np.int64)[strings.offset : strings.offset + len(strings) + 1]
    text = np.frombuffer(content, np.uint8) if content is not None else np.empty(0, np.uint8)
    return hash_strings(text, starts)
