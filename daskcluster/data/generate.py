"""Synthetic rows of any number, from a seed: written in blocks or generated when read."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.data.writer import ROW_KINDS, RowsShape, RowsWriter
from daskcluster.errors import InvalidParameterError
from daskcluster.events import Event, PassEnded, PassProgress, PassStarted, publish
from daskcluster.randomness import Key
from daskcluster.storage.files import check_space
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
    chunk_rows: int | None = None,
    n_threads: int = 1,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    callbacks: Sequence[Callable[[Event], None]] = (),
) -> Mixture:
    """Write a mixture of Gaussians to a Zarr array (n, d) at `output`, whole or absent.

    Row i does not depend on the number of rows, chunks or threads.

    Parameters
    ----------
    output : str
        Path or URL.
    n_rows, n_features, n_clusters : int
    dtype : {"float16", "float32", "float64"}
    seed : int
    spread : float
        Standard deviation of the centres; clusters have 1.
    chunk_rows : int, optional
        About 8 MB by default.
    n_threads : int
        Chunks made at the same time.
    overwrite : bool
    storage_options : dict, optional
    callbacks : sequence of callable
        Called with `PassStarted`, `PassProgress` and `PassEnded`.

    Returns
    -------
    Mixture
        What the rows were drawn from, with the true labels and centres.

    Notes
    -----
    Cost: no pass; memory is about four chunks per thread, independent of n.
    """
    _check(n_rows=n_rows, n_features=n_features, n_clusters=n_clusters, n_threads=n_threads)
    if dtype not in ("float16", "float32", "float64"):
        raise InvalidParameterError(f"dtype={dtype!r} should be float16, float32 or float64.")
    if chunk_rows is not None:
        _check(chunk_rows=chunk_rows)
    started = time.monotonic()
    mixture = Mixture(n_features, n_clusters, dtype, seed, spread)
    shape = RowsShape(n_rows, n_features, np.dtype(dtype))
    n_bytes = n_rows * n_features * shape.dtype.itemsize
    check_space(output, n_bytes, storage_options=storage_options)
    options: dict[str, Any] = {"overwrite": overwrite, "storage_options": storage_options}
    with Staging.begin(output, kinds=ROW_KINDS, **options) as staging:
        publish(callbacks, PassStarted("generate", n_rows))
        with RowsWriter(staging, shape, chunk_rows=chunk_rows) as writer:
            for rows in _made(mixture, n_rows, writer.chunk_rows, n_threads):
                writer.append(rows)
                publish(callbacks, PassProgress(len(rows)))
        staging.commit(writer.documents())
    publish(callbacks, PassEnded("generate", time.monotonic() - started, 0))
    return mixture


def _made(mixture: Mixture, n_rows: int, step: int, n_threads: int) -> Iterator[np.ndarray]:
    """Yield blocks in order, made by several threads."""
    pending: deque[Future[np.ndarray]] = deque()
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


def _check(**counts: int) -> None:
    for name, value in counts.items():
        if value < 1:
            raise InvalidParameterError(f"{name}={value} should be >= 1.")
