"""The parameters of `daskcluster.KernelKMeans` and `daskcluster.MiniBatchKernelKMeans`."""

from __future__ import annotations

from daskcluster.parameters.minibatch import LEARNING_RATE
from daskcluster.parameters.shared import (
    CHECKPOINT,
    CHECKPOINT_EVERY,
    MAX_ITER,
    MAX_TIME,
    N_CLUSTERS,
    N_INIT,
    RANDOM_STATE,
    TOL,
    VERBOSE,
)
from daskcluster.parameters.table import Parameter

GRAPHS = ("knn", "heat")
"""Kernels that only `daskcluster.KernelKMeans` has."""
KERNELS = ("rbf", "laplacian", "polynomial", "linear", "cosine", "precomputed")
KERNEL_INITS = ("k-means++", "random")

KERNEL = Parameter(
    "kernel",
    str,
    "rbf",
    "Mercer kernel; precomputed: the rows are those of its symmetric matrix.",
    choices=KERNELS,
)
GAMMA = Parameter(
    "gamma",
    float,
    "auto",
    "Of the rbf, laplacian and polynomial kernels. auto: from the variances of the features.",
    word="auto",
    least=0,
)
DEGREE = Parameter("degree", int, 3, "Of the polynomial kernel.", least=1)
COEF0 = Parameter("coef0", float, 1.0, "Of the polynomial kernel.")
KERNEL_INIT = Parameter(
    "init",
    str,
    "k-means++",
    "How to choose the first centres, images of rows.",
    choices=KERNEL_INITS,
)
KERNEL_N_INIT = N_INIT.varied(help="Starts; the one with the lowest inertia wins. auto: 1.")

KERNEL_KMEANS = (
    N_CLUSTERS,
    KERNEL.varied(
        help="Mercer kernel; precomputed: the rows are those of its symmetric matrix; knn, heat: of the "
        "graph of nearest neighbours.",
        choices=(*KERNELS, *GRAPHS),
    ),
    GAMMA,
    DEGREE,
    COEF0,
    Parameter(
        "n_neighbors", int, 10, "Neighbours of a row in the graph, itself among them.", least=1
    ),
    Parameter("heat_time", float, 1.0, "Time of the heat kernel.", least=0),
    KERNEL_INIT,
    KERNEL_N_INIT,
    MAX_ITER,
    TOL.varied(
        default=0.0,
        help="Stop when an iteration lowers the inertia by at most this times itself; 0 waits until no "
        "label changes.",
    ),
    RANDOM_STATE,
    VERBOSE,
    MAX_TIME,
    CHECKPOINT,
    CHECKPOINT_EVERY,
)
"""All of them but ``kernel_params``, ``engine`` and ``callbacks``, which are objects."""

MINI_BATCH_KERNEL = (
    N_CLUSTERS,
    KERNEL,
    GAMMA,
    DEGREE,
    COEF0,
    Parameter("batch_size", int, 1024, "Rows of a step.", least=1),
    Parameter(
        "truncation",
        int,
        200,
        "A centre consists of the latest batches with at least so many of its rows; none keeps all "
        "batches, and then a step is a pass over all rows.",
        off="none",
        least=1,
    ),
    Parameter(
        "normalize_truncated",
        bool,
        True,
        "Scale the coefficients of a truncated centre so that they add up to one.",
    ),
    LEARNING_RATE.varied(default="sqrt"),
    KERNEL_INIT.varied(help="How to choose the first centres, among the rows of a sample."),
    KERNEL_N_INIT,
    Parameter(
        "init_size",
        int,
        None,
        "Rows of the sample that first centres are chosen from; three batches by default.",
        least=1,
    ),
    MAX_ITER.varied(default=200, help="Batches at most; 0 keeps the first centres."),
    TOL.varied(
        default=0.0,
        help="Stop when a step lowers the mean squared distance of its batch by less than this; 0 never "
        "does.",
    ),
    RANDOM_STATE,
    VERBOSE,
    MAX_TIME,
    CHECKPOINT,
    CHECKPOINT_EVERY.varied(
        help="Steps between two commits of the state; half a minute is the most in any case."
    ),
)
"""All of them but ``kernel_params``, ``engine`` and ``callbacks``, which are objects."""
