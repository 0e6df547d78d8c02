"""The parameters of `daskcluster.CoresetKMeans`."""

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

CORESET_SIZE = Parameter(
    "coreset_size",
    int,
    10_000,
    "Rows of the coreset; a few hundred for each cluster are a good start.",
    least=1,
)

CORESET = (
    N_CLUSTERS,
    CORESET_SIZE,
    INIT,
    N_INIT,
    MAX_ITER,
    TOL,
    METRIC,
    RANDOM_STATE,
    VERBOSE,
    MAX_TIME,
    CHAIN_LENGTH,
    CHECKPOINT,
    CHECKPOINT_EVERY,
)
"""All of them but ``engine`` and ``callbacks``, which are objects."""
