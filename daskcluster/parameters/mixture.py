"""The parameters of `daskcluster.VariationalGaussianMixture`."""

from __future__ import annotations

from daskcluster.parameters.coreset import CORESET_SIZE
from daskcluster.parameters.shared import (
    CHAIN_LENGTH,
    CHECKPOINT,
    CHECKPOINT_EVERY,
    INIT,
    MAX_ITER,
    MAX_TIME,
    N_CLUSTERS,
    N_INIT,
    RANDOM_STATE,
    TOL,
    VERBOSE,
)
from daskcluster.parameters.table import Parameter

COVARIANCE_TYPES = ("isotropic", "spherical", "diag")
SEARCHES = ("tile", "row", "alternate")

MIXTURE = (
    N_CLUSTERS.varied(help="Number of components."),
    Parameter(
        "covariance_type",
        str,
        "isotropic",
        "One variance for all components, one for each, or one for each and feature.",
        choices=COVARIANCE_TYPES,
    ),
    Parameter(
        "truncation",
        int,
        5,
        "Posteriors of a row; with all components, EM is exact.",
        least=1,
    ),
    Parameter("n_neighbors", int, 5, "Components in a neighbourhood, which rows look at.", least=2),
    Parameter(
        "n_random", int, 0, "Components drawn at random for each row, to look at beside.", least=0
    ),
    CORESET_SIZE.varied(default=None, help="Learn from a coreset of so many rows, not from all."),
    INIT.varied(default="afk-mc2"),
    N_INIT.varied(
        default=1, word="", help="Restarts; the one with the highest free energy is kept."
    ),
    Parameter("warmup_steps", int, 0, "Searches before the first variance is set.", least=0),
    Parameter(
        "reg_covar",
        float,
        "auto",
        "Least variance. auto: 1e-6 of the features' mean variance, or of each feature's own with diag.",
        word="auto",
        least=0,
    ),
    TOL.varied(
        help="Stop when the free energy changes by less than this for each row and feature; 0 never."
    ),
    MAX_ITER.varied(help="Iterations of EM at most; 0 keeps the first means."),
    Parameter(
        "search",
        str,
        "tile",
        "Where rows look: tile shares candidates among rows, row is the literal search of the paper, "
        "alternate takes them in turn.",
        choices=SEARCHES,
    ),
    CHAIN_LENGTH,
    RANDOM_STATE,
    VERBOSE,
    MAX_TIME,
    CHECKPOINT,
    CHECKPOINT_EVERY,
)
"""All but ``weights_init``, ``precisions_init``, ``engine`` and ``callbacks``, which are objects."""
