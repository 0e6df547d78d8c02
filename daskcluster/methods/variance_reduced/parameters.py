"""The parameters of `daskcluster.VarianceReducedKMeans`."""

from __future__ import annotations

from daskcluster.parameters import shared
from daskcluster.parameters.algorithm import Algorithm
from daskcluster.parameters.parameter import Parameter

VARIANTS = {
    "vrkm++": "full passes with variance-reduced single-row steps between them",
    "vrkm": "the same, plus a pass for the full gradient, which is zero",
}

VARIANCE_REDUCED = (
    shared.N_CLUSTERS,
    shared.INIT,
    Parameter(
        "variant",
        str,
        "vrkm++",
        "vrkm computes a gradient that is zero; vrkm++ does not.",
        choices=tuple(VARIANTS),
    ),
    Parameter(
        "learning_rate",
        float,
        "auto",
        "Fraction of the distance that a step moves a centre. auto: clusters / rows.",
        word="auto",
        ge=0,
    ),
    Parameter(
        "adaptive_rate",
        bool,
        False,
        "Set the rate anew before each epoch but the first, by the rule of Barzilai and Borwein.",
    ),
    Parameter(
        "epoch_size",
        float,
        1.0,
        "Steps between full passes, as a multiple of the rows. doubling: 2, 4, 8 and so on.",
        word="doubling",
        ge=0,
    ),
    Parameter(
        "n_partitions",
        int,
        "auto",
        "Partitions whose steps run in parallel; 1 is the sequential algorithm. auto: 1 for rows of up "
        "to 256 MB.",
        word="auto",
        ge=1,
    ),
    Parameter(
        "guard",
        bool,
        True,
        "Undo an epoch that raises the inertia, and halve the rate; without it, steps are those of the "
        "paper.",
    ),
    shared.MAX_ITER.varied(help="Maximum number of epochs; 0 keeps the initial centres."),
    shared.TOL.varied(
        help="Stop when the inertia changes by at most this times itself from one epoch to the next; "
        "0 runs until nothing moves."
    ),
    shared.METRIC,
    *shared.LOOP,
    shared.CHAIN_LENGTH,
    shared.CHECKPOINT,
    shared.CHECKPOINT_EVERY,
)

ALGORITHMS = {
    name: Algorithm(
        "daskcluster.methods.variance_reduced.estimator:VarianceReducedKMeans",
        VARIANCE_REDUCED,
        about=about,
        fixed={"variant": name},
        plan="daskcluster.methods.variance_reduced.estimator:plan_fit",
    )
    for name, about in VARIANTS.items()
}
