"""Clustering of data larger than memory, on one machine or on a Dask cluster, to the same bits.

Public names are looked up when they are first used (PEP 562), so that importing the package
imports none of dask, scikit-learn, numba, zarr, scipy or matplotlib.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from daskcluster import errors, events, metrics
    from daskcluster.data.anndata import annotate
    from daskcluster.data.grid import Grid
    from daskcluster.data.shuffle import shuffle
    from daskcluster.engine.dask import DaskEngine
    from daskcluster.engine.local import LocalEngine
    from daskcluster.estimators.opening import open_dataset, open_grid
    from daskcluster.jobs.predicting import balanced_sample
    from daskcluster.jobs.selection import select_k
    from daskcluster.methods.backward_euler.estimator import BackwardEulerKMeans
    from daskcluster.methods.coreset.estimator import (
        LightweightCoreset,
        lightweight_coreset,
        merge_coresets,
    )
    from daskcluster.methods.coreset.kmeans import CoresetKMeans
    from daskcluster.methods.coreset.quality import (
        coreset_quality,
        quantization_error,
        relative_error,
    )
    from daskcluster.methods.duplicates.near_duplicates import near_duplicates
    from daskcluster.methods.from_sklearn import from_sklearn
    from daskcluster.methods.hierarchical.estimator import HierarchicalKMeans
    from daskcluster.methods.kernel_kmeans.estimator import KernelKMeans
    from daskcluster.methods.kernel_kmeans.minibatch.estimator import MiniBatchKernelKMeans
    from daskcluster.methods.kmeans.estimator import (
        KMeans,
        afk_mc2,
        kmeans_parallel,
        kmeans_plusplus,
    )
    from daskcluster.methods.load import load_model
    from daskcluster.methods.minibatch.estimator import MiniBatchKMeans
    from daskcluster.methods.mixture.estimator import VariationalGaussianMixture
    from daskcluster.methods.nested.estimator import NestedMiniBatchKMeans
    from daskcluster.methods.partition.partitioning import partition
    from daskcluster.methods.streaming.estimator import StreamingKMeans
    from daskcluster.methods.variance_reduced.estimator import VarianceReducedKMeans
    from daskcluster.reports.progress import ProgressBar
    from daskcluster.typing import Dataset

__version__ = "0.1.0"

__all__ = [
    "BackwardEulerKMeans",
    "CoresetKMeans",
    "DaskEngine",
    "Dataset",
    "Grid",
    "HierarchicalKMeans",
    "KMeans",
    "KernelKMeans",
    "LightweightCoreset",
    "LocalEngine",
    "MiniBatchKMeans",
    "MiniBatchKernelKMeans",
    "NestedMiniBatchKMeans",
    "ProgressBar",
    "StreamingKMeans",
    "VarianceReducedKMeans",
    "VariationalGaussianMixture",
    "__version__",
    "afk_mc2",
    "annotate",
    "balanced_sample",
    "coreset_quality",
    "errors",
    "events",
    "extending",
    "from_sklearn",
    "jobs",
    "kmeans_parallel",
    "kmeans_plusplus",
    "lightweight_coreset",
    "load_model",
    "merge_coresets",
    "metrics",
    "near_duplicates",
    "open_dataset",
    "open_grid",
    "partition",
    "quantization_error",
    "relative_error",
    "select_k",
    "shuffle",
]

_MODULES = frozenset({"errors", "events", "extending", "jobs", "metrics"})

_LAZY = {
    "BackwardEulerKMeans": "daskcluster.methods.backward_euler.estimator",
    "CoresetKMeans": "daskcluster.methods.coreset.kmeans",
    "coreset_quality": "daskcluster.methods.coreset.quality",
    "DaskEngine": "daskcluster.engine.dask",
    "Dataset": "daskcluster.typing",
    "Grid": "daskcluster.data.grid",
    "HierarchicalKMeans": "daskcluster.methods.hierarchical.estimator",
    "KernelKMeans": "daskcluster.methods.kernel_kmeans.estimator",
    "KMeans": "daskcluster.methods.kmeans.estimator",
    "LightweightCoreset": "daskcluster.methods.coreset.estimator",
    "LocalEngine": "daskcluster.engine.local",
    "MiniBatchKMeans": "daskcluster.methods.minibatch.estimator",
    "MiniBatchKernelKMeans": "daskcluster.methods.kernel_kmeans.minibatch.estimator",
    "NestedMiniBatchKMeans": "daskcluster.methods.nested.estimator",
    "ProgressBar": "daskcluster.reports.progress",
    "StreamingKMeans": "daskcluster.methods.streaming.estimator",
    "VarianceReducedKMeans": "daskcluster.methods.variance_reduced.estimator",
    "VariationalGaussianMixture": "daskcluster.methods.mixture.estimator",
    "afk_mc2": "daskcluster.methods.kmeans.estimator",
    "annotate": "daskcluster.data.anndata",
    "balanced_sample": "daskcluster.jobs.predicting",
    "from_sklearn": "daskcluster.methods.from_sklearn",
    "kmeans_parallel": "daskcluster.methods.kmeans.estimator",
    "kmeans_plusplus": "daskcluster.methods.kmeans.estimator",
    "lightweight_coreset": "daskcluster.methods.coreset.estimator",
    "load_model": "daskcluster.methods.load",
    "merge_coresets": "daskcluster.methods.coreset.estimator",
    "near_duplicates": "daskcluster.methods.duplicates.near_duplicates",
    "open_dataset": "daskcluster.estimators.opening",
    "open_grid": "daskcluster.estimators.opening",
    "partition": "daskcluster.methods.partition.partitioning",
    "quantization_error": "daskcluster.methods.coreset.quality",
    "relative_error": "daskcluster.methods.coreset.quality",
    "select_k": "daskcluster.jobs.selection",
    "shuffle": "daskcluster.data.shuffle",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"daskcluster.{name}")
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'daskcluster' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value  # the next look-up is a plain attribute
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
