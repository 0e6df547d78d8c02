"""Parameters that several estimators have. A table that needs another default takes `varied`."""

from __future__ import annotations

from daskcluster.parameters.parameter import Parameter

METHODS = ("auto", "k-means++", "k-means||", "afk-mc2", "random")
"""Ways of seeding that have a name."""
METRICS = ("euclidean", "cosine")

N_CLUSTERS = Parameter("n_clusters", int, 8, "Number of clusters.", ge=1)

INIT = Parameter(
    "init",
    str,
    "auto",
    "How to choose the first centres. auto: k-means++ in memory, k-means|| elsewhere. "
    "The URL of a saved model is a warm start.",
    choices=METHODS,
    other="the URL of a saved model",
    also=("array", "callable", "estimator"),
)

N_INIT = Parameter(
    "n_init",
    int,
    "auto",
    "Restarts; the one with the lowest inertia wins. auto: 1, but 10 for random rows in memory.",
    word="auto",
    ge=1,
)

MAX_ITER = Parameter(
    "max_iter", int, 300, "Centre updates at most; 0 keeps the first centres.", ge=0
)

TOL = Parameter(
    "tol",
    float,
    1e-4,
    "Stop when the centres' squared movement is at most this times the mean feature variance; "
    "0 waits until nothing moves.",
    ge=0,
)

METRIC = Parameter(
    "metric",
    str,
    "euclidean",
    "Distance; cosine is spherical k-means.",
    choices=METRICS,
)

CHAIN_LENGTH = Parameter(
    "chain_length",
    int,
    10,
    "Rows that afk-mc2 proposes for each centre; more come closer to k-means++.",
    ge=1,
)

RANDOM_STATE = Parameter(
    "random_state",
    int,
    None,
    "Seed; the same seed gives the same result to the bit.",
    ge=0,
    also=("RandomState", "Generator"),
)

ENGINE = Parameter("engine", object, None, "Where to run.")

CALLBACKS = Parameter("callbacks", object, (), "Hear the events of a fit.")

VERBOSE = Parameter(
    "verbose", int, 0, "Above 0: print every iteration as it ends.", ge=0, also=("bool",)
)

RUN = (RANDOM_STATE, ENGINE, CALLBACKS, VERBOSE)
"""What decides how a fit runs, not what it finds; but for the seed."""

MAX_TIME = Parameter(
    "max_time", float, None, "Seconds; the iteration that exceeds them is the last.", gt=0
)

BOUNDS_MEMORY = Parameter(
    "bounds_memory",
    int,
    "auto",
    "Bytes that bounds may take; with less, an algorithm with fewer bounds takes over.",
    word="auto",
    ge=0,
)

VALIDATION = Parameter(
    "validation",
    str,
    None,
    "URL of rows whose mean squared distance is measured on the way.",
    also=("array-like of shape (m, d)", "Dataset"),
)

INIT_SIZE = Parameter(
    "init_size",
    int,
    None,
    "Rows of the sample that first centres are chosen from; three batches by default.",
    ge=1,
)

CHECKPOINT = Parameter(
    "checkpoint",
    str,
    None,
    "Keep the state of the fit at this URL, for a fit that resumes.",
    also=("path",),
)

CHECKPOINT_EVERY = Parameter(
    "checkpoint_every",
    int,
    10,
    "Iterations between two commits of the state; half a minute is the most in any case.",
    ge=1,
)
