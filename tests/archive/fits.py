"""Fits whose stored state is archived: every family, each stopped after some of its commits."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import fsspec
import numpy as np

import daskcluster as dc
from daskcluster.methods.streaming.service import StreamLoop
from tests.methods.streaming.service.feeds import bits, open_loop

N, K = 500, 5
_BATCHES = {"batch_size": 90, "max_iter": 3, "max_no_improvement": None}
_KERNEL_STEPS = {"batch_size": 64, "max_iter": 6}
_EM = {"truncation": 3, "n_neighbors": 3, "tol": 0.0, "max_iter": 5}

FITS: dict[str, tuple[str, dict[str, Any], int]] = {
    "kmeans": ("KMeans", {"tol": 0.0, "max_iter": 9}, 4),
    "kmeans-starts": ("KMeans", {"init": "random", "n_init": 3, "max_iter": 4}, 8),
    "kmeans-ended": ("KMeans", {"tol": 0.0, "max_iter": 3}, 4),
    "mini-batch": ("MiniBatchKMeans", _BATCHES, 2),
    "mini-batch-cosine": ("MiniBatchKMeans", {**_BATCHES, "metric": "cosine"}, 3),
    "sgd": ("MiniBatchKMeans", {**_BATCHES, "batch_size": 1}, 2),
    "nested": ("NestedMiniBatchKMeans", {"batch_size": 100, "max_iter": 20}, 5),
    "nested-seeds": ("NestedMiniBatchKMeans", {"batch_size": 100, "seeds_vote": True}, 3),
    "vrkm++": ("VarianceReducedKMeans", {"max_iter": 6, "tol": 0.0}, 4),
    "vrkm-adaptive": (
        "VarianceReducedKMeans",
        {"max_iter": 6, "tol": 0.0, "variant": "vrkm", "adaptive_rate": True},
        4,
    ),
    "backward-euler": ("BackwardEulerKMeans", {"batch_size": 60, "max_iter": 5}, 4),
    "backward-euler-starts": (
        "BackwardEulerKMeans",
        {"batch_size": 60, "max_iter": 3, "n_init": 2},
        4,
    ),
    "coreset": ("CoresetKMeans", {"coreset_size": 120, "max_iter": 5, "tol": 0.0}, 7),
    "hierarchical": (
        "HierarchicalKMeans",
        {"n_clusters": 20, "n_coarse": 4, "refine_iter": 4, "tol": 0.0},
        4,
    ),
    "kernel": ("KernelKMeans", {"max_iter": 6}, 3),
    "kernel-starts": ("KernelKMeans", {"max_iter": 3, "n_init": 2, "init": "random"}, 6),
    "kernel-gone": ("KernelKMeans", {"init": [7, 7, 90, 4, 300], "kernel": "linear"}, 3),
    "kernel-knn": ("KernelKMeans", {"kernel": "knn", "max_iter": 6}, 2),
    "kernel-batches": ("MiniBatchKernelKMeans", {**_KERNEL_STEPS, "truncation": 20}, 4),
    "kernel-batches-all": (
        "MiniBatchKernelKMeans",
        {**_KERNEL_STEPS, "truncation": None, "n_init": 2, "max_iter": 3},
        6,
    ),
    "mixture": ("VariationalGaussianMixture", _EM, 3),
    "mixture-starts": (
        "VariationalGaussianMixture",
        {**_EM, "covariance_type": "full", "n_init": 2, "init": "random", "max_iter": 3},
        6,
    ),
    "mixture-exact": (
        "VariationalGaussianMixture",
        {**_EM, "truncation": K, "covariance_type": "diag"},
        3,
    ),
    "mixture-coreset": ("VariationalGaussianMixture", {**_EM, "coreset_size": 150}, 6),
}
"""Class, parameters, and the commit after which the fit is stopped."""

_ATTRIBUTES = (
    "cluster_centers_ means_ weights_ covariances_ component_weights_ inertia_ lower_bound_ n_iter_ "
    "n_steps_ stop_reason_ seeding_ cluster_sizes_ cluster_weights_ cluster_costs_ counts_ start_inertias_ "
    "support_ support_clusters_ support_coefficients_ coarse_centers_ quotas_"
).split()
_WORK = {
    "seconds",
    "bytes_read",
    "n_touched",
    "n_distances",
    "gram_seconds",
    "mean_squared_distance",
}
"""Entries of a record that an interruption or a later version may change."""
_NOTED = {"n_rows", "doubling_ratio"}
"""Entries of the records that have had ``validation`` since the archived versions."""


def made(name: str, **more: Any) -> Any:
    """Return the estimator of a fit, with `more` parameters."""
    kind, parameters, _ = FITS[name]
    number = "n_components" if kind == "VariationalGaussianMixture" else "n_clusters"
    return getattr(dc, kind)(**{number: K, "random_state": 3, **parameters, **more})


def digest(model: Any) -> str:
    """Return a digest of everything that a fit has learnt."""
    found = hashlib.sha256()
    for name in _ATTRIBUTES:
        if hasattr(model, name):
            value = np.asarray(getattr(model, name))
            found.update(f"{name} {value.dtype.str} {value.shape} ".encode())
            found.update(np.ascontiguousarray(value).tobytes())
    for record in model.history_:
        kept = sorted(
            (name, np.asarray(value).item())
            for name, value in record.items()
            if name not in (_WORK if _NOTED & set(record) else _WORK | {"validation"})
        )
        found.update(repr(kept).encode())
    return found.hexdigest()[:16]


# -- streams and leases ---------------------------------------------------------------------------

MEMORY = fsspec.filesystem("memory")
STREAMS = "daskcluster-archive"
"""Folder in memory: the state of a stream knows the URL of its source."""
ARGUMENTS: dict[str, Any] = {"n_clusters": 5, "random_state": 0, "algorithm": "lloyd"}
"""Of the archived leases."""


def put_in_memory(folder: Path) -> None:
    """Copy what is in `folder` to `STREAMS`."""
    for path in folder.rglob("*"):
        if path.is_file():
            MEMORY.pipe(f"{STREAMS}/{path.relative_to(folder)}", path.read_bytes())


def stream(algorithm: str, state: str) -> StreamLoop:
    """Return the stream in a folder of that name, with its state in that folder."""
    place = f"memory://{STREAMS}/{algorithm}"
    return open_loop(f"{place}/feed", f"{place}/{state}")


def stream_digest(loop: StreamLoop) -> str:
    """Return a digest of everything that a stream knows."""
    return hashlib.sha256(repr(sorted(bits(loop).items())).encode()).hexdigest()[:16]
