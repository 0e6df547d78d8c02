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
    from daskcluster.data.grid import Grid, open_grid
    from daskcluster.data.shuffle import shuffle
    from daskcluster.engine.dask import DaskEngine
    from daskcluster.engine.local import LocalEngine
    from daskcluster.estimators.backward_euler import BackwardEulerKMeans
    from daskcluster.estimators.coreset import (
        LightweightCoreset,
        lightweight_coreset,
        merge_coresets,
    )
    from daskcluster.estimators.coreset_kmeans import CoresetKMeans
    from daskcluster.estimators.coreset_quality import coreset_quality
    from daskcluster.estimators.from_sklearn import from_sklearn
    from daskcluster.estimators.functions import (
        afk_mc2,
        kmeans_parallel,
        kmeans_plusplus,
    )
    from daskcluster.estimators.hierarchical import HierarchicalKMeans
    from daskcluster.estimators.kernel_kmeans import KernelKMeans
    from daskcluster.estimators.kmeans import KMeans
    from daskcluster.estimators.load import load_model
    from daskcluster.estimators.minibatch import MiniBatchKMeans
    from daskcluster.estimators.minibatch_kernel import MiniBatchKernelKMeans
    from daskcluster.estimators.mixture import VariationalGaussianMixture
    from daskcluster.estimators.nested import NestedMiniBatchKMeans
    from daskcluster.estimators.opening import open_dataset
    from daskcluster.estimators.quantization import quantization_error, relative_error
    from daskcluster.estimators.streaming import StreamingKMeans
    from daskcluster.estimators.variance_reduced import VarianceReducedKMeans
    from daskcluster.jobs.selection import select_k
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
    "StreamingKMeans",
    "VarianceReducedKMeans",
    "VariationalGaussianMixture",
    "__version__",
    "afk_mc2",
    "annotate",
    "coreset_quality",
    "errors",
    "events",
    "from_sklearn",
    "kmeans_parallel",
    "kmeans_plusplus",
    "lightweight_coreset",
    "load_model",
    "merge_coresets",
    "metrics",
    "open_dataset",
    "open_grid",
    "quantization_error",
    "relative_error",
    "select_k",
    "shuffle",
]

_MODULES = frozenset({"errors", "events", "metrics"})

_HOMES = {
    "BackwardEulerKMeans": "daskcluster.estimators.backward_euler",
    "CoresetKMeans": "daskcluster.estimators.coreset_kmeans",
    "coreset_quality": "daskcluster.estimators.coreset_quality",
    "DaskEngine": "daskcluster.engine.dask",
    "Dataset": "daskcluster.typing",
    "Grid": "daskcluster.data.grid",
    "HierarchicalKMeans": "daskcluster.estimators.hierarchical",
    "KernelKMeans": "daskcluster.estimators.kernel_kmeans",
    "KMeans": "daskcluster.estimators.kmeans",
    "LightweightCoreset": "daskcluster.estimators.coreset",
    "LocalEngine": "daskcluster.engine.local",
    "MiniBatchKMeans": "daskcluster.estimators.minibatch",
    "MiniBatchKernelKMeans": "daskcluster.estimators.minibatch_kernel",
    "NestedMiniBatchKMeans": "daskcluster.estimators.nested",
    "StreamingKMeans": "daskcluster.estimators.streaming",
    "VarianceReducedKMeans": "daskcluster.estimators.variance_reduced",
    "VariationalGaussianMixture": "daskcluster.estimators.mixture",
    "afk_mc2": "daskcluster.estimators.functions",
    "annotate": "daskcluster.data.anndata",
    "from_sklearn": "daskcluster.estimators.from_sklearn",
    "kmeans_parallel": "daskcluster.estimators.functions",
    "kmeans_plusplus": "daskcluster.estimators.functions",
    "lightweight_coreset": "daskcluster.estimators.coreset",
    "load_model": "daskcluster.estimators.load",
    "merge_coresets": "daskcluster.estimators.coreset",
    "open_dataset": "daskcluster.estimators.opening",
    "open_grid": "daskcluster.data.grid",
    "quantization_error": "daskcluster.estimators.quantization",
    "relative_error": "daskcluster.estimators.quantization",
    "select_k": "daskcluster.jobs.selection",
    "shuffle": "daskcluster.data.shuffle",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"daskcluster.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'daskcluster' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value  # the next look-up is a plain attribute
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
