"""The parameters of `daskcluster.CoresetKMeans`."""

from __future__ import annotations

from daskcluster.parameters import shared
from daskcluster.parameters.algorithm import Algorithm
from daskcluster.parameters.parameter import Parameter

CORESET_SIZE = Parameter(
    "coreset_size",
    int,
    10_000,
    "Rows of the coreset; a few hundred per cluster are a good start.",
    ge=1,
)

SIZE = CORESET_SIZE.varied(
    name="size", help="Rows to draw; a few hundred per cluster are a good start."
)

LIGHTWEIGHT = (
    SIZE,
    shared.RANDOM_STATE,
    shared.ENGINE,
    shared.CALLBACKS,
    shared.CHECKPOINT,
)
"""The parameters of `daskcluster.LightweightCoreset`."""

CORESET = (
    shared.N_CLUSTERS,
    CORESET_SIZE,
    shared.INIT,
    shared.N_INIT,
    shared.MAX_ITER,
    shared.TOL,
    shared.METRIC,
    *shared.LOOP,
    shared.CHAIN_LENGTH,
    shared.CHECKPOINT,
    shared.CHECKPOINT_EVERY,
)

ALGORITHMS = {
    "coreset": Algorithm(
        "daskcluster.methods.coreset.kmeans:CoresetKMeans",
        CORESET,
        about="a small weighted sample, two passes over the rows",
        plan="daskcluster.methods.coreset.estimator:plan_fit",
    ),
}
