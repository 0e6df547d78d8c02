"""The projected cost of `VariationalGaussianMixture.fit`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.plan import Plan, Stage, centres_bytes
from daskcluster.methods.coreset.fit import (
    CORESET_PASSES,
    coreset_bytes,
    coreset_footprint,
    coreset_travel,
)
from daskcluster.methods.kmeans.fit import pass_flop, seeding_passes, travel
from daskcluster.methods.kmeans.initial import restarts_for
from daskcluster.methods.mixture.fit import mixture_footprint
from daskcluster.methods.mixture.settings import MATRICES
from daskcluster.methods.mixture.start import SAMPLED, means_method
from daskcluster.typing import Dataset


def plan_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return the projected cost of a fit with `parameters` on `dataset`.

    Passes over a coreset do not count. The candidate sets, 4 C' bytes per row, are part of the footprint.
    """
    k = int(parameters["n_components"])
    check_enough_rows(dataset, k)
    size = parameters["coreset_size"]
    if size is not None:
        return _plan_on_coreset(dataset, parameters, int(size))
    truncation, max_iter = min(int(parameters["truncation"]), k), int(parameters["max_iter"])
    method = means_method(parameters["init"], k, in_memory=dataset.in_memory)
    seeding = CORESET_PASSES if method == SAMPLED else seeding_passes(method, k)
    restarts = restarts_for(method, int(parameters["n_init"]), in_memory=True)
    before = 1 if truncation == k else int(parameters["warmup_steps"]) + 1
    return Plan(
        seeding=method,
        passes_seeding=seeding,
        restarts=restarts,
        passes_at_most=restarts
        * (seeding + before + max_iter + 1),  # + 1: the evaluation at the end
        footprint=mixture_footprint(
            dataset,
            k,
            truncation,
            parameters["covariance_type"],
            method,
            int(parameters["chain_length"]),
        ),
        flop=pass_flop(dataset, _components_met(parameters)) * _flop_share(dataset, parameters),
        commit_bytes=commit_bytes(dataset, parameters, dataset.n_rows),
        travel=travel(dataset, k, bounded=False),
        kernel="truncated",
    )


def _plan_on_coreset(dataset: Dataset, parameters: Mapping[str, Any], size: int) -> Plan:
    drawn, d = min(size, dataset.n_rows), dataset.n_features
    k = int(parameters["n_components"])
    iteration_flop = 2.0 * drawn * d * _components_met(parameters)
    iteration_flop *= _flop_share(dataset, parameters)
    max_iter = int(parameters["max_iter"])
    return Plan(
        seeding=means_method(parameters["init"], k, in_memory=True),
        passes_seeding=0,
        restarts=1,
        passes_at_most=CORESET_PASSES,
        footprint=coreset_footprint(dataset, size),
        flop=pass_flop(dataset, 1),
        commit_bytes=coreset_bytes(dataset, size) + commit_bytes(dataset, parameters, drawn),
        travel=coreset_travel(dataset, drawn),
        kernel="scan",
        afterwards=Stage("truncated", drawn, d, iteration_flop, max_iter),
    )


def _flop_share(dataset: Dataset, parameters: Mapping[str, Any]) -> float:
    """Return the operations of a distance relative to those of a squared Euclidean distance."""
    has_matrices = parameters["covariance_type"] in MATRICES
    return (dataset.n_features + 1) / 2 if has_matrices else 1.0


def _components_met(parameters: Mapping[str, Any]) -> int:
    """Return the maximum number of components that a row is compared with in an iteration."""
    k, q = int(parameters["n_components"]), int(parameters["truncation"])
    if q >= k:
        return k
    return min(k, q + int(parameters["n_neighbors"]) ** 2 + int(parameters["n_random"]))


def commit_bytes(dataset: Dataset, parameters: Mapping[str, Any], n_rows: int) -> int:
    """Return the bytes of a commit of EM on `n_rows` rows: mixture, neighbourhoods, sets of rows."""
    k, q = int(parameters["n_components"]), int(parameters["truncation"])
    kind, d = parameters["covariance_type"], dataset.n_features
    own = {"isotropic": 0, "spherical": 2, "tied": 1, "full": 1 + d * d}.get(kind, 1 + d)
    mixture = centres_bytes(dataset, k) + 8 * k * (1 + own) + (8 * d * d if kind == "tied" else 0)
    if int(parameters["n_init"]) > 1:
        mixture *= 2  # also stores the best restart
    if q >= k:
        return mixture
    return mixture + 8 * k * min(k, int(parameters["n_neighbors"])) + 4 * q * n_rows
