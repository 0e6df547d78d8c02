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
from daskcluster.methods.kmeans.fit import pass_flop
from daskcluster.typing import Dataset

_HAVE_GAMMA = ("rbf", "laplacian", "polynomial")


def plan_minibatch_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return the projected cost of a `MiniBatchKernelKMeans` fit; `flop` is that of the last pass.

    With a graph, the rows are read once more, and steps are passes by their batches alone.
    """
    n, k, max_iter = dataset.n_rows, *(int(parameters[name]) for name in ("n_clusters", "max_iter"))
    check_enough_rows(dataset, k)
    restarts = 1 if parameters["n_init"] == "auto" else int(parameters["n_init"])
    b, tau = rows_per_step(n, parameters), int(parameters["truncation"] or 0)
    is_graph, first = parameters["kernel"] in GRAPHS, first_passes(parameters)
    points = k * (tau + b) if tau else k + max_iter * b
    if is_graph or not parameters["replacement"]:
        points = min(points, k * n)
    per_start = -(-max_iter * b // n) + 2
    if not (tau or is_graph):  # products with all rows, per step
        per_start += max_iter + 1
    return Plan(
        seeding=str(parameters["init"]),
        passes_seeding=first,
        restarts=restarts,
        passes_at_most=first + is_graph + restarts * per_start,
        footprint=graph_footprint(dataset, parameters)
        if is_graph
        else minibatch_footprint(dataset, k, points, batch_rows=b, truncated=bool(tau)),
        flop=pass_flop(dataset, n if is_graph else points),
        commit_bytes=(16 * points + (0 if tau or is_graph else 8 * n * k)) * min(restarts, 2),
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
