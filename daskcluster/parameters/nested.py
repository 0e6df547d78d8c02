"""The parameters of `daskcluster.NestedMiniBatchKMeans`."""

from __future__ import annotations

from daskcluster.parameters.shared import (
    BOUNDS_MEMORY,
    CHAIN_LENGTH,
    CHECKPOINT,
    CHECKPOINT_EVERY,
    INIT,
    MAX_ITER,
    MAX_TIME,
    METRIC,
    N_CLUSTERS,
    RANDOM_STATE,
    TOL,
    VERBOSE,
)
from daskcluster.parameters.table import Parameter

BOUNDS = ("auto", "hamerly", "yinyang", "elkan")
DOUBLINGS = ("paper", "code")
"""Definitions of the spread that is compared with the movement of centres."""

NESTED = (
    N_CLUSTERS,
    INIT.varied(
        help="How to choose the first centres, from the first batch. auto: k-means++. "
        "The URL of a saved model is a warm start."
    ),
    Parameter("batch_size", int, 5000, "Rows of the first batch.", least=1),
    Parameter(
        "rho",
        float,
        100.0,
        "The batch doubles when the centres move this many times less than chance would have them "
        "differ; small values double early.",
        least=0,
    ),
    Parameter(
        "bounds",
        str,
        "auto",
        "Bounds of distances, which spare work and never change the result.",
        choices=BOUNDS,
        off="none",
    ),
    Parameter(
        "shuffle",
        bool,
        True,
        "Take batches at random; without, rows as they are stored, for rows that are shuffled.",
    ),
    Parameter(
        "seeds_vote", bool, False, "Let each first centre count as one more row of its cluster."
    ),
    Parameter(
        "doubling",
        str,
        "paper",
        "The spread that is compared with the movement of centres: that of a cluster's mean, or that of "
        "the cluster, as in the authors' program.",
        choices=DOUBLINGS,
    ),
    Parameter(
        "validation",
        str,
        None,
        "URL of rows whose mean squared distance is measured after each round.",
    ),
    MAX_ITER.varied(help="Rounds at most, on batches of any size; 0 keeps the first centres."),
    TOL,
    METRIC,
    RANDOM_STATE,
    VERBOSE,
    MAX_TIME,
    BOUNDS_MEMORY,
    CHAIN_LENGTH,
    CHECKPOINT,
    CHECKPOINT_EVERY,
)
"""All of them but ``engine`` and ``callbacks``, which are objects."""
