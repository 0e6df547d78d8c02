"""Lloyd iterations of other libraries, called as in their documentation.

A peer takes (rows, first centres, iterations, threads) and returns (centres, iterations): `rows` a
C-contiguous float32 array (n, d), `centres` float32 (k, d), which it must not change. It makes exactly
`iterations` updates, without stopping early. Further peers are given as ``NAME=MODULE:FUNCTION``.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskcluster.errors import InvalidParameterError

Fit = tuple[np.ndarray, int]
Contestant = Callable[[np.ndarray, np.ndarray, int, int], Fit]


def ours(rows: np.ndarray, centres: np.ndarray, iterations: int, threads: int) -> Fit:
    """Fit our k-means with plain Lloyd."""
    model = fit_ours(rows, centres, iterations, threads)
    return model.cluster_centers_, int(model.n_iter_)


def fit_ours(
    rows: Any, centres: np.ndarray, iterations: int, engine: Any, algorithm: str = "lloyd"
) -> Any:
    """Return our fitted estimator; `engine` may be a number of threads of this process."""
    from daskcluster import KMeans, LocalEngine

    model = KMeans(
        len(centres),
        init=centres,
        n_init=1,
        algorithm=algorithm,
        max_iter=iterations,
        tol=0,
        engine=LocalEngine(engine) if isinstance(engine, int) else engine,
    )
    return quietly(model, rows)


def scikit_learn(
    rows: np.ndarray,
    centres: np.ndarray,
    iterations: int,
    threads: int,
    algorithm: str = "lloyd",
) -> Fit:
    """Fit scikit-learn's k-means."""
    from sklearn.cluster import KMeans

    return _limited(_sklearn_like(KMeans, centres, iterations, algorithm), rows, threads)


def intelex(rows: np.ndarray, centres: np.ndarray, iterations: int, threads: int) -> Fit:
    """Fit k-means of scikit-learn-intelex."""
    # The class itself, not `patch_sklearn`: the process also runs scikit-learn's own.
    from sklearnex.cluster import KMeans

    return _limited(_sklearn_like(KMeans, centres, iterations), rows, threads)


def faiss(rows: np.ndarray, centres: np.ndarray, iterations: int, threads: int) -> Fit:
    """Fit Faiss k-means on all rows, without its sampling."""
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
    return np.asarray(kmeans.centroids), iterations


def faiss_super(rows: np.ndarray, centres: np.ndarray, iterations: int, threads: int) -> Fit:
    """Fit Faiss's SuperKMeans on all rows, from rows that it draws."""
    import faiss as library

    library.omp_set_num_threads(threads)
    parameters = library.SuperKMeansParameters()
    parameters.niter, parameters.early_stop_threshold = iterations, 0.0
    parameters.min_points_per_centroid, parameters.max_points_per_centroid = 1, len(rows)
    kmeans = library.SuperKMeans(rows.shape[1], len(centres), parameters)
    kmeans.train(rows)
    return library.vector_to_array(kmeans.centroids).reshape(centres.shape), iterations


def superkmeans(rows: np.ndarray, centres: np.ndarray, iterations: int, threads: int) -> Fit:
    """Fit the k-means of superkmeans on all rows, from rows that it draws."""
    from superkmeans import SuperKMeans

    model = SuperKMeans(
        *centres.shape,
        hierarchical=False,
        iters=iterations,
        sampling_fraction=1.0,
        max_points_per_cluster=len(rows),
        n_threads=threads,
        early_termination=False,
    )
    return np.asarray(model.train(rows)), iterations


def dask_ml(rows: np.ndarray, centres: np.ndarray, iterations: int, threads: int) -> Fit:
    """Fit dask-ml's k-means on `threads` blocks and threads."""
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
    """Fit without warnings: a fixed number of iterations does not converge."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(rows)


PEERS: dict[str, tuple[str, Contestant]] = {
    "scikit-learn": ("sklearn", scikit_learn),
    "scikit-learn-intelex": ("sklearnex", intelex),
    "Faiss": ("faiss", faiss),
    "dask-ml": ("dask_ml", dask_ml),
}
OURS = "daskcluster"


def present(others: Sequence[str] = ()) -> tuple[dict[str, Contestant], list[str]]:
    """Return the installed peers and those of `others`, and notes on missing ones.

    Raises
    ------
    InvalidParameterError
        One of `others` cannot be found.
    """
    found, notes = {}, []
    for name, (module, contestant) in PEERS.items():
        try:
            importlib.import_module(module)
        except ImportError as error:
            notes.append(f'{name} is skipped ({error}); pip install "daskcluster[benchmark]"')
        else:
            found[name] = contestant
    return found | dict(map(adapter, others)), notes


def adapter(text: str) -> tuple[str, Contestant]:
    """Return the name and the function of ``NAME=MODULE:FUNCTION``; the module may be in this folder.

    Raises
    ------
    InvalidParameterError
    """
    match = re.fullmatch(r"([^=]+)=([\w.]+):(\w+)", text)
    if match is None:
        raise InvalidParameterError(
            f"peer {text!r} should be NAME=MODULE:FUNCTION, for example mine=my_library_bench:fit."
        )
    name, module, function = match.groups()
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return name, getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise InvalidParameterError(
            f"peer {text!r} cannot be loaded ({error}); expected a module that can be imported from here "
            "with a function (rows, centres, iterations, threads) -> (centres, iterations)."
        ) from error
