"""Rates of passes over rows in memory, and of reading stored rows, on one thread."""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskcluster import open_dataset
from daskcluster.data.generate import Mixture, generate
from daskcluster.engine.local import LocalEngine, default_threads
from daskcluster.events import Event, PassEnded
from daskcluster.methods.coreset.estimator import LightweightCoreset
from daskcluster.methods.kmeans.estimator import KMeans
from daskcluster.methods.mixture.estimator import VariationalGaussianMixture
from tests.benchmarks.scaling.model.least_squares import largest_error, solve_rates
from tests.benchmarks.scaling.model.rates import KernelRate

Shape = tuple[int, int, int]
"""Shapes as n, d, k."""
NEAREST: tuple[Shape, ...] = (
    (400_000, 8, 16), (200_000, 16, 50), (100_000, 32, 100), (20_000, 784, 50), (20_000, 128, 1000),
    (4_000, 1536, 500),
)  # fmt: skip
TRUNCATED: tuple[Shape, ...] = ((60_000, 16, 500), (30_000, 64, 500), (10_000, 256, 500))
SCAN: tuple[Shape, ...] = ((1_000_000, 8, 1), (250_000, 64, 1), (20_000, 1024, 1))
TOGETHER: Shape = (60_000, 128, 500)
SMALL = 20
"""The first call of each kind, which compiles, has fewer rows by this factor."""
_ITERATIONS = 5
_STORED_BYTES = 128 << 20


def nearest_rate(shapes: Sequence[Shape] = NEAREST) -> tuple[KernelRate, float]:
    """Return the rate of a Lloyd pass, and its largest error over shapes."""
    counts = [(float(n) * d * k, float(n) * d, float(n)) for n, d, k in shapes]
    seconds = [_lloyd_seconds(*shape) for shape in shapes]
    found = solve_rates(counts, seconds)
    return KernelRate(*found.tolist()), largest_error(counts, seconds, found)


def truncated_rate(shapes: Sequence[Shape] = TRUNCATED) -> tuple[KernelRate, float]:
    """Return the rate of a pass of truncated EM; products count in the cost of a feature."""
    seconds = [_em_seconds(*shape) for shape in shapes]
    return _without_products(shapes, seconds)


def scan_rate(shapes: Sequence[Shape] = SCAN) -> tuple[KernelRate, float]:
    """Return the mean rate of the two passes of a coreset."""
    seconds = [_coreset_seconds(n, d) / 2 for n, d, _ in shapes]
    return _without_products(shapes, seconds)


def decode_rate(n_bytes: int = _STORED_BYTES) -> float:
    """Return the CPU seconds per byte read from a file in the file cache."""
    mixture = Mixture(n_features=64, n_clusters=16)
    with tempfile.TemporaryDirectory(prefix="daskcluster-calibrate-") as folder:
        path = os.path.join(folder, "rows.zarr")
        n_rows = n_bytes // (4 * mixture.n_features)
        generate(path, n_rows=n_rows, n_features=mixture.n_features, n_clusters=mixture.n_clusters)
        dataset = open_dataset(path)
        return min(_read_seconds(dataset) for _ in range(3)) / (n_rows * 4 * mixture.n_features)


def together_rate(shape: Shape = TOGETHER) -> float:
    """Return the slow-down of a core when all are busy with threads of one process."""
    n, d, k = shape
    cores = default_threads()
    if cores == 1:
        return 1.0
    return max(1.0, cores * _lloyd_seconds(n, d, k, cores) / _lloyd_seconds(n, d, k))


def _without_products(
    shapes: Sequence[Shape], seconds: Sequence[float]
) -> tuple[KernelRate, float]:
    counts = [(float(n) * d, float(n)) for n, d, _ in shapes]
    found = solve_rates(counts, seconds)
    return KernelRate(0.0, *found.tolist()), largest_error(counts, seconds, found)


def _read_seconds(dataset: Any) -> float:
    began = time.process_time()
    for chunk in dataset.chunks(dataset.partitions):
        del chunk
    return time.process_time() - began


def _lloyd_seconds(n: int, d: int, k: int, n_threads: int = 1) -> float:
    def fit(rows: np.ndarray) -> Any:
        model = KMeans(
            k, init=rows[:k], n_init=1, algorithm="lloyd", max_iter=_ITERATIONS, tol=0.0,
            engine=LocalEngine(n_threads),
        )  # fmt: skip
        return model.fit(rows)

    return _iteration_seconds(fit, n, d, k)


def _em_seconds(n: int, d: int, k: int) -> float:
    def fit(rows: np.ndarray) -> Any:
        model = VariationalGaussianMixture(
            k, init=rows[:k], max_iter=_ITERATIONS, tol=0.0, engine=LocalEngine(1), random_state=0
        )
        return model.fit(rows)

    return _iteration_seconds(fit, n, d, k)


def _iteration_seconds(fit: Callable[[np.ndarray], Any], n: int, d: int, k: int) -> float:
    """Return the seconds of the fastest iteration after the first, which also computes data statistics."""
    rows = _rows(n, d)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it does not converge, and should not
        fit(rows[: max(n // SMALL, 2 * k)])
        return min(float(record["seconds"]) for record in fit(rows).history_[1:])


def _coreset_seconds(n: int, d: int) -> float:
    """Return the seconds of both passes."""
    passes: list[float] = []

    def hear(event: Event) -> None:
        if isinstance(event, PassEnded):
            passes.append(event.seconds)

    rows, best = _rows(n, d), float("inf")
    for _ in range(3):
        passes.clear()
        engine = LocalEngine(1)
        LightweightCoreset(n // 50, random_state=0, engine=engine, callbacks=(hear,)).fit(rows)
        best = min(best, sum(passes))
    return best


def _rows(n: int, d: int) -> np.ndarray:
    return Mixture(n_features=d, n_clusters=32, spread=1.0).rows(0, n)
