"""The parameters of `daskcluster.BackwardEulerKMeans`."""

from __future__ import annotations

from daskcluster.parameters import shared
from daskcluster.parameters.algorithm import Algorithm
from daskcluster.parameters.parameter import Parameter

BACKWARD_EULER = (
    shared.N_CLUSTERS,
    shared.INIT.varied(
        help="How to choose the initial centres from a sample of rows. auto: k-means++, refined there. "
        "The URL of a saved model is a warm start.",
    ),
    shared.N_INIT.varied(
        default=1,
        word="",
        help="Independent starts, run at the same time; the one with the lowest inertia wins.",
    ),
    Parameter("batch_size", int, 1000, "Rows per inner iteration (M).", ge=1),
    Parameter(
        "step_size",
        float,
        "auto",
        "The first step (gamma). auto: 2.2 times the number of clusters; large ones leave bad minima.",
        word="auto",
        gt=0,
    ),
    Parameter(
        "decay", float, 1 / 1.02, "Ratio of a step size to the previous one (beta).", gt=0, le=1
    ),
    Parameter(
        "averaging",
        float,
        0.9,
        "Weight of the old average of the inner iterations (alpha); 0 keeps the last one.",
        ge=0,
        lt=1,
    ),
    Parameter("inner_iter", int, 5, "Fixed-point iterations per step (imaxit).", ge=1),
    shared.MAX_ITER.varied(
        default=100,
        help="Maximum number of steps (omaxit) of inner_iter batches each; 0 keeps the initial centres.",
    ),
    Parameter(
        "size_limit",
        float,
        1.25,
        "Steps of a cluster with more rows than this multiple of the mean are those of one with as many; "
        "none: no limit, as in the paper.",
        off="none",
        gt=0,
    ),
    Parameter(
        "guard",
        bool,
        True,
        "Repeat a step that diverges with half its size; without it, steps are those of the paper.",
    ),
    Parameter(
        "refine_iter",
        int,
        0,
        "Maximum number of passes of Lloyd's algorithm that finish the best start.",
        ge=0,
    ),
    shared.METRIC,
    *shared.LOOP,
    shared.CHAIN_LENGTH,
    shared.CHECKPOINT,
    shared.CHECKPOINT_EVERY,
)

ALGORITHMS = {
    "backward-euler": Algorithm(
        "daskcluster.methods.backward_euler.estimator:BackwardEulerKMeans",
        BACKWARD_EULER,
        about="large implicit steps on mini-batches, which pass bad local minima",
        plan="daskcluster.methods.backward_euler.estimator:plan_fit",
    ),
}
