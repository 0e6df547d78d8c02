"""The projected cost of `HierarchicalKMeans.fit`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from daskcluster.chunkwise.smallest import RANKED_BYTES
from daskcluster.engine.memory import Footprint
from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.plan import Plan, centres_bytes
from daskcluster.methods.coreset.fit import coreset_footprint
from daskcluster.methods.coreset.projection import CORESET_PASSES
from daskcluster.methods.hierarchical.cells import group_bytes, n_groups
from daskcluster.methods.hierarchical.levels import (
    PASSES_OF_A_ROUND,
    resample_rounds,
    resample_size,
)
from daskcluster.methods.hierarchical.within_cells import cell_method
from daskcluster.methods.kmeans.fit import bounds_bytes, fit_footprint, pass_flop, travel
from daskcluster.typing import Dataset

FEW_REFINEMENTS = 5
"""Up to so many iterations bounds are not kept: what they take, k^2 d for the centres' own distances among
it, they give back in later ones."""
_SAMPLE_ROWS, _SAMPLE_LEAST = 256, 10_000
"""Rows of the coreset that cells are found on: for each cell, and altogether at least."""
_ONE_CELL, _ONE_CELL_BYTES = 1 << 30, 64 << 20
"""Multiplications of an iteration, and bytes of rows, up to which rows are not divided: some 10 ms."""
_HASH_BYTES = 16
_MEMORY_SHARE = 4
_MEASURING_PASSES = 2
"""One for the size of each cell, one for its different rows."""


def plan_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return the cost of a fit with `parameters` on `dataset`.

    It assumes that every cell has as many different rows as clusters, and that no cluster becomes empty.
    """
    k = int(parameters["n_clusters"])
    check_enough_rows(dataset, k)
    n_coarse = coarse_cells(parameters["n_coarse"], k, dataset)
    n_values = dataset.n_rows * dataset.n_features
    method = cell_method(parameters["init"], k // n_coarse, n_values // n_coarse)
    size = dataset.bytes_of((0, dataset.n_rows))
    gathering = 1 if dataset.in_memory else n_groups(size)
    seeding = CORESET_PASSES + _MEASURING_PASSES + gathering
    refinements = int(parameters["refine_iter"]) if parameters["refine"] else 0
    budget = parameters["bounds_memory"]
    return Plan(
        seeding=method,
        passes_seeding=seeding,
        restarts=1,
        passes_at_most=seeding + refinements + PASSES_OF_A_ROUND * resample_rounds(parameters) + 1,
        footprint=hierarchical_footprint(dataset, parameters),
        flop=pass_flop(dataset, k),
        states=bounds_bytes(dataset, k, "auto") if refinements > FEW_REFINEMENTS else {},
        states_at_most=None if budget == "auto" else int(budget),
        commit_bytes=centres_bytes(dataset, k + n_coarse) + 16 * n_coarse,
        travel=travel(dataset, k, bounded=refinements > FEW_REFINEMENTS),
    )


def coarse_cells(n_coarse: int | str, n_clusters: int, dataset: Dataset) -> int:
    """Return the number of cells, by default the square root of the number of clusters.

    Where an iteration over all rows is cheap, one cell is the default, which is plain k-means.
    """
    if n_coarse != "auto":
        return max(1, min(int(n_coarse), n_clusters))
    work = n_clusters * dataset.n_rows * dataset.n_features
    is_small = dataset.bytes_of((0, dataset.n_rows)) <= _ONE_CELL_BYTES
    return 1 if work <= _ONE_CELL and is_small else round(math.sqrt(n_clusters))


def coarse_sample(n_rows: int, n_coarse: int) -> int:
    """Return the size of the coreset on which cells are found."""
    return min(n_rows, max(_SAMPLE_LEAST, _SAMPLE_ROWS * n_coarse))


def hierarchical_footprint(dataset: Dataset, parameters: Mapping[str, Any]) -> Footprint:
    """Return the memory of the fit: all centres, and a group of cells with its rows per thread."""
    k, n_coarse = int(parameters["n_clusters"]), parameters["n_coarse"]
    found = fit_footprint(dataset, k, "cells", int(parameters["chain_length"]))
    size = dataset.bytes_of((0, dataset.n_rows))
    cells = coarse_cells(n_coarse, k, dataset)
    drawn = coreset_footprint(dataset, coarse_sample(dataset.n_rows, cells)).thread_bytes
    # Rows in memory are gathered in more groups, each by its own thread.
    gathered = size // _MEMORY_SHARE if dataset.in_memory else min(size, group_bytes(size))
    hashes = 2 * _HASH_BYTES * k
    nearest = _resampled_rows(dataset, parameters)
    thread_bytes = max(found.thread_bytes, gathered, hashes, drawn, nearest * RANKED_BYTES)
    resampled = 2 * nearest * size // max(1, dataset.n_rows)
    return replace(found, thread_bytes=thread_bytes, process_bytes=drawn, home_bytes=resampled)


def _resampled_rows(dataset: Dataset, parameters: Mapping[str, Any]) -> int:
    """Return how many rows a round of resampling in the first level draws; 0 without rounds."""
    if not resample_rounds(parameters):
        return 0
    k = int(parameters["n_clusters"])
    return min(dataset.n_rows, k * resample_size(parameters["resample_size"], dataset.n_rows, k))
