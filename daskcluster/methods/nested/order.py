"""The order of rows that nested batches are the beginnings of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from daskcluster.randomness import Key
from daskcluster.typing import Range

_BLOCK_ROWS = 1 << 20
_BUCKET_BITS = 16


@dataclass(frozen=True)
class NestedOrder:
    """An order of all rows of a dataset.

    Attributes
    ----------
    n_rows : int
    key : Key or None
        Of the random places; None for the stored order, in which the place of a row is its index.

    Examples
    --------
    >>> order = NestedOrder(1000, Key(0, "example"))
    >>> small, large = order.limit(10), order.limit(20)
    >>> len(order.within(0, 1000, 0, small)), len(order.within(0, 1000, small, large))
    (10, 10)
    """

    n_rows: int
    key: Key | None

    def places(self, start: int, stop: int) -> np.ndarray:
        """Return the places of rows `start` to `stop`, uint64."""
        if self.key is None:
            return np.arange(start, stop, dtype=np.uint64)
        return self.key.words(start, stop)

    def limit(self, n: int) -> int:
        """Return the least number that is above the places of the first `n` rows of the order."""
        return self.limits([n])[0]

    def limits(self, counts: Sequence[int]) -> list[int]:
        """Return `limit` of several numbers of rows.

        Notes
        -----
        Cost: no row is read; every random place is drawn twice, in memory of 20 MB.
        """
        if self.key is None:
            return [max(0, n) if n < self.n_rows else 1 << 64 for n in counts]
        ends = np.cumsum(self._histogram())
        inner = [n for n in counts if 0 < n < self.n_rows]
        buckets = np.searchsorted(ends, inner)
        found = self._places_in(set(buckets.tolist()))
        limits = {n: 0 if n <= 0 else 1 << 64 for n in counts}
        for n, bucket in zip(inner, buckets.tolist(), strict=True):
            before = int(ends[bucket - 1]) if bucket else 0
            limits[n] = int(np.sort(found[bucket])[n - before - 1]) + 1
        return [limits[n] for n in counts]

    def _histogram(self) -> np.ndarray:
        """Return how many places begin with which bits."""
        counts = np.zeros(1 << _BUCKET_BITS, np.int64)
        for start, stop in row_blocks(self.n_rows):
            counts += np.bincount(_bucket(self.places(start, stop)), minlength=len(counts))
        return counts

    def _places_in(self, buckets: set[int]) -> dict[int, np.ndarray]:
        """Return the places that begin with these bits."""
        found: dict[int, list[np.ndarray]] = {bucket: [] for bucket in buckets}
        for start, stop in row_blocks(self.n_rows):
            places = self.places(start, stop)
            home = _bucket(places)
            for bucket, parts in found.items():
                parts.append(places[home == bucket])
        return {bucket: np.concatenate(parts) for bucket, parts in found.items()}

    def within(self, start: int, stop: int, low: int, high: int) -> np.ndarray:
        """Return which of rows `start` to `stop` have a place from `low` to below `high`.

        Counted from `start`, ascending, int64.
        """
        if self.key is None:
            first, last = np.clip([low, high], start, stop) - start
            return np.arange(first, last)
        if high <= low:
            return np.empty(0, np.int64)
        places = self.places(start, stop)
        return np.flatnonzero((places >= np.uint64(low)) & (places <= np.uint64(high - 1)))


def _bucket(places: np.ndarray) -> np.ndarray:
    return (places >> np.uint64(64 - _BUCKET_BITS)).astype(np.int64)


def row_blocks(n_rows: int) -> Iterator[Range]:
    """Yield runs of rows whose places are drawn at a time."""
    for start in range(0, n_rows, _BLOCK_ROWS):
        yield start, min(start + _BLOCK_ROWS, n_rows)
