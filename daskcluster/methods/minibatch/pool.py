"""Pools of rows out of core: row groups from the whole dataset, read ahead.

A pass cuts the dataset into strata of consecutive row groups, as many as a pool holds groups, and
takes one group of every stratum for each pool, in an order drawn for each stratum. Whatever the order in
which rows
are stored in, sorted by cluster for instance, a pool sees all of the dataset. What remains of it is the
bias: rows of a group come in the same pool, and the share of a cluster varies from pool to pool more
than it does among uniform draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.data.readahead import read_ahead
from daskcluster.host import format_bytes
from daskcluster.randomness import Key
from daskcluster.sparse_rows import Rows, SparseRows, join_rows
from daskcluster.typing import Dataset, Range

LEAST_GROUPS = 64
"""Row groups that a pool should hold: few enough to be read, many enough to be everywhere."""

_POOLS = 3
"""Pools in memory: the one in use, the next one, and the one that is being read."""


@dataclass(frozen=True)
class Segment:
    """Rows in memory, their numbers, and the key of the order in which they are drawn."""

    rows: Rows
    weights: np.ndarray | None
    spans: tuple[Range, ...]
    key: Key

    def row_of(self, place: int) -> int:
        """Return the row of the dataset at a place of `rows`."""
        for start, stop in self.spans:
            if place < stop - start:
                return start + place
            place -= stop - start
        raise IndexError(place)

    def rows_of(self, places: np.ndarray) -> np.ndarray:
        """Return the rows of the dataset at some places of `rows`, int64."""
        spans = np.array(self.spans, np.int64)
        starts = np.concatenate([[0], np.cumsum(spans[:, 1] - spans[:, 0])])
        home = np.searchsorted(starts, places, side="right") - 1
        return np.asarray(spans[home, 0] + places - starts[home])


@dataclass(frozen=True)
class PoolPlace:
    """Numbers of a pool: its pass, its number within the pass, and its number over all passes."""

    epoch: int
    pool: int
    number: int


@dataclass(frozen=True)
class Pools:
    """Row groups of the pools of every pass.

    Attributes
    ----------
    dataset : Dataset
    edges : ndarray of int64, shape (n_groups + 1,)
        Row groups: the smallest pieces that are cheap to read.
    n_pools : int
        Of a pass.
    seed : int
    on_read : callable (int) -> None
        Called with decoded bytes, in a reading thread.
    """

    dataset: Dataset
    edges: np.ndarray
    n_pools: int
    seed: int
    on_read: Callable[[int], None]

    @classmethod
    def plan(
        cls,
        dataset: Dataset,
        seed: int,
        wanted_rows: int,
        room_bytes: int,
        *,
        on_read: Callable[[int], None],
    ) -> Pools:
        """Choose the number of groups of a pool.

        At least 64, and enough for `wanted_rows`; fewer only where three pools would not fit
        `room_bytes`.
        """
        edges = dataset.read_edges((0, dataset.n_rows))
        n_groups = len(edges) - 1
        mean = dataset.bytes_of((0, dataset.n_rows)) / n_groups
        fitting = max(1, int(room_bytes / _POOLS / mean))
        wanted = max(LEAST_GROUPS, -(-wanted_rows * n_groups // dataset.n_rows))
        per_pool = min(wanted, fitting, n_groups)
        return cls(dataset, edges, -(-n_groups // per_pool), seed, on_read)

    @property
    def n_groups(self) -> int:
        return len(self.edges) - 1

    @property
    def per_pool(self) -> int:
        """Groups of a pool, and strata of the dataset."""
        return -(-self.n_groups // self.n_pools)

    def notice(self, *, replacement: bool = False) -> str:
        """Return the difference between batches from these pools and uniform draws, and the remedy."""
        size = self.dataset.bytes_of((0, self.dataset.n_rows)) // self.n_pools
        order = "drawn with replacement" if replacement else "shuffled, every row once a pass"
        text = (
            f"Batches are drawn from pools of {self.per_pool:,} of {self.n_groups:,} row groups "
            f"({format_bytes(size)}), taken from all over the dataset and {order}. Rows of a group "
            "share a pool, so batches vary a little more than uniform draws."
        )
        if self.per_pool >= min(LEAST_GROUPS, self.n_groups):
            return text
        return (
            f"{text} With fewer than {LEAST_GROUPS} groups that can be much more if the rows are "
            "sorted: shuffle them (`daskcluster shuffle`), or rewrite them in smaller chunks "
            "(`daskcluster convert`)."
        )

    def groups(self, epoch: int) -> list[np.ndarray]:
        """Return the groups of every pool of a pass, ascending."""
        strata = np.arange(self.per_pool * self.n_pools).reshape(self.per_pool, self.n_pools)
        drawn = Key(self.seed, "pools", epoch).generator().permuted(strata, axis=1)
        pools = (np.sort(column[column < self.n_groups]) for column in drawn.T)
        return [groups for groups in pools if len(groups)]

    def find(self, position: int) -> tuple[PoolPlace, int]:
        """Return the pool of a row, and the number of rows before it in that pool.

        Parameters
        ----------
        position : int
            Of the row, among the rows of all pools of all passes.
        """
        epoch, left = divmod(position, self.dataset.n_rows)
        before = sum(len(self.groups(earlier)) for earlier in range(epoch))
        sizes = [(self.edges[pool + 1] - self.edges[pool]).sum() for pool in self.groups(epoch)]
        edges = np.concatenate([[0], np.cumsum(sizes)])
        pool = int(np.searchsorted(edges, left, side="right")) - 1
        return PoolPlace(epoch, pool, before + pool), left - int(edges[pool])

    def read(self, first: PoolPlace | None = None) -> Iterator[Segment]:
        """Yield pool after pool, pass after pass; the next one is read while one is used."""
        jobs = self._jobs(first or PoolPlace(0, 0, 0))
        return read_ahead(jobs, self._read, lambda job: self._size(job[1]), window_bytes=1)

    def _jobs(self, first: PoolPlace) -> Iterator[tuple[Key, tuple[Range, ...]]]:
        number, skipped = first.number, first.pool
        for epoch in count(first.epoch):
            pools, skipped = self.groups(epoch)[skipped:], 0
            for groups in pools:
                yield Key(self.seed, "pool", number), self._spans(groups)
                number += 1

    def _spans(self, groups: np.ndarray) -> tuple[Range, ...]:
        """Return the ranges of rows of some groups, neighbours in one."""
        breaks = np.flatnonzero(np.diff(groups) != 1) + 1
        runs = np.split(groups, breaks)
        return tuple((int(self.edges[run[0]]), int(self.edges[run[-1] + 1])) for run in runs)

    def _size(self, spans: tuple[Range, ...]) -> int:
        return sum(self.dataset.bytes_of(span) for span in spans)

    def _read(self, job: tuple[Key, tuple[Range, ...]]) -> Segment:
        key, spans = job
        n_rows = sum(stop - start for start, stop in spans)
        chunks = self.dataset.chunks(spans, on_read=self.on_read)
        rows, weights = _gathered(chunks, n_rows)
        return Segment(rows, weights, spans, key)


def _gathered(chunks: Iterator[Chunk], n_rows: int) -> tuple[Rows, np.ndarray | None]:
    """Return the rows and weights of chunks, one after the other, in memory of their own."""
    sparse: list[SparseRows] = []
    weights: list[np.ndarray] = []
    rows: Any = None
    at = 0
    for chunk in chunks:
        if chunk.weights is not None:
            weights.append(np.array(chunk.weights))
        if isinstance(chunk.rows, SparseRows):
            sparse.append(chunk.rows.owned())
            continue
        if rows is None:
            rows = np.empty((n_rows, chunk.rows.shape[1]), chunk.rows.dtype)
        rows[at : at + chunk.n_rows] = chunk.rows
        at += chunk.n_rows
    found = join_rows(sparse) if sparse else rows
    return found, np.concatenate(weights) if weights else None
