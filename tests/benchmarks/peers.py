"""Lloyd iterations of other libraries, each called as its own documentation says.

A contestant takes (rows, first centres, iterations, threads) and returns (centres, iterations).
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

Fit = tuple[np.ndarray, int]
Contestant = Callable[[np.ndarray, np.ndarray, int, int], Fit]


def ours(rows: np.ndarray, centres: np.ndarray, iterations: int, threads: int) -> Fit:
    model = fit_ours(rows, centres, iterations, threads)
    return model.cluster_centers_, int(model.n_iter_)


def fit_ours(
    rows: Any, centres: np.ndarray, iterations: int, threads: int, algorithm: str = "lloyd"
) -> Any:
    """Return our fitted estimator."""
    from daskcluster import KMeans, LocalEngine

    model = KMeans(
        len(centres),
        init=centres,
        n_init=1,
        algorithm=algorithm,
        max_iter=iterations,
        tol=0,
        engine=LocalEngine(threads),
    )
    return quietly(model, rows)


def scikit_learn(
    rows: np.ndarray,
    centres: np.ndarray,
    iterations: int,
    threads: int,
    algorithm: str = "lloyd",
) -> Fit:
    from sklearn.cluster import KMeans

    return _limited(_sklearn_like(KMeans, centres, iterations, algorithm), rows, threads)


def intelex(rows: np.ndarray, centres: np.ndarray, iterations: int, threads: int) -> Fit:
    # The class itself, not `patch_sklearn`: the process also runs scikit-learn's own.
    from sklearnex.cluster import KMeans

    return _limited(_sklearn_like(KMeans, centres, iterations), rows, threads)


def faiss(rows: np.ndarray, centres: np.ndarray, iterations: int, threads: int) -> Fit:
    import faiss as library

    library.omp_set_num_threads(threads)
    kmeans = library.Kmeans(
        rows.shape[1],
        len(centres),
        niter=iterations,
        min_points_per_centroid=1,
        max_points_per_centroid=len(rows),
    )
    kmeans.train(rows, init_centroids=centres)
    return kmeans.centroids, iterations


def dask_ml(rows: np.ndarray, centres: np.ndarray, iterations: int, threads: int) -> Fit:
    import dask
    import dask.array
    from dask_ml.cluster import KMeans

    blocks = dask.array.from_array(rows, chunks=(-(-len(rows) // threads), -1))
    with dask.config.set(scheduler="threads", num_workers=threads):
        model = KMeans(len(centres), init=centres.copy(), max_iter=iterations, tol=0)
        return _limited(model, blocks, 1)


def _sklearn_like(kind: Any, centres: np.ndarray, iterations: int, algorithm: str = "lloyd") -> Any:
    return kind(
        len(centres), init=centres, n_init=1, max_iter=iterations, tol=0, algorithm=algorithm
    )


def _limited(model: Any, rows: Any, threads: int) -> Fit:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(threads):
        quietly(model, rows)
    return np.asarray(model.cluster_centers_), int(model.n_iter_)


def quietly(model: Any, rows: Any) -> Any:
    """Fit without "did not converge": that is what was asked for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(rows)


PEERS: dict[str, tuple[str, Contestant]] = {
    "scikit-learn": ("sklearn", scikit_learn),
    "scikit-learn-intelex": ("sklearnex", intelex),
    "Faiss": ("faiss", faiss),
    "dask-ml": ("dask_ml", dask_ml),
}


def present() -> tuple[dict[str, Contestant], list[str]]:
    """Return the peers that can be imported, and notes on those that cannot."""
    found, notes = {}, []
    for name, (module, contestant) in PEERS.items():
        try:
            importlib.import_module(module)
        except ImportError as error:
            notes.append(f'{name} is skipped ({error}); pip install "daskcluster[benchmark]"')
        else:
            found[name] = contestant
    return found, notes
