"""Small fits of every family, whose results have the same bits on every machine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zarr

import daskcluster as dc
from tests.digests.rows import bells, csr, rows, weights, whole

Results = dict[str, Any]

_ATTRIBUTES = (
    "cluster_centers_ means_ coarse_centers_ quotas_ weights_ covariances_ component_weights_ labels_ "
    "inertia_ lower_bound_ n_iter_ n_steps_ stop_reason_ counts_ cluster_sizes_ cluster_weights_ "
    "cluster_costs_ cluster_births_ start_inertias_ gamma_ support_ support_clusters_ "
    "support_coefficients_ indices_ mean_ total_weight_ spread_ remembered_"
).split()
"""Compared attributes of estimators; counts of bytes and distances depend on the tile."""

FITS: dict[str, Callable[[], Results]] = {}
"""Functions that return their results by name."""


def learnt(model: Any) -> Results:
    """Return the fitted attributes of an estimator."""
    found = {name: getattr(model, name) for name in _ATTRIBUTES if hasattr(model, name)}
    coreset = getattr(model, "coreset_", None)
    if coreset is not None:
        found["coreset_"] = coreset.to_numpy()
        found["coreset weights"] = coreset.weights
    return found


def _fit(name: str, model: Callable[[], Any], X: Callable[[], Any], weighted: bool = False) -> None:
    """Register a fit; its data are created when it runs."""

    def run() -> Results:
        source = X()
        w = weights(source.shape[0]) if weighted else None
        return learnt(model().set_params(random_state=3).fit(source, sample_weight=w))

    FITS[name] = run


def _entry(function: Callable[[], Results]) -> Callable[[], Results]:
    FITS[function.__name__.strip("_").replace("_", "-")] = function
    return function


def _f4(n: int = 2000, d: int = 9) -> Callable[[], Any]:
    return lambda: rows(n, d)


def _f8(n: int = 2000, d: int = 9) -> Callable[[], Any]:
    return lambda: rows(n, d, "f8")


def _csr(dtype: str, n: int = 1500, d: int = 40) -> Callable[[], Any]:
    return lambda: csr(n, d, dtype)


def _kmeans(k: int, algorithm: str = "lloyd", **parameters: Any) -> Callable[[], Any]:
    parameters = {"max_iter": 30, **parameters}
    return lambda: dc.KMeans(k, algorithm=algorithm, **parameters)


# K-means: every algorithm and every seeding; numbers of centres that leave panels unfilled.
_fit("kmeans-lloyd-f4", _kmeans(13), _f4())
_fit("kmeans-lloyd-f8", _kmeans(17), _f8())
_fit("kmeans-auto-weights-f4", _kmeans(23, "auto"), _f4(3000), weighted=True)
_fit("kmeans-hamerly-f8", _kmeans(31, "hamerly"), _f8())
_fit("kmeans-yinyang-f4", _kmeans(85, "yinyang"), _f4(3000, 16))
_fit("kmeans-yinyang-weights-f8", _kmeans(26, "yinyang"), _f8(2000, 21), weighted=True)
_fit("kmeans-elkan-f4", _kmeans(7, "elkan"), _f4(1500, 70))
_fit("kmeans-elkan-f8", _kmeans(9, "elkan"), _f8(1500, 33))
_fit("kmeans-cosine-f4", _kmeans(12, metric="cosine"), _f4())
_fit("kmeans-cosine-f8", _kmeans(11, "auto", metric="cosine"), _f8(), weighted=True)
_fit("kmeans-parallel-f8", _kmeans(10, init="k-means||"), _f8(), weighted=True)
_fit("kmeans-afkmc2-f4", _kmeans(10, init="afk-mc2", tol=0), _f4())
_fit("kmeans-plusplus-weights-f8", _kmeans(10, init="k-means++"), _f8(), weighted=True)
_fit("kmeans-random-starts-f4", _kmeans(8, init="random", n_init=3), _f4(), weighted=True)
_fit("kmeans-many-centres-f4", _kmeans(450, init="random", max_iter=4), _f4(4000, 3))
_fit("kmeans-wide-f4", _kmeans(14, max_iter=8), _f4(800, 301))
_fit("kmeans-one-cluster-f4", _kmeans(1), _f4(700, 5))
_fit("kmeans-sparse-f4", _kmeans(13), _csr("f4"))
_fit("kmeans-sparse-weights-f8", _kmeans(9, "auto"), _csr("f8"), weighted=True)
_fit("kmeans-sparse-cosine-f4", _kmeans(9, metric="cosine"), _csr("f4"))
_fit("kmeans-integers", _kmeans(9), lambda: (4.0 * rows(2000, 9)).astype(np.int16))
_fit("kmeans-far-from-the-origin-f8", _kmeans(9), lambda: rows(2000, 4, "f8") + 1e6)


@_entry
def _kmeans_empty_clusters_f8() -> Results:
    X = rows(1200, 6, "f8")
    start = np.repeat(X[:3], 4, axis=0)  # of centres that are equal all but one lose their rows
    return learnt(dc.KMeans(12, init=start, algorithm="lloyd", max_iter=20).fit(X))


@_entry
def _kmeans_out_of_core_f4() -> Results:
    X = rows(3000, 9)
    with tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder) / "rows.zarr")
        zarr.create_array(place, data=np.array(X), chunks=(700, 4))
        model = dc.KMeans(19, init="k-means||", max_iter=30, random_state=3).fit(place)
        return learnt(model)


@_entry
def _kmeans_scaled_f8() -> Results:
    scaled = dc.open_dataset(rows(2000, 9, "f8"), scale="standard")
    return learnt(dc.KMeans(9, random_state=3, max_iter=30).fit(scaled))


# The other k-means.
def _mini(**parameters: Any) -> Callable[[], Any]:
    return lambda: dc.MiniBatchKMeans(10, batch_size=200, max_iter=4, **parameters)


_fit("mini-batch-f4", _mini(), _f4(), weighted=True)
_fit("mini-batch-sqrt-f8", _mini(learning_rate="sqrt"), _f8())
_fit("mini-batch-cosine-f4", _mini(metric="cosine"), _f4())
_fit("mini-batch-sparse-f4", _mini(), _csr("f4"))
_fit("sgd-f8", lambda: dc.MiniBatchKMeans(10, batch_size=1, max_iter=2), _f8())
_fit("nested-f4", lambda: dc.NestedMiniBatchKMeans(17, batch_size=300), _f4(4000))
_fit("nested-weights-f8", lambda: dc.NestedMiniBatchKMeans(12, batch_size=300), _f8(), True)
_fit("vrkm-f4", lambda: dc.VarianceReducedKMeans(9, variant="vrkm", max_iter=4), _f4())
_fit("vrkm++-weights-f8", lambda: dc.VarianceReducedKMeans(9, max_iter=4), _f8(), weighted=True)
_fit("vrkm++-sparse-f8", lambda: dc.VarianceReducedKMeans(9, max_iter=4), _csr("f8"))
_fit("backward-euler-f4", lambda: dc.BackwardEulerKMeans(9, batch_size=400, max_iter=15), _f4())
_fit(
    "backward-euler-weights-f8",
    lambda: dc.BackwardEulerKMeans(9, batch_size=400, max_iter=15, n_init=3),
    _f8(),
    weighted=True,
)
_fit("coreset-f4", lambda: dc.CoresetKMeans(9, coreset_size=400), _f4(4000), weighted=True)
_fit("lightweight-coreset-f8", lambda: dc.LightweightCoreset(300), _f8(4000), weighted=True)
_fit("hierarchical-f4", lambda: dc.HierarchicalKMeans(90, n_coarse=8), _f4(4000))
_fit("hierarchical-f8", lambda: dc.HierarchicalKMeans(40, n_coarse=5), _f8(), weighted=True)


def _streamed(model: dc.StreamingKMeans, X: np.ndarray) -> Results:
    for first in range(0, len(X), 900):  # not the size of any leaf
        model.partial_fit(X[first : first + 900])
    return learnt(model)


@_entry
def _streaming_f4() -> Results:
    model = dc.StreamingKMeans(8, coreset_size=300, half_life=1500, random_state=3)
    return _streamed(model, rows(4000, 9))


@_entry
def _streaming_window_f8() -> Results:
    model = dc.StreamingKMeans(8, coreset_size=300, window=2000, random_state=3)
    return _streamed(model, rows(4000, 9, "f8"))


# Kernels.
def _kernel(kernel: str, **parameters: Any) -> Callable[[], Any]:
    return lambda: dc.KernelKMeans(5, kernel=kernel, max_iter=6, **parameters)


def _mini_kernel(kernel: str, **parameters: Any) -> Callable[[], Any]:
    parameters = {"batch_size": 200, "max_iter": 10, "truncation": 80, **parameters}
    return lambda: dc.MiniBatchKernelKMeans(5, kernel=kernel, **parameters)


_fit("kernel-rbf-f4", _kernel("rbf"), _f4(900), weighted=True)
_fit("kernel-rbf-f8", _kernel("rbf", init="random"), _f8(900))
_fit("kernel-laplacian-f8", _kernel("laplacian"), _f8(900))
_fit("kernel-polynomial-f4", _kernel("polynomial", gamma=0.01), _f4(900))
_fit("kernel-cosine-f8", _kernel("cosine"), _f8(900))
_fit("kernel-sparse-f4", _kernel("rbf"), _csr("f4", 700))
_fit("kernel-knn-f8", _kernel("knn"), _f8(700))
_fit("kernel-heat-f8", _kernel("heat"), _f8(700))
_fit("mini-batch-kernel-f4", _mini_kernel("rbf"), _f4(), weighted=True)
_fit("mini-batch-kernel-f8", _mini_kernel("laplacian", learning_rate="count"), _f8())
_fit("mini-batch-kernel-knn-f8", _mini_kernel("knn"), _f8(700), weighted=True)
_fit("mini-batch-kernel-heat-f8", _mini_kernel("heat", heat_time=8.0, truncation=None), _f8(700))


# Mixtures.
@_entry
def _mixture_isotropic_f4() -> Results:
    return _mixture("isotropic", rows(2500, 9))


@_entry
def _mixture_spherical_weights_f8() -> Results:
    return _mixture("spherical", rows(2500, 9, "f8"), weights(2500))


@_entry
def _mixture_diag_f4() -> Results:
    return _mixture("diag", rows(2500, 9), n_random=2, search="row")


@_entry
def _mixture_diag_f8() -> Results:
    return _mixture("diag", rows(2500, 9, "f8"), truncation=12)


@_entry
def _mixture_tied_f4() -> Results:
    return _mixture("tied", rows(2500, 9))


@_entry
def _mixture_full_f4() -> Results:
    return _mixture("full", rows(2500, 9), n_random=2)


@_entry
def _mixture_full_weights_f8() -> Results:
    return _mixture("full", rows(2500, 9, "f8"), weights(2500), truncation=12)


@_entry
def _mixture_coreset_f8() -> Results:
    return _mixture("isotropic", rows(4000, 9, "f8"), coreset_size=500)


def _mixture(
    covariance_type: str, X: np.ndarray, w: np.ndarray | None = None, **parameters: Any
) -> Results:
    model = dc.VariationalGaussianMixture(
        12, covariance_type=covariance_type, max_iter=12, random_state=3, **parameters
    ).fit(X, sample_weight=w)
    few = X[:200]
    scores = {"score_samples": model.score_samples(few), "bic": model.bic(few)}
    return {**learnt(model), **scores, "predict_proba": model.predict_proba(few).toarray()}


# Seeding alone, and what is asked of rows and labels.
@_entry
def _seeding_f8() -> Results:
    X, w = rows(3000, 9, "f8"), weights(3000)
    found: Results = {}
    for function in (dc.kmeans_plusplus, dc.kmeans_parallel, dc.afk_mc2):
        drawn = function(X, 20, sample_weight=w, random_state=3)
        for number, array in enumerate(drawn if isinstance(drawn, tuple) else (drawn,)):
            found[f"{function.__name__} {number}"] = array
    return found


def _asked(X: Any, centres: np.ndarray) -> Results:
    model = dc.KMeans(len(centres), init=centres, max_iter=0).fit(X)
    labels, distances = model.predict(X, n_nearest=4, return_distance=True)
    return {
        "labels": labels,
        "distances": distances,
        "transform": model.transform(X[:100]),
        "score": model.score(X),
        "quantization error": dc.quantization_error(X, centres),
    }


@_entry
def _predict_f4() -> Results:
    return _asked(rows(1500, 9), np.array(rows(1500, 9)[:29]))


@_entry
def _predict_f8() -> Results:
    return _asked(rows(1500, 9, "f8"), np.array(rows(1500, 9, "f8")[:29]))


@_entry
def _predict_sparse_f4() -> Results:
    X = csr(1500, 40)
    return _asked(X, X[:29].toarray())


@_entry
def _metrics_of_rows() -> Results:
    X, labels = rows(1500, 9, "f8"), whole(1500, 42, 7)
    found: Results = {"silhouette": dc.metrics.silhouette(X, labels, sample_size=None)}
    found["silhouette cosine"] = dc.metrics.silhouette(X, labels, metric="cosine")
    found["silhouette sparse"] = dc.metrics.silhouette(csr(1500, 40), labels)
    for name in ("calinski_harabasz", "davies_bouldin", "simplified_silhouette"):
        found[name] = getattr(dc.metrics, name)(X, labels)
    return found


@_entry
def _metrics_of_labels() -> Results:
    one, other = whole(1500, 42, 7), whole(1500, 43, 9)
    other[:700] = one[:700]
    names = (
        "accuracy adjusted_mutual_info adjusted_rand_index completeness homogeneity "
        "normalized_mutual_info purity v_measure"
    ).split()
    return {name: getattr(dc.metrics, name)(one, other) for name in names}


@_entry
def _select_k_f8() -> Results:
    found = dc.select_k(rows(1500, 5, "f8"), ks=(2, 4, 7, 11), n_seeds=1, random_state=3)
    return {"best": found.best.k, "costs": [each.inertia for each in found.candidates]}


@_entry
def _bells() -> Results:
    return {"rows": bells((50, 4), 1), "weights": weights(50), "whole": whole(50, 1, 9)}
