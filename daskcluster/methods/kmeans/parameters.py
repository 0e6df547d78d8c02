"""The parameters of `daskcluster.KMeans`."""

from __future__ import annotations

from daskcluster.parameters import shared
from daskcluster.parameters.algorithm import Algorithm
from daskcluster.parameters.parameter import Parameter

EXACT = {
    "auto": "exact k-means, switches to the fastest of the next four during the fit",
    "lloyd": "all distances in each iteration",
    "elkan": "one bound per row and centre",
    "hamerly": "one bound per row",
    "yinyang": "one bound per row and group of centres",
}
"""Algorithms that all give the result of Lloyd's; `register_bounds` of `bounds` adds to them."""

KMEANS = (
    shared.N_CLUSTERS,
    shared.INIT,
    shared.N_INIT,
    Parameter(
        "algorithm",
        str,
        "auto",
        "Which algorithm; all give the same result. auto switches between them during the fit.",
        choices=EXACT.keys(),
    ),
    shared.MAX_ITER,
    shared.TOL,
    shared.METRIC,
    *shared.LOOP,
    shared.BOUNDS_MEMORY,
    shared.CHAIN_LENGTH,
    shared.CHECKPOINT,
    shared.CHECKPOINT_EVERY,
)

ALGORITHMS = {
    name: Algorithm(
        "daskcluster.methods.kmeans.estimator:KMeans",
        KMEANS,
        about=about,
        fixed={"algorithm": name},
        plan="daskcluster.methods.kmeans.fit:plan_fit",
    )
    for name, about in EXACT.items()
}
