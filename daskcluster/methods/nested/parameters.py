"""The parameters of `daskcluster.NestedMiniBatchKMeans`."""

from __future__ import annotations

from daskcluster.parameters import shared
from daskcluster.parameters.algorithm import Algorithm
from daskcluster.parameters.parameter import Parameter

NESTED = (
    shared.N_CLUSTERS,
    shared.INIT.varied(
        help="How to choose the initial centres from the first batch. auto: k-means++ of a sample of all "
        "rows in memory. "
        "The URL of a saved model is a warm start."
    ),
    Parameter("batch_size", int, 5000, "Rows of the first batch.", ge=1),
    Parameter(
        "rho",
        float,
        100.0,
        "The batch doubles when the centres move this many times less than chance would explain; "
        "small values double early.",
        ge=0,
    ),
    Parameter(
        "bounds",
        str,
        "auto",
        "Bounds on distances; they save work and never change the result.",
        choices=("auto", "hamerly", "yinyang", "elkan"),
        off="none",
    ),
    Parameter(
        "shuffle",
        bool,
        True,
        "Draw batches at random; without it, take rows as stored, for data that are already shuffled.",
    ),
    Parameter(
        "seeds_vote", bool, False, "Count each initial centre as one more row of its cluster."
    ),
    Parameter(
        "doubling",
        str,
        "paper",
        "The spread compared with the movement of a centre: that of the cluster's mean (paper), or that of "
        "the cluster, as in the authors' program (code).",
        choices=("paper", "code"),
    ),
    shared.VALIDATION.varied(
        help="URL of validation rows; their mean squared distance is recorded after each round."
    ),
    shared.MAX_ITER.varied(
        help="Maximum number of rounds, on batches of any size; 0 keeps the initial centres."
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
        about="mini-batches that double until they contain all rows",
        plan="daskcluster.methods.nested.estimator:plan_fit",
    ),
}
