"""The parameters of `daskcluster.BackwardEulerKMeans`."""

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
    VERBOSE,
)
from daskcluster.parameters.table import Parameter

BACKWARD_EULER = (
    N_CLUSTERS,
    INIT.varied(
        default="random",
        help="How to choose the first centres, among the rows of a sample. auto: k-means++. "
        "The URL of a saved model is a warm start.",
    ),
    N_INIT.varied(
        default=1,
        word="",
        help="Independent starts, run at the same time; the one with the lowest inertia wins.",
    ),
    Parameter("batch_size", int, 1000, "Rows of an inner iteration (M).", least=1),
    Parameter(
        "step_size",
        float,
        "auto",
        "The first step (gamma). auto: 1.2 times the number of clusters; large ones leave bad minima.",
        word="auto",
        least=0,
    ),
    Parameter(
        "decay", float, 1 / 1.01, "A step size over that of the step before (beta).", least=0
    ),
    Parameter(
        "averaging",
        float,
        0.75,
        "Weight of the old average of the inner iterations (alpha); 0 keeps the last one.",
        least=0,
    ),
    Parameter("inner_iter", int, 5, "Fixed-point iterations of a step (imaxit).", least=1),
    MAX_ITER.varied(
        default=100, help="Steps (omaxit), each of inner_iter batches; 0 keeps the first centres."
    ),
    METRIC,
    RANDOM_STATE,
    VERBOSE,
    MAX_TIME,
    CHAIN_LENGTH,
    CHECKPOINT,
    CHECKPOINT_EVERY,
)
"""All of them but ``engine`` and ``callbacks``, which are objects."""
