"""The parameters of `daskcluster.MiniBatchKMeans`."""

from __future__ import annotations

from daskcluster.parameters.shared import (
    CHAIN_LENGTH,
    CHECKPOINT,
    CHECKPOINT_EVERY,
    INIT,
    MAX_ITER,
    MAX_TIME,
    METRIC,
    N_CLUSTERS,
    N_INIT,
    RANDOM_STATE,
    TOL,
    VERBOSE,
)
from daskcluster.parameters.table import Parameter

LEARNING_RATES = ("count", "sqrt")
LEARNING_RATE = Parameter(
    "learning_rate",
    str,
    "count",
    "How far centres follow a batch: count makes them the mean of all rows they have had, sqrt "
    "forgets old rows.",
    choices=LEARNING_RATES,
)

MINI_BATCH = (
    N_CLUSTERS,
    INIT.varied(
        help="How to choose the first centres, among the rows of a sample. auto: k-means++. "
        "The URL of a saved model is a warm start."
    ),
    N_INIT.varied(
        help="Starts that are tried on a sample; the best is used. auto: 1, but 3 for random rows."
    ),
    Parameter("batch_size", int, 1024, "Rows of a step.", least=1),
    LEARNING_RATE,
    MAX_ITER.varied(default=100, help="Passes over the rows at most; 0 keeps the first centres."),
    Parameter(
        "max_no_improvement",
        int,
        10,
        "Stop after this many steps in which the smoothed inertia of the batches did not fall.",
        off="none",
        least=0,
    ),
    Parameter(
        "reassignment_ratio",
        float,
        0.01,
        "Centres that see less than this share of what the one that sees the most does start anew "
        "elsewhere; 0 lets them be.",
        least=0,
    ),
    TOL.varied(
        default=0.0,
        help="Stop when the centres' squared movement in a step is at most this times the mean feature "
        "variance; 0 never does.",
    ),
    Parameter(
        "init_size",
        int,
        None,
        "Rows of the sample that first centres are chosen from; three batches by default.",
        least=1,
    ),
    METRIC,
    RANDOM_STATE,
    VERBOSE,
    MAX_TIME,
    Parameter(
        "validation",
        str,
        None,
        "URL of rows whose mean squared distance is measured on the way.",
    ),
    CHAIN_LENGTH,
    CHECKPOINT,
    CHECKPOINT_EVERY.varied(
        help="Passes between two commits of the state; half a minute is the most in any case."
    ),
)
"""All of them but ``engine`` and ``callbacks``, which are objects."""
