"""The parameters of `daskcluster.StreamingKMeans`."""

from __future__ import annotations

import math

from daskcluster.parameters import shared
from daskcluster.parameters.algorithm import Algorithm
from daskcluster.parameters.parameter import Parameter

LEAST_SIZE = 2_000

SUMMARY_SIZE = Parameter(
    "coreset_size",
    int,
    "auto",
    "Rows of each coreset of the summary. auto: 20 k max(1, ln k), at least 2,000.",
    word="auto",
    ge=1,
)

HALF_LIFE = Parameter(
    "half_life",
    str,
    None,
    "Number of later rows, or age (6h, 7d), after which the weight of a row has halved; ages are "
    "relative to the timestamps of objects.",
    also=("number",),
)

WINDOW = Parameter(
    "window",
    str,
    None,
    "Number of later rows, or age, after which a row is forgotten.",
    also=("number",),
)

DRIFT_THRESHOLD = Parameter(
    "drift_threshold",
    float,
    1.5,
    "New rows no longer fit when their error is this many times the usual error.",
    ge=1,
)

STREAMING = (
    shared.N_CLUSTERS,
    SUMMARY_SIZE,
    HALF_LIFE,
    WINDOW,
    DRIFT_THRESHOLD,
    shared.INIT.varied(
        help="How to choose the initial centres. auto: k-means++. The URL of a saved model is a warm start."
    ),
    shared.MAX_ITER.varied(
        default=100,
        help="Maximum number of centre updates per search; 0 keeps its initial centres.",
    ),
    shared.TOL,
    shared.METRIC,
    *shared.RUN,
    shared.CHAIN_LENGTH,
)


LEAF_SHARE = 8
"""Rows of a leaf, in multiples of the coreset size, before rounding up to a multiple of 1,024."""


def summary_size(given: int | str, n_clusters: int) -> int:
    """Return the number of rows of a coreset for a value of `coreset_size`.

    Examples
    --------
    >>> summary_size("auto", 8), summary_size("auto", 100), summary_size(500, 8)
    (2000, 9211, 500)
    """
    if given != "auto":
        return int(given)
    from daskcluster.elementary import log  # deferred: imports NumPy, which `--help` does not need

    return max(LEAST_SIZE, math.ceil(20 * n_clusters * max(1.0, float(log(n_clusters)))))


def leaf_rows_of(size: int) -> int:
    """Return the number of rows of a leaf, for coresets of `size` rows.

    Examples
    --------
    >>> leaf_rows_of(2000)
    16384
    """
    return -(-LEAF_SHARE * size // 1024) * 1024


ALGORITHMS = {
    "streaming": Algorithm(
        "daskcluster.methods.streaming.estimator:StreamingKMeans",
        STREAMING,
        about="one pass over rows in order, with optional forgetting",
        plan="daskcluster.methods.streaming.fold:plan_fit",
    ),
}
