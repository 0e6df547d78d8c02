"""The parameters of `daskcluster.KernelKMeans` and `daskcluster.MiniBatchKernelKMeans`."""

from __future__ import annotations

from collections import ChainMap

from daskcluster.methods.minibatch.parameters import LEARNING_RATE
from daskcluster.parameters import shared
from daskcluster.parameters.algorithm import Algorithm
from daskcluster.parameters.parameter import Parameter

GRAPHS = dict.fromkeys(("knn", "heat"))
"""Kernels of the graph of nearest neighbours."""
KERNELS = dict.fromkeys(("rbf", "laplacian", "polynomial", "linear", "cosine", "precomputed"))
"""All other kernels, in the order of the help text; `register_gram` adds to them."""


def is_graph(kernel: object) -> bool:
    """Return whether a kernel is one of `GRAPHS`."""
    return isinstance(kernel, str) and kernel in GRAPHS


KERNEL = Parameter(
    "kernel",
    str,
    "rbf",
    "Mercer kernel; precomputed: the rows are those of its symmetric matrix; knn, heat: kernels of the "
    "graph of nearest neighbours.",
    choices=ChainMap(GRAPHS, KERNELS).keys(),
    also=("callable",),
)
GAMMA = Parameter(
    "gamma",
    float,
    "auto",
    "Parameter of the rbf, laplacian and polynomial kernels. auto: from the variances of the features.",
    word="auto",
    ge=0,
)
DEGREE = Parameter("degree", int, 3, "Degree of the polynomial kernel.", ge=1)
COEF0 = Parameter("coef0", float, 1.0, "Constant term of the polynomial kernel.")
N_NEIGHBORS = Parameter(
    "n_neighbors", int, 10, "Neighbours of a row in the graph, including itself.", ge=1
)
HEAT_TIME = Parameter("heat_time", float, 1.0, "Time of the heat kernel.", gt=0)
KERNEL_INIT = Parameter(
    "init",
    str,
    "k-means++",
    "How to choose the initial centres, which are images of rows.",
    choices=("k-means++", "random"),
    also=("array",),
)
N_LOCAL_TRIALS = Parameter(
    "n_local_trials",
    int,
    None,
    "Candidates per centre of greedy k-means++; 1 is plain k-means++. Default: 2 + log(k).",
    ge=1,
)
KERNEL_PARAMS = Parameter("kernel_params", object, None, "Arguments of a callable kernel.")
KERNEL_N_INIT = shared.N_INIT.varied(
    help="Number of starts; the one with the lowest inertia is kept. auto: 1."
)

_BOTH = (
    shared.N_CLUSTERS,
    KERNEL,
    GAMMA,
    DEGREE,
    COEF0,
    N_NEIGHBORS,
    HEAT_TIME,
    KERNEL_PARAMS,
)

KERNEL_KMEANS = (
    *_BOTH,
    KERNEL_INIT,
    N_LOCAL_TRIALS,
    KERNEL_N_INIT,
    shared.MAX_ITER,
    shared.TOL.varied(
        default=0.0,
        help="Stop when an iteration lowers the inertia by at most this fraction; 0 runs until no label "
        "changes.",
    ),
    *shared.LOOP,
    shared.CHECKPOINT,
    shared.CHECKPOINT_EVERY,
)

MINI_BATCH_KERNEL = (
    *_BOTH,
    Parameter("batch_size", int, 1024, "Rows per step.", ge=1),
    Parameter(
        "replacement",
        bool,
        False,
        "Draw the rows of a batch independently, so that it may hold a row several times.",
    ),
    Parameter(
        "truncation",
        int,
        200,
        "A centre consists of the latest batches that hold at least this many of its rows; none keeps all "
        "batches.",
        off="none",
        ge=1,
    ),
    Parameter(
        "normalize_truncated",
        bool,
        True,
        "Scale the coefficients of a truncated centre so that they sum to one.",
    ),
    LEARNING_RATE.varied(default="sqrt"),
    KERNEL_INIT.varied(help="How to choose the initial centres from a sample of rows."),
    N_LOCAL_TRIALS,
    KERNEL_N_INIT,
    shared.INIT_SIZE,
    shared.MAX_ITER.varied(
        default=200, help="Maximum number of batches; 0 keeps the initial centres."
    ),
    shared.TOL.varied(
        default=0.0,
        help="Stop when a step lowers the mean squared distance of its batch by less than this; 0 never "
        "stops.",
    ),
    *shared.LOOP,
    shared.CHECKPOINT,
    shared.CHECKPOINT_EVERY.varied(
        help="Steps between two saves of the state; at most half a minute passes between them."
    ),
)

ALGORITHMS = {
    "kernel": Algorithm(
        "daskcluster.methods.kernel_kmeans.estimator:KernelKMeans",
        KERNEL_KMEANS,
        about="kernel k-means on all pairs of rows",
        plan="daskcluster.methods.kernel_kmeans.fit:plan_fit",
    ),
    "mini-batch-kernel": Algorithm(
        "daskcluster.methods.kernel_kmeans.minibatch.estimator:MiniBatchKernelKMeans",
        MINI_BATCH_KERNEL,
        about="kernel k-means by small random batches",
        plan="daskcluster.methods.kernel_kmeans.minibatch.estimator:plan_minibatch_fit",
    ),
}
