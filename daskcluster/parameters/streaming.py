"""The parameters of `daskcluster.StreamingKMeans`."""

from __future__ import annotations

import math

from daskcluster.parameters.shared import (
    CHAIN_LENGTH,
    INIT,
    MAX_ITER,
    METRIC,
    N_CLUSTERS,
    RANDOM_STATE,
    TOL,
    VERBOSE,
)
from daskcluster.parameters.table import Parameter

LEAST_SIZE = 2_000

STREAMING = (
    N_CLUSTERS,
    Parameter(
        "coreset_size",
        int,
        "auto",
        "Rows of each coreset of the summary. auto: 20 k max(1, ln k), at least 2,000.",
        word="auto",
        least=1,
    ),
    Parameter(
        "half_life",
        str,
        None,
        "Rows weigh half as much when so many have come after them, or when they are so old (6h, 7d), by "
        "the time stamps of their objects.",
    ),
    Parameter(
        "window",
        str,
        None,
        "Forget rows when so many have come after them, or when they are so old.",
    ),
    Parameter(
        "max_clusters",
        int,
        None,
        "Budget of clusters that may be added when new rows no longer fit. Default: none are.",
        least=1,
    ),
    Parameter(
        "drift_threshold",
        float,
        1.5,
        "New rows no longer fit when their error is so many times what it used to be.",
        least=1,
    ),
    INIT.varied(
        help="How to choose the first centres. auto: k-means++. The URL of a saved model is a warm start."
    ),
    MAX_ITER.varied(
        default=100, help="Centre updates of one search at most; 0 keeps what it began from."
    ),
    TOL,
    METRIC,
    RANDOM_STATE,
    VERBOSE,
    CHAIN_LENGTH,
)
"""All of them but ``engine`` and ``callbacks``, which are objects."""


def automatic_size(n_clusters: int) -> int:
    """Return the rows of a coreset for so many clusters.

    Examples
    --------
    >>> automatic_size(8), automatic_size(100)
    (2000, 9211)
    """
    return max(LEAST_SIZE, math.ceil(20 * n_clusters * max(1.0, math.log(n_clusters))))
