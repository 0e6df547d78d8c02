"""One small model of every kind that there is, as a fit might have left it."""

from __future__ import annotations

from typing import Any

import numpy as np

from daskcluster.chunkwise.pruned import FixedSearch
from daskcluster.kernels.quantized import RowRange
from daskcluster.methods.hierarchical.cells import HierarchicalModel
from daskcluster.methods.kernel_kmeans.graph import GraphKMeansModel
from daskcluster.methods.kernel_kmeans.model import KernelKMeansModel
from daskcluster.methods.mixture.model import MixtureModel
from daskcluster.methods.partition.partitioning import PartitionModel
from daskcluster.models.fitted import KMeansModel, Model

K, D, M = 4, 3, 6
RANGE = RowRange(-2.0, 2.0, 4.0, 0.5)


def how_it_was_made(estimator: str) -> dict[str, Any]:
    return {
        "n_iter": 2,
        "stop_reason": "tolerance",
        "seeding": "k-means++",
        "passes": 5,
        "bytes_read": 1234,
        "history": [{"iteration": 1, "inertia": 20.25, "n_empty": 0, "validation": None}],
        "parameters": {"n_clusters": K, "tol": 1e-4, "init": "auto", "random_state": None},
        "feature_names": [f"feature {i}" for i in range(D)],
        "n_rows": 100,
        "created_with": {"daskcluster": "0.1.0", "python": "3.11.7"},
        "estimator": estimator,
    }


def kmeans_model(search: FixedSearch | None = None) -> KMeansModel:
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((K, D)).astype(np.float32)
    figures = {"sizes": np.arange(K), "costs": rng.random(K), "inertia": 12.5}
    made = how_it_was_made("KMeans")
    return KMeansModel(centres, rng.random(K), **figures, search=search, **made)


def hierarchical_model() -> HierarchicalModel:
    plain = kmeans_model()
    parts = vars(plain) | {"estimator": "HierarchicalKMeans"}
    parents = (np.arange(K, dtype=np.int32) % 2, np.zeros(2, np.int32))
    return HierarchicalModel(**parts, parents=parents, level_sizes=(2, 1))


def partition_model() -> PartitionModel:
    rng = np.random.default_rng(4)
    centres = rng.standard_normal((K, D)).astype(np.float32)
    found = {"assigning": centres + np.float32(0.5), "penalties": rng.random(K)}
    made = how_it_was_made("partition")
    return PartitionModel(centres, np.full(K, 25.0), np.full(K, 25), **found, **made)


def mixture_model(kind: str = "diag") -> MixtureModel:
    rng = np.random.default_rng(1)
    variances = 1.0 + rng.random((K, D))
    if kind == "full":
        variances = 0.25 + variances[:, :, None] * np.eye(D)
    shares = {"mixing": np.full(K, 1 / K), "weights": np.full(K, 25.0)}
    return MixtureModel(
        rng.standard_normal((K, D)),
        variances,
        **shares,
        covariance_type=kind,
        lower_bound=-3.5,
        truncation=2,
        **how_it_was_made("VariationalGaussianMixture"),
    )


def kernel_model(rows: str = "dense") -> KernelKMeansModel:
    """Return a model whose support rows are dense, CSR, or numbers of columns (precomputed)."""
    rng = np.random.default_rng(2)
    none = np.zeros(1, np.int64)
    supports: dict[str, Any] = {
        "dense": {"supports": rng.standard_normal((M, D)), "columns": none, "starts": none},
        "csr": {
            "supports": np.append(rng.random(M).astype(np.float32), np.float32(0)),
            "columns": np.append(np.arange(M) % D, 0),
            "starts": np.arange(M + 1),
        },
        "precomputed": {"supports": np.zeros(1), "columns": none, "starts": none},
    }[rows]
    return KernelKMeansModel(
        rng.standard_normal((K, D)),
        **supports,
        rows=np.arange(M) % (D if rows == "precomputed" else 100),
        coefficients=rng.random(M),
        clusters=np.arange(M) % K,
        norms=rng.random(K),
        weights=np.full(K, 25.0),
        sizes=np.full(K, 25),
        costs=rng.random(K),
        kernel="precomputed" if rows == "precomputed" else "rbf",
        gamma=0.5,
        degree=3,
        coef0=1.0,
        inertia=3.25,
        **how_it_was_made("KernelKMeans"),
    )


def graph_model() -> GraphKMeansModel:
    rng = np.random.default_rng(3)
    none = np.zeros(1, np.int64)
    return GraphKMeansModel(
        rng.standard_normal((K, D)),
        supports=rng.standard_normal((M, D)),
        columns=none,
        starts=none,
        rows=np.arange(M),
        coefficients=rng.random(M),
        clusters=np.arange(M) % K,
        norms=rng.random(K),
        weights=np.full(K, 25.0),
        sizes=np.full(K, 25),
        costs=rng.random(K),
        kernel="knn",
        gamma=0.0,
        degree=3,
        coef0=1.0,
        inertia=3.25,
        radii=rng.random(M),
        spread=rng.random((M, K)),
        n_neighbors=2,
        heat_time=1.0,
        **how_it_was_made("KernelKMeans"),
    )


SAMPLES: dict[str, Model] = {
    "kmeans": kmeans_model(),
    "kmeans, search": kmeans_model(FixedSearch(0.5, np.eye(D, 2), RANGE, RANGE)),
    "hierarchical": hierarchical_model(),
    "partitions": partition_model(),
    "mixture": mixture_model(),
    "mixture, full": mixture_model("full"),
    "kernel, dense": kernel_model("dense"),
    "kernel, csr": kernel_model("csr"),
    "kernel, precomputed": kernel_model("precomputed"),
    "graph": graph_model(),
}
