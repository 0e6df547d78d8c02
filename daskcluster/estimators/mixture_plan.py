"""What `VariationalGaussianMixture.fit` will take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daskcluster.estimators.coreset_draw import coreset_footprint
from daskcluster.estimators.coreset_plan import CORESET_PASSES, coreset_bytes, coreset_travel
from daskcluster.estimators.initial import method_for
from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.kmeans_plan import pass_flop, seeding_passes, travel
from daskcluster.estimators.mixture_fit import mixture_footprint
from daskcluster.estimators.plan import Plan, Stage, centres_bytes
from daskcluster.typing import Dataset


def plan_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return what a fit with `parameters` takes on `dataset`: passes over a coreset do not count.

    The sets of rows, 4 C' bytes a row, always fit or the fit is refused: they are part of the footprint.
    """
    k, size = int(parameters["n_components"]), parameters["coreset_size"]
    check_enough_rows(dataset, k)
    truncation = min(int(parameters["truncation"]), k)
    looked_at = min(k, truncation + int(parameters["n_neighbors"]) ** 2)
    looked_at += int(parameters["n_random"])
    is_exact, max_iter = truncation == k, int(parameters["max_iter"])
    met = k if is_exact else min(k, looked_at)
    if size is not None:
        drawn = min(int(size), dataset.n_rows)
        return Plan(
            seeding=method_for(parameters["init"], in_memory=True),
            passes_seeding=0,
            restarts=1,
            passes_at_most=CORESET_PASSES,
            footprint=coreset_footprint(dataset, int(size)),
            flop=pass_flop(dataset, 1),
            commit_bytes=coreset_bytes(dataset, int(size))
            + commit_bytes(dataset, parameters, drawn),
            travel=coreset_travel(dataset, drawn),
            kernel="scan",
            afterwards=Stage(
                "truncated",
                drawn,
                dataset.n_features,
                2.0 * drawn * dataset.n_features * met,
                max_iter,
            ),
        )
    method = method_for(parameters["init"], in_memory=dataset.in_memory)
    seeding = seeding_passes(method, k)
    before = 1 if is_exact else int(parameters["warmup_steps"]) + 1
    return Plan(
        seeding=method,
        passes_seeding=seeding,
        restarts=1,
        passes_at_most=seeding + before + max_iter,
        footprint=mixture_footprint(
            dataset,
            k,
            truncation,
            parameters["covariance_type"],
            method,
            int(parameters["chain_length"]),
        ),
        flop=pass_flop(dataset, met),
        commit_bytes=commit_bytes(dataset, parameters, dataset.n_rows),
        travel=travel(dataset, k, bounded=False),
        kernel="truncated",
    )


def commit_bytes(dataset: Dataset, parameters: Mapping[str, Any], n_rows: int) -> int:
    """Return the bytes of a commit of EM on `n_rows` rows: mixture, neighbourhoods, sets of rows."""
    k, q = int(parameters["n_components"]), int(parameters["truncation"])
    own = {"isotropic": 0, "spherical": 2}.get(
        parameters["covariance_type"], 1 + dataset.n_features
    )
    mixture = centres_bytes(dataset, k) + 8 * k * (1 + own)
    if q >= k:
        return mixture
    return mixture + 8 * k * min(k, int(parameters["n_neighbors"])) + 4 * q * n_rows
