"""Projected cost of the kernel k-means fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.plan import Plan
from daskcluster.methods.kernel.algorithm import n_blocks
from daskcluster.methods.kernel.chunkwise.gram import PRECOMPUTED
from daskcluster.methods.kernel.graph_fit import graph_footprint
from daskcluster.methods.kernel.minibatch.fit import (
    kernel_footprint,
    minibatch_footprint,
    rows_per_step,
)
from daskcluster.methods.kernel.parameters import GRAPHS
from daskcluster.methods.kmeans.projection import pass_flop
from daskcluster.typing import Dataset

_HAVE_GAMMA = ("rbf", "laplacian", "polynomial")


def plan_minibatch_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return the projected cost of a `MiniBatchKernelKMeans` fit; `flop` is that of the last pass."""
    k, max_iter = (int(parameters[name]) for name in ("n_clusters", "max_iter"))
    check_enough_rows(dataset, k)
    restarts = 1 if parameters["n_init"] == "auto" else int(parameters["n_init"])
    b, tau = rows_per_step(dataset.n_rows, parameters), parameters["truncation"]
    per_step, points = 0, k * (int(tau or 0) + b)
    if not tau:
        per_step, points = 1, k + max_iter * b
    points = points if parameters["replacement"] else min(points, k * dataset.n_rows)
    if parameters["kernel"] in GRAPHS:
        return _plan_graph(dataset, parameters, restarts, min(points, k * dataset.n_rows))
    return Plan(
        seeding=str(parameters["init"]),
        passes_seeding=first_passes(parameters),
        restarts=restarts,
        passes_at_most=first_passes(parameters)
        + restarts * (-(-max_iter * b // dataset.n_rows) + per_step * (max_iter + 1) + 2),
        footprint=minibatch_footprint(dataset, k, points, truncated=bool(tau)),
        flop=pass_flop(dataset, points),
        commit_bytes=(16 * points + (0 if tau else 8 * dataset.n_rows * k)) * min(restarts, 2),
    )


def _plan_graph(
    dataset: Dataset, parameters: Mapping[str, Any], restarts: int, points: int
) -> Plan:
    """Return the cost with a graph: the rows are read once, and steps are passes only by their batches."""
    rows, n = rows_per_step(dataset.n_rows, parameters), dataset.n_rows
    passes = 2 + restarts * (-(-int(parameters["max_iter"]) * rows // n) + 2)
    return Plan(
        seeding=str(parameters["init"]),
        passes_seeding=first_passes(parameters),
        restarts=restarts,
        passes_at_most=passes,
        footprint=graph_footprint(dataset, parameters),
        flop=pass_flop(dataset, n),
        commit_bytes=16 * points * min(restarts, 2),
    )


def plan_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return the projected cost of a `KernelKMeans` fit on `dataset`; graphs take a single pass."""
    n, k, max_iter = dataset.n_rows, int(parameters["n_clusters"]), int(parameters["max_iter"])
    check_enough_rows(dataset, k)
    restarts = 1 if parameters["n_init"] == "auto" else int(parameters["n_init"])
    blocks = n_blocks(dataset) if parameters["kernel"] != "precomputed" else 1
    seeding = 1 + first_passes(parameters) + (k if parameters["init"] == "k-means++" else 1)
    return Plan(
        seeding=str(parameters["init"]),
        passes_seeding=seeding,
        restarts=restarts,
        passes_at_most=restarts * (seeding + 2 + max_iter * blocks) + 2,
        footprint=kernel_footprint(dataset, k, n),
        flop=pass_flop(dataset, n),
        commit_bytes=8 * (n + k) * min(restarts, 2),
    )


def first_passes(parameters: Mapping[str, Any]) -> int:
    """Return the number of passes before seeding: one for an automatic gamma or the check for NaN."""
    automatic = parameters["kernel"] in _HAVE_GAMMA and parameters["gamma"] == "auto"
    return int(automatic or parameters["kernel"] in (PRECOMPUTED, *GRAPHS))
