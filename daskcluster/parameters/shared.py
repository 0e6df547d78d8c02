"""Parameters that several estimators have. `varied` gives one another default or help."""

from __future__ import annotations

from daskcluster.parameters.parameter import Parameter

METHODS = ["auto", "k-means++", "k-means||", "afk-mc2", "random"]
"""Ways of seeding that have a name; `daskcluster.extending.register_seeding` adds to them."""
METRICS = ("euclidean", "cosine")

N_CLUSTERS = Parameter("n_clusters", int, 8, "Number of clusters.", ge=1)

INIT = Parameter(
    "init",
    str,
    "auto",
    "How to choose the initial centres. auto: k-means++ in memory, k-means|| elsewhere. "
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
    "max_iter", int, 300, "Maximum number of centre updates; 0 keeps the initial centres.", ge=0
)

TOL = Parameter(
    "tol",
    float,
    1e-4,
    "Stop when the centres' squared movement is at most this times the mean feature variance; "
    "0 runs until nothing moves.",
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
    "Rows that afk-mc2 proposes per centre; more are closer to k-means++.",
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

ENGINE = Parameter(
    "engine",
    object,
    None,
    "Where to run. None: the current Dask client if it can read the rows, else threads of this process.",
)

CALLBACKS = Parameter("callbacks", object, (), "Callables that receive the events of a fit.")

VERBOSE = Parameter(
    "verbose", int, 0, "Above 0: show progress (`ProgressBar`) on stdout.", ge=0, also=("bool",)
)

RUN = (RANDOM_STATE, ENGINE, CALLBACKS, VERBOSE)
"""Parameters of how a fit runs; except for the seed, they do not change its result."""

MAX_TIME = Parameter(
    "max_time",
    float,
    None,
    "Time limit in seconds; the iteration that exceeds it is the last.",
    gt=0,
)

BOUNDS_MEMORY = Parameter(
    "bounds_memory",
    int,
    "auto",
    "Memory for bounds in bytes; if it is too small, an algorithm with fewer bounds is used.",
    word="auto",
    ge=0,
)

VALIDATION = Parameter(
    "validation",
    str,
    None,
    "URL of validation rows; their mean squared distance is recorded during the fit.",
    also=("array-like of shape (m, d)", "Dataset"),
)
LOOP = (*RUN, MAX_TIME, VALIDATION)
"""Parameters of how a fit runs in a loop."""

INIT_SIZE = Parameter(
    "init_size",
    int,
    None,
    "Size of the sample from which initial centres are chosen. Default: three batches.",
    ge=1,
)

SAMPLE_SIZE = Parameter("size", int, 10_000, "Number of rows to draw.", ge=1)

HOW = ("random", "nearest", "farthest")
"""Ways to choose among the rows of a cluster that have a name; any other is a score."""

CHECKPOINT = Parameter(
    "checkpoint",
    str,
    None,
    "Save progress at this URL; continue with resume.",
    also=("path",),
)

CHECKPOINT_EVERY = Parameter(
    "checkpoint_every",
    int,
    10,
    "Iterations between two saves of the state; at most half a minute passes between them.",
    ge=1,
)
