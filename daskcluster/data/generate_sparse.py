"""Synthetic sparse rows of any number: seeded bags of words, of length one, written block by block."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.data.sparse_write import CsrWriter
from daskcluster.elementary import exp, log1p
from daskcluster.events import Event, PassProgress, publish
from daskcluster.randomness import Key
from daskcluster.sparse_rows import INDEX_DTYPE, SparseRows, join_rows
from daskcluster.storage.staging import Staging

_BLOCK_ROWS = 8192
"""Rows that share a stream of random numbers; fixed, so that no block of output changes a row."""
_OWN_WORDS = 0.5
"""Share of a row's draws that come from its own cluster's words, not from those of all."""


@dataclass(frozen=True)
class SparseMixture:
    """Rows drawn from `k` topics over `d` columns, a function of seed and row index.

    Columns follow Zipf's law: the r-th most frequent one is drawn in proportion to 1 / r. Half of a row's
    draws are ranked as all rows rank them, half as its own cluster does. Values are log-normal, a column
    drawn twice has their sum, and a row has length one.

    Parameters
    ----------
    n_features, n_clusters : int
    n_nonzeros : int
        Draws of a row; columns that are drawn twice leave it fewer values.
    dtype : str
        float32 or float64.
    seed : int

    Examples
    --------
    >>> mixture = SparseMixture(n_features=1000, n_clusters=5, n_nonzeros=20)
    >>> rows = mixture.rows(10, 20)
    >>> rows.shape, bool((rows.toarray() == mixture.rows(0, 20)[10:].toarray()).all())
    ((10, 1000), True)
    """

    n_features: int
    n_clusters: int
    n_nonzeros: int = 76
    dtype: str = "float32"
    seed: int = 0

    def labels(self, start: int, stop: int) -> np.ndarray:
        """Return the true cluster of rows `start` to `stop`, int32."""
        uniforms = Key(self.seed, "sparse-labels").uniforms(start, stop)
        return np.minimum(uniforms * self.n_clusters, self.n_clusters - 1).astype(np.int32)

    def rows(self, start: int, stop: int) -> SparseRows:
        """Return rows `start` to `stop`."""
        parts = [
            self._block(block)[max(start - block * _BLOCK_ROWS, 0) : stop - block * _BLOCK_ROWS]
            for block in range(start // _BLOCK_ROWS, -(-stop // _BLOCK_ROWS))
        ]
        found = join_rows(parts)
        assert isinstance(found, SparseRows)
        return found

    def _block(self, block: int) -> SparseRows:
        generator = Key(self.seed, "sparse-rows", block).generator()
        shape = (_BLOCK_ROWS, self.n_nonzeros)
        # Inverse CDF of the density 1 / r on [1, d + 1): its logarithm is uniform.
        rank = exp(generator.random(shape) * log1p(self.n_features)).astype(np.int64) - 1
        own = generator.random(shape) < _OWN_WORDS
        values = generator.lognormal(sigma=0.5, size=shape)
        labels = self.labels(block * _BLOCK_ROWS, (block + 1) * _BLOCK_ROWS)
        shift = self._shifts()[labels][:, None]
        columns = (np.minimum(rank, self.n_features - 1) + own * shift) % self.n_features
        return _merged(columns, values, self.n_features).unit().astype(self.dtype)

    def _shifts(self) -> np.ndarray:
        """Return by how much each cluster's ranking is turned against that of all."""
        generator = Key(self.seed, "sparse-topics").generator()
        return generator.integers(0, self.n_features, self.n_clusters)


def _merged(columns: np.ndarray, values: np.ndarray, n_features: int) -> SparseRows:
    """Return rows of unordered columns, drawn more than once perhaps, as CSR."""
    order = np.argsort(columns, axis=1, kind="stable")
    columns = np.take_along_axis(columns, order, axis=1)
    values = np.take_along_axis(values, order, axis=1)
    is_first = np.ones(columns.shape, bool)
    is_first[:, 1:] = columns[:, 1:] != columns[:, :-1]
    firsts = np.flatnonzero(is_first)
    return SparseRows(
        np.add.reduceat(values.ravel(), firsts),
        columns.ravel()[firsts].astype(INDEX_DTYPE),
        np.concatenate([[0], np.cumsum(is_first.sum(axis=1))]).astype(np.int64),
        n_features,
    )


@dataclass(frozen=True)
class _Shape:
    n_rows: int
    n_features: int
    dtype: np.dtype[Any]
    n_entries: int


def fill_sparse(
    staging: Staging,
    mixture: SparseMixture,
    n_rows: int,
    n_threads: int,
    callbacks: Sequence[Callable[[Event], None]],
) -> dict[str, bytes]:
    """Write rows to a CSR group; return the metadata that publishes it."""
    dtype = np.dtype(mixture.dtype)
    shape = _Shape(n_rows, mixture.n_features, dtype, n_rows * mixture.n_nonzeros)
    with CsrWriter(staging, "", shape) as writer:
        for rows in _made(mixture, n_rows, n_threads):
            writer.append(rows)
            publish(callbacks, PassProgress(len(rows)))
    return writer.documents()


def _made(mixture: SparseMixture, n_rows: int, n_threads: int) -> Iterator[SparseRows]:
    """Yield blocks in order, made by several threads."""
    pending: deque[Future[SparseRows]] = deque()
    pool = ThreadPoolExecutor(n_threads, thread_name_prefix="daskcluster-generate")
    try:
        for start in range(0, n_rows, _BLOCK_ROWS):
            pending.append(pool.submit(mixture.rows, start, min(start + _BLOCK_ROWS, n_rows)))
            if len(pending) > n_threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
