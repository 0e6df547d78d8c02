"""Synthetic rows of any number, dense or sparse, from a seed: written in blocks or generated when read."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daskcluster.data.writer import ROW_KINDS, RowsShape, RowsWriter
from daskcluster.elementary import exp, log1p
from daskcluster.errors import InvalidParameterError
from daskcluster.events import Event, PassEnded, PassProgress, PassStarted, publish
from daskcluster.randomness import Key
from daskcluster.sparse_rows import INDEX_DTYPE, Rows, SparseRows, join_rows
from daskcluster.storage.files import check_space
from daskcluster.storage.staging import Staging

_BLOCK_ROWS = 8192
"""Rows that share a stream of random numbers; fixed, so that no chunking changes a row."""
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
        # By how much each cluster's ranking is turned against that of all.
        topics = Key(self.seed, "sparse-topics").generator()
        shift = topics.integers(0, self.n_features, self.n_clusters)[labels][:, None]
        columns = (np.minimum(rank, self.n_features - 1) + own * shift) % self.n_features
        return _merged(columns, values, self.n_features).normalized().astype(self.dtype)


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
class Mixture:
    """Rows drawn from `k` spherical Gaussians of unit variance, a function of seed and row index.

    Parameters
    ----------
    n_features, n_clusters : int
    dtype : str
        float16, float32 or float64.
    seed : int
    spread : float
        Standard deviation of the centres in units of a cluster's own.

    Examples
    --------
    >>> mixture = Mixture(n_features=3, n_clusters=5)
    >>> bool((mixture.rows(0, 20)[10:] == mixture.rows(10, 20)).all())
    True
    """

    n_features: int
    n_clusters: int
    dtype: str = "float32"
    seed: int = 0
    spread: float = 10.0

    def centres(self) -> np.ndarray:
        """Return the true centres (k, d), float64."""
        drawn = Key(self.seed, "mixture-centres").generator()
        return self.spread * drawn.standard_normal((self.n_clusters, self.n_features))

    def labels(self, start: int, stop: int) -> np.ndarray:
        """Return the true cluster of rows `start` to `stop`, int32."""
        uniforms = Key(self.seed, "mixture-labels").uniforms(start, stop)
        return np.minimum(uniforms * self.n_clusters, self.n_clusters - 1).astype(np.int32)

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return rows `start` to `stop`, shape (stop - start, d)."""
        parts = [
            self._noise(block)[max(start - block * _BLOCK_ROWS, 0) : stop - block * _BLOCK_ROWS]
            for block in range(start // _BLOCK_ROWS, -(-stop // _BLOCK_ROWS))
        ]
        rows = np.concatenate(parts)
        rows += self.centres().astype(rows.dtype)[self.labels(start, stop)]
        return rows.astype(self.dtype, copy=False)

    def _noise(self, block: int) -> np.ndarray:
        drawn = Key(self.seed, "mixture-noise", block).generator()
        dtype: Any = np.float64 if self.dtype == "float64" else np.float32
        return drawn.standard_normal((_BLOCK_ROWS, self.n_features), dtype=dtype)


def generate(
    output: Any,
    *,
    n_rows: int,
    n_features: int,
    n_clusters: int,
    dtype: str = "float32",
    seed: int = 0,
    spread: float = 10.0,
    sparse: bool = False,
    n_nonzeros: int = 76,
    chunk_rows: int | None = None,
    n_threads: int = 1,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    callbacks: Sequence[Callable[[Event], None]] = (),
) -> Mixture | SparseMixture:
    """Write a mixture of Gaussians to a Zarr array (n, d) at `output`, whole or absent.

    Row i does not depend on the number of rows, chunks or threads.

    Parameters
    ----------
    output : str
        Path or URL.
    n_rows, n_features, n_clusters : int
    dtype : {"float16", "float32", "float64"}
        Not float16 for sparse rows.
    seed : int
    spread : float
        Standard deviation of the centres; clusters have 1. Of no meaning for sparse rows.
    sparse : bool
        Write CSR rows of length one instead, with columns after Zipf's law; see
        `daskcluster.data.generate.SparseMixture`.
    n_nonzeros : int
        About how many values a sparse row stores.
    chunk_rows : int, optional
        About 8 MB by default; chunks of sparse rows are cut by values.
    n_threads : int
        Chunks made at the same time.
    overwrite : bool
    storage_options : dict, optional
    callbacks : sequence of callable
        Called with `PassStarted`, `PassProgress` and `PassEnded`.

    Returns
    -------
    Mixture or SparseMixture
        What the rows were drawn from, with the true labels (and centres, where those are Gaussian).

    Notes
    -----
    Cost: no pass; memory is about four chunks per thread, independent of n.
    """
    _check(n_rows=n_rows, n_features=n_features, n_clusters=n_clusters, n_threads=n_threads)
    _check_kind(dtype, sparse, n_nonzeros, chunk_rows)
    if chunk_rows is not None:
        _check(chunk_rows=chunk_rows)
    started = time.monotonic()
    mixture: Mixture | SparseMixture = Mixture(n_features, n_clusters, dtype, seed, spread)
    shape = RowsShape(n_rows, n_features, np.dtype(dtype))
    if sparse:
        mixture = SparseMixture(n_features, n_clusters, n_nonzeros, dtype, seed)
        shape = replace(shape, n_entries=n_rows * n_nonzeros)
    else:
        n_bytes = n_rows * n_features * shape.dtype.itemsize
        check_space(output, n_bytes, storage_options=storage_options)
    options: dict[str, Any] = {"overwrite": overwrite, "storage_options": storage_options}
    with Staging.begin(output, kinds=ROW_KINDS, **options) as staging:
        publish(callbacks, PassStarted("generate", n_rows))
        with RowsWriter(staging, shape, chunk_rows=chunk_rows) as writer:
            step = _BLOCK_ROWS if sparse else writer.chunk_rows
            for rows in _made(mixture, n_rows, step, n_threads):
                writer.append(rows)
                publish(callbacks, PassProgress(len(rows)))
        staging.commit(writer.documents())
    publish(callbacks, PassEnded("generate", time.monotonic() - started, 0))
    return mixture


def _made(
    mixture: Mixture | SparseMixture, n_rows: int, step: int, n_threads: int
) -> Iterator[Rows]:
    """Yield blocks in order, made by several threads."""
    pending: deque[Future[Rows]] = deque()
    pool = ThreadPoolExecutor(n_threads, thread_name_prefix="daskcluster-generate")
    try:
        for start in range(0, n_rows, step):
            pending.append(pool.submit(mixture.rows, start, min(start + step, n_rows)))
            if len(pending) > n_threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _check_kind(dtype: str, sparse: bool, n_nonzeros: int, chunk_rows: int | None) -> None:
    known = ("float32", "float64") if sparse else ("float16", "float32", "float64")
    if dtype not in known:
        raise InvalidParameterError(f"dtype={dtype!r} should be {' or '.join(known)}.")
    if sparse and chunk_rows is not None:
        raise InvalidParameterError(
            f"chunk_rows={chunk_rows} is for dense rows; the chunks of sparse rows are cut by values, "
            "leave it out."
        )
    _check(n_nonzeros=n_nonzeros)


def _check(**counts: int) -> None:
    for name, value in counts.items():
        if value < 1:
            raise InvalidParameterError(f"{name}={value} should be >= 1.")
