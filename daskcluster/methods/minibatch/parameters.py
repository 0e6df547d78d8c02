"""The parameters of `daskcluster.MiniBatchKMeans`."""

from __future__ import annotations

from daskcluster.parameters import shared
from daskcluster.parameters.algorithm import Algorithm
from daskcluster.parameters.parameter import Parameter

LEARNING_RATE = Parameter(
    "learning_rate",
    str,
    "count",
    "How far a batch moves the centres: count makes a centre the mean of all its rows so far, sqrt "
    "forgets old rows.",
    choices=("count", "sqrt"),
)

MINI_BATCH = (
    shared.N_CLUSTERS,
    shared.INIT.varied(
        help="How to choose the initial centres from a sample of rows. auto: k-means++. "
        "The URL of a saved model is a warm start."
    ),
    shared.N_INIT.varied(
        help="Number of starts tried on a sample; the best one is used. auto: 1, but 3 for random rows."
    ),
    Parameter("batch_size", int, 1024, "Rows per step.", ge=1),
    LEARNING_RATE,
    shared.MAX_ITER.varied(
        default=100, help="Maximum number of passes over the rows; 0 keeps the initial centres."
    ),
    Parameter(
        "max_no_improvement",
        int,
        10,
        "Stop after this many steps in which the smoothed inertia of the batches did not fall.",
        off="none",
        ge=0,
    ),
    Parameter(
        "reassignment_ratio",
        float,
        "auto",
        "Reassign centres that receive less than this share of the rows of the most frequent one; "
        "0 never does. auto: move a centre only where that lowers the cost of the rows seen so far.",
        word="auto",
        ge=0,
    ),
    shared.TOL.varied(
        default=0.0,
        help="Stop when the centres' squared movement in a step is at most this times the mean feature "
        "variance; 0 never does.",
    ),
    shared.INIT_SIZE,
    shared.METRIC,
    *shared.LOOP,
    shared.CHAIN_LENGTH,
    shared.CHECKPOINT,
    shared.CHECKPOINT_EVERY.varied(
        help="Passes between two saves of the state; at most half a minute passes between them."
    ),
)

ALGORITHMS = {
    "mini-batch": Algorithm(
        "daskcluster.methods.minibatch.estimator:MiniBatchKMeans",
        MINI_BATCH,
        about="a small random batch of rows per step",
        plan="daskcluster.methods.minibatch.estimator:plan_fit",
    ),
    "sgd": Algorithm(
        "daskcluster.methods.minibatch.estimator:MiniBatchKMeans",
        MINI_BATCH,
        about="stochastic k-means: every row moves its centre at once",
        fixed={"batch_size": 1, "learning_rate": "count"},
        defaults={"max_no_improvement": None, "reassignment_ratio": 0.0},
        plan="daskcluster.methods.minibatch.estimator:plan_fit",
    ),
}
