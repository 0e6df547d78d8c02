"""The parameters of `daskcluster.HierarchicalKMeans`."""

from __future__ import annotations

from daskcluster.parameters import shared
from daskcluster.parameters.algorithm import Algorithm
from daskcluster.parameters.parameter import Parameter

HIERARCHICAL = (
    shared.N_CLUSTERS,
    Parameter(
        "n_coarse",
        int,
        "auto",
        "Cells that the rows are divided into first. auto: the square root of the number of clusters.",
        word="auto",
        ge=1,
    ),
    Parameter("refine", bool, True, "Move all centres together once the cells are clustered."),
    Parameter("refine_iter", int, 2, "Iterations of that, over all rows and all centres.", ge=0),
    shared.INIT.varied(
        help="How to choose the first centres. auto: k-means++ for the cells, afk-mc2 within each.",
        other="",
        also=(),
    ),
    shared.MAX_ITER.varied(default=100, help="Iterations within a cell at most."),
    shared.TOL,
    shared.METRIC,
    *shared.RUN,
    shared.MAX_TIME,
    shared.BOUNDS_MEMORY.varied(
        help="Bytes that bounds may take; up to five iterations of the refinement do without."
    ),
    shared.CHAIN_LENGTH,
    shared.CHECKPOINT,
    shared.CHECKPOINT_EVERY.varied(
        help="Iterations of the refinement between two commits of the state; half a minute is the most "
        "in any case."
    ),
)

ALGORITHMS = {
    "hierarchical": Algorithm(
        "daskcluster.methods.hierarchical.estimator:HierarchicalKMeans",
        HIERARCHICAL,
        about="very many clusters: cells first, clusters within each, then all together",
        plan="daskcluster.methods.hierarchical.projection:plan_fit",
    ),
}
