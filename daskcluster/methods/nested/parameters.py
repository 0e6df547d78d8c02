"""The parameters of `daskcluster.NestedMiniBatchKMeans`."""

from __future__ import annotations

from daskcluster.parameters import shared
from daskcluster.parameters.algorithm import Algorithm
from daskcluster.parameters.parameter import Parameter

NESTED = (
    shared.N_CLUSTERS,
    shared.INIT.varied(
        help="How to choose the first centres, from the first batch. auto: k-means++. "
        "The URL of a saved model is a warm start."
    ),
    Parameter("batch_size", int, 5000, "Rows of the first batch.", ge=1),
    Parameter(
        "rho",
        float,
        100.0,
        "The batch doubles when the centres move this many times less than chance would have them "
        "differ; small values double early.",
        ge=0,
    ),
    Parameter(
        "bounds",
        str,
        "auto",
        "Bounds of distances, which spare work and never change the result.",
        choices=("auto", "hamerly", "yinyang", "elkan"),
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
        choices=("paper", "code"),
    ),
    shared.VALIDATION.varied(
        help="URL of rows whose mean squared distance is measured after each round."
    ),
    shared.MAX_ITER.varied(
        help="Rounds at most, on batches of any size; 0 keeps the first centres."
    ),
    shared.TOL,
    shared.METRIC,
    *shared.RUN,
    shared.MAX_TIME,
    shared.BOUNDS_MEMORY,
    shared.CHAIN_LENGTH,
    shared.CHECKPOINT,
    shared.CHECKPOINT_EVERY,
)

ALGORITHMS = {
    "nested": Algorithm(
        "daskcluster.methods.nested.estimator:NestedMiniBatchKMeans",
        NESTED,
        about="mini-batches that double until they are all rows",
        plan="daskcluster.methods.nested.projection:plan_fit",
    ),
}
