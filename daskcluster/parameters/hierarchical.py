"""The parameters of `daskcluster.HierarchicalKMeans`."""

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
    RANDOM_STATE,
    TOL,
    VERBOSE,
)
from daskcluster.parameters.table import Parameter

HIERARCHICAL = (
    N_CLUSTERS,
    Parameter(
        "n_coarse",
        int,
        "auto",
        "Cells that the rows are divided into first. auto: the square root of the number of clusters.",
        word="auto",
        least=1,
    ),
    Parameter("refine", bool, True, "Move all centres together once the cells are clustered."),
    Parameter("refine_iter", int, 2, "Iterations of that, over all rows and all centres.", least=0),
    INIT.varied(
        help="How to choose the first centres. auto: k-means++ for the cells, afk-mc2 within each.",
        other="",
    ),
    MAX_ITER.varied(default=100, help="Iterations within a cell at most."),
    TOL,
    METRIC,
    RANDOM_STATE,
    VERBOSE,
    MAX_TIME,
    BOUNDS_MEMORY.varied(
        help="Bytes that bounds may take; up to five iterations of the refinement do without."
    ),
    CHAIN_LENGTH,
    CHECKPOINT,
    CHECKPOINT_EVERY.varied(
        help="Iterations of the refinement between two commits of the state; half a minute is the most "
        "in any case."
    ),
)
"""All of them but ``engine`` and ``callbacks``, which are objects."""
