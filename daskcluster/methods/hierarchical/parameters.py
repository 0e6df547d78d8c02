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
        "Number of coarse cells. auto: the square root of the number of clusters, or one for few rows.",
        word="auto",
        ge=1,
    ),
    Parameter(
        "n_levels",
        int,
        1,
        "Levels of clusters: those of each level are clusters of the centres below, and a tenth as many "
        "(more, where there are few).",
        ge=1,
    ),
    Parameter(
        "level_sizes",
        str,
        None,
        "Numbers of clusters of the levels above the first, decreasing and separated by commas, instead of "
        "n_levels.",
        also=("sequence of int",),
    ),
    Parameter(
        "resample_rounds",
        int,
        "auto",
        "Rounds in which the centres of a level are fitted again to the rows or centres nearest to them, "
        "which spreads them evenly over the data. auto: 10 with several levels (2 in the first), else 0.",
        word="auto",
        ge=0,
    ),
    Parameter(
        "resample_size",
        int,
        "auto",
        "Nearest rows or centres of each cluster that a round is fitted to. auto: half the mean size of a "
        "cluster, 2 to 20.",
        word="auto",
        ge=2,
    ),
    Parameter("refine", bool, True, "Refine all centres together after the cells are clustered."),
    Parameter(
        "refine_iter", int, 2, "Iterations of the refinement, over all rows and centres.", ge=0
    ),
    shared.INIT.varied(
        help="How to choose the initial centres. auto: k-means++ for the cells, afk-mc2 within each.",
        other="",
        also=(),
    ),
    shared.MAX_ITER.varied(default=100, help="Maximum number of iterations within a cell."),
    shared.TOL,
    shared.METRIC,
    *shared.LOOP,
    shared.CHAIN_LENGTH,
    shared.CHECKPOINT,
    shared.CHECKPOINT_EVERY.varied(
        help="Iterations of the refinement between two saves of the state; at most half a minute passes "
        "between them."
    ),
)

ALGORITHMS = {
    "hierarchical": Algorithm(
        "daskcluster.methods.hierarchical.estimator:HierarchicalKMeans",
        HIERARCHICAL,
        about="very many clusters: coarse cells, clusters within each, then a joint refinement",
        plan="daskcluster.methods.hierarchical.estimator:plan_fit",
    ),
}
