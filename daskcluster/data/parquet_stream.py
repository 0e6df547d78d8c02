"""Large row groups of Parquet files, decoded from front to back by a reader that stays where it stopped."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from daskcluster.data.parquet_parts import groups_of, row_group_edges
from daskcluster.data.row_files import RowFile
from daskcluster.storage.location import Location

if TYPE_CHECKING:
    from daskcluster.data.parquet import ParquetFormat

BATCH_BYTES = 1 << 20
"""Decoded bytes of a batch: a row group of lists decoded at once takes several times its memory."""
_MOST_STREAMS = 8


class _Stream:
    """Row groups too large to be held, decoded from front to back, to the end of a file."""

    def __init__(self, form: ParquetFormat, place: Location, file: RowFile, start: int) -> None:
        self._blocks = form.decoded(place, file, start, file.n_rows, streamed=True)
        self._rest = np.empty((0, form.n_features), form.dtype)
        self.at = start

    def read(self, first: int, last: int) -> np.ndarray:
        """Return rows of the file; `first` lies at `at` or behind it."""
        found = []
        while self.at < last:
            if not len(self._rest):
                self._rest = next(self._blocks)
            skipped = min(max(first - self.at, 0), len(self._rest))
            taken = min(last - self.at, len(self._rest))
            if taken > skipped:
                found.append(self._rest[skipped:taken])
            self._rest = self._rest[taken:]
            self.at += taken
        return found[0] if len(found) == 1 else np.concatenate(found)


_lock = threading.Lock()
_streams: OrderedDict[tuple[object, int], _Stream] = OrderedDict()


def read_stream(
    form: ParquetFormat, place: Location, file: RowFile, first: int, last: int
) -> np.ndarray:
    """Return rows of large row groups; a reader that stopped in the group of the first continues."""
    start = int(row_group_edges(file)[groups_of(file, first, last)[0]])
    key = form, place.url, file.version
    with _lock:
        usable = [
            name for name, each in _streams.items() if name[0] == key and start <= each.at <= first
        ]
        best = max(usable, key=lambda name: _streams[name].at, default=None)
        stream = None if best is None else _streams.pop(best)
    if stream is None:
        stream = _Stream(form, place, file, start)
    rows = stream.read(first, last)
    if stream.at < file.n_rows:
        with _lock:
            _streams[key, id(stream)] = stream
            while len(_streams) > _MOST_STREAMS:
                _streams.popitem(last=False)
    return rows
