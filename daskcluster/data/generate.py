"""Synthetic rows of any number: a seeded mixture, of Gaussians or of topics, written chunk by chunk."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.data.generate_sparse import SparseMixture, fill_sparse
from daskcluster.data.writer import StagedArray, array_metadata, good_chunk_rows
from daskcluster.errors import InvalidParameterError
from daskcluster.events import Event, PassEnded, PassProgress, PassStarted, publish
from daskcluster.randomness import Key
from daskcluster.storage.staging import Staging

_BLOCK_ROWS = 8192
"""Rows that share a stream of random numbers; fixed, so that no chunking changes a row."""


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

    Row i is the same whatever the number of rows, chunks or threads.

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
        `daskcluster.data.generate_sparse.SparseMixture`.
    n_nonzeros : int
        Of a sparse row, about.
    chunk_rows : int, optional
        About 8 MB by default; chunks of sparse rows are cut by values.
    n_threads : int
        Chunks made at the same time.
    overwrite : bool
    storage_options : dict, optional
    callbacks : sequence of callable
        Hear `PassStarted`, `PassProgress` and `PassEnded`.

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
    step = chunk_rows or good_chunk_rows(n_features * np.dtype(dtype).itemsize, n_rows)
    _check(chunk_rows=step)
    begun = time.monotonic()
    mixture: Mixture | SparseMixture
    options: dict[str, Any] = {"overwrite": overwrite, "storage_options": storage_options}
    with Staging.begin(output, kinds=("array", "group"), **options) as staging:
        publish(callbacks, PassStarted("generate", n_rows))
        if sparse:
            mixture = SparseMixture(n_features, n_clusters, n_nonzeros, dtype, seed)
            documents = fill_sparse(staging, mixture, n_rows, n_threads, callbacks)
        else:
            mixture = Mixture(n_features, n_clusters, dtype, seed, spread)
            metadata = array_metadata((n_rows, n_features), step, dtype)
            array = StagedArray(staging.work, "", metadata, step)
            _fill(array, mixture, n_rows, n_threads, callbacks)
            documents = array.document()
        staging.commit(documents)
    publish(callbacks, PassEnded("generate", time.monotonic() - begun, 0))
    return mixture


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


def _fill(
    array: StagedArray,
    mixture: Mixture,
    n_rows: int,
    n_threads: int,
    callbacks: Sequence[Callable[[Event], None]],
) -> None:
    def make(start: int) -> int:
        stop = min(start + array.block_rows, n_rows)
        array.write(start, mixture.rows(start, stop))
        return stop - start

    pending: deque[Future[int]] = deque()
    pool = ThreadPoolExecutor(n_threads, thread_name_prefix="daskcluster-generate")
    try:
        for start in range(0, n_rows, array.block_rows):
            pending.append(pool.submit(make, start))
            if len(pending) > n_threads:
                publish(callbacks, PassProgress(pending.popleft().result()))
        while pending:
            publish(callbacks, PassProgress(pending.popleft().result()))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
