"""Fills a cache of kernels before anybody waits for them, by small fits: they call what large ones do."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from daskcluster.jobs.kernel_targets import STAMP_FILE, settings
from daskcluster.kernels.cache import STAMP

_ROWS, _FEATURES, _MOST_CLUSTERS = 2000, 6, 64


def fill() -> int:
    """Compile what fits call, for the CPU of this process; return how many kernels that were.

    Notes
    -----
    For both dtypes one height of the tile: bounds, mini-batches, streams, coresets, mixtures, sparse rows.
    In float32 all heights for `KMeans` without bounds or with one a row. What else there is, its first fit
    compiles: all heights of all would take ten times the room.
    """
    from daskcluster.kernels.jit import compilations

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few iterations do not converge
        for dtype in (np.float32, np.float64):
            rows = np.random.default_rng(0).random((_ROWS, _FEATURES)).astype(dtype)
            for fit in _fits(rows):
                fit.fit(rows)
            _fit_sparse(rows)
    return compilations()[1]


def _fits(rows: np.ndarray) -> Iterator[Any]:
    import daskcluster as dc

    common: dict[str, Any] = {"random_state": 0, "max_iter": 4}
    for k in _one_of_each_height(rows.dtype) if rows.dtype == np.float32 else (40,):
        for algorithm in ("lloyd", "hamerly"):
            yield dc.KMeans(k, algorithm=algorithm, init=rows[:k], tol=0.0, **common)
    for algorithm in ("elkan", "yinyang"):
        yield dc.KMeans(40, algorithm=algorithm, init=rows[:40], tol=0.0, **common)
    for init in ("k-means++", "k-means||"):
        yield dc.KMeans(8, init=init, n_init=1, **common)
    yield dc.MiniBatchKMeans(8, **common)
    yield dc.NestedMiniBatchKMeans(8, **common)
    yield dc.StreamingKMeans(8, random_state=0)
    yield dc.CoresetKMeans(8, random_state=0)
    yield dc.VariationalGaussianMixture(16, **common)


def _one_of_each_height(dtype: np.dtype[Any]) -> list[int]:
    from daskcluster.kernels.tile import working_tile

    heights = {working_tile(k, dtype).height: k for k in range(_MOST_CLUSTERS, 1, -1)}
    return sorted(heights.values())


def _fit_sparse(rows: np.ndarray) -> None:
    from scipy import sparse

    import daskcluster as dc

    few = sparse.csr_array(np.where(rows > 0.7, rows, 0))
    for init in ("k-means++", "k-means||"):
        dc.KMeans(8, init=init, n_init=1, max_iter=4, random_state=0).fit(few)


def ship(cpu: str, folder: Path) -> None:
    """Fill ``folder/cpu`` with kernels for one of the `CPUS` of `kernel_targets`, in another process.

    Parameters
    ----------
    cpu : str
        One whose code this machine runs: kernels are compiled by calling them.
    folder : Path
    """
    output = folder / cpu
    output.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **settings(cpu), "NUMBA_CACHE_DIR": str(output.resolve())}
    environment.pop("DASKCLUSTER_TILE", None)
    subprocess.run(
        [sys.executable, "-m", "daskcluster", "warm-up", "--json"], env=environment, check=True
    )
    (output / STAMP_FILE).write_text(str(STAMP))
