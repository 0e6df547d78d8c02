"""The parameters of `daskcluster.VariationalGaussianMixture`."""

from __future__ import annotations

from daskcluster.methods.coreset.parameters import CORESET_SIZE
from daskcluster.parameters import shared
from daskcluster.parameters.algorithm import Algorithm
from daskcluster.parameters.parameter import Parameter

COVARIANCE_TYPES = ("isotropic", "spherical", "diag", "tied", "full")
MATRICES = ("tied", "full")
"""Covariance types with matrices: one that all components share, or one per component."""

COVARIANCE_TYPE = Parameter(
    "covariance_type",
    str,
    "isotropic",
    "One variance for all components, one per component, or one per component and feature; tied: one "
    "covariance matrix for all components; full: one per component.",
    choices=COVARIANCE_TYPES,
)

N_SAMPLES = Parameter("n_samples", int, 1, "Rows to draw.", ge=1)
"""The parameter of ``VariationalGaussianMixture.sample``."""

MIXTURE = (
    shared.N_CLUSTERS.varied(name="n_components", help="Number of components."),
    COVARIANCE_TYPE,
    Parameter(
        "truncation",
        int,
        5,
        "Posteriors kept per row; with all components, EM is exact.",
        ge=1,
    ),
    Parameter(
        "n_neighbors",
        int,
        5,
        "Components in a neighbourhood, including the component itself.",
        ge=2,
    ),
    Parameter(
        "n_random", int, 0, "Extra components drawn at random for each row in each iteration.", ge=0
    ),
    CORESET_SIZE.varied(default=None, help="Fit a coreset of this many rows instead of all rows."),
    shared.INIT.varied(
        help="How to choose the initial means. auto: from a clustered sample or, with more than 64 "
        "components, by afk-mc2. The URL of a saved model is a warm start."
    ),
    shared.N_INIT.varied(
        default=1, word="", help="Restarts; the one with the highest free energy is kept."
    ),
    Parameter("weights_init", object, None, "Initial mixing weights."),
    Parameter("precisions_init", object, None, "Initial precisions."),
    Parameter("warmup_steps", int, 0, "Searches before the first variance is set.", ge=0),
    Parameter(
        "reg_covar",
        float,
        "auto",
        "Minimum variance. auto: 1e-6 of the mean feature variance; with diag, tied and full, of each "
        "feature's variance.",
        word="auto",
        ge=0,
    ),
    Parameter(
        "discard_empty",
        bool,
        False,
        "Leave components without posterior weight out of the result, which then has fewer.",
    ),
    shared.TOL.varied(
        help="Stop when the free energy per row and feature changes by less than this; 0 never stops."
    ),
    shared.MAX_ITER.varied(help="Maximum number of EM iterations; 0 keeps the initial means."),
    Parameter(
        "search",
        str,
        "tile",
        "Candidates of a row: tile shares them among rows of a component, row searches as in the paper, "
        "alternate does both in turn.",
        choices=("tile", "row", "alternate"),
    ),
    shared.CHAIN_LENGTH,
    *shared.LOOP,
    shared.CHECKPOINT,
    shared.CHECKPOINT_EVERY,
)

ALGORITHMS = {
    name: Algorithm(
        "daskcluster.methods.mixture.estimator:VariationalGaussianMixture",
        MIXTURE,
        about=f"a Gaussian mixture of {rows}, by truncated EM",
        fixed=fixed,
        defaults=defaults,
        rename={"n_clusters": "n_components"},
        plan="daskcluster.methods.mixture.fit:plan_fit",
    )
    for name, rows, fixed, defaults in (
        ("var-gmm", "all rows", {"coreset_size": None}, {}),
        ("vc-gmm", "a small weighted sample", {}, {"coreset_size": 10_000}),
    )
}
