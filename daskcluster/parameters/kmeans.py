"""The parameters of `daskcluster.KMeans`."""

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
    N_INIT,
    RANDOM_STATE,
    TOL,
    VERBOSE,
)
from daskcluster.parameters.table import Parameter

EXACT = ("auto", "lloyd", "elkan", "hamerly", "yinyang")
"""Algorithms that all give the result of Lloyd's."""

KMEANS = (
    N_CLUSTERS,
    INIT,
    N_INIT,
    Parameter(
        "algorithm",
        str,
        "auto",
        "Which algorithm; all give the same result. auto changes between them as the fit goes on.",
        choices=EXACT,
    ),
    MAX_ITER,
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
