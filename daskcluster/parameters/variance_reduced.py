"""The parameters of `daskcluster.VarianceReducedKMeans`."""

from __future__ import annotations

from daskcluster.parameters.shared import (
    CHAIN_LENGTH,
    CHECKPOINT,
    CHECKPOINT_EVERY,
    INIT,
    MAX_ITER,
    MAX_TIME,
    METRIC,
    N_CLUSTERS,
    RANDOM_STATE,
    TOL,
    VERBOSE,
)
from daskcluster.parameters.table import Parameter

VARIANTS = ("vrkm++", "vrkm")

VARIANCE_REDUCED = (
    N_CLUSTERS,
    INIT,
    Parameter(
        "variant",
        str,
        "vrkm++",
        "vrkm computes a gradient that is zero; vrkm++ does not.",
        choices=VARIANTS,
    ),
    Parameter(
        "learning_rate",
        float,
        "auto",
        "The share of the way that a step moves a centre. auto: clusters over rows.",
        word="auto",
        least=0,
    ),
    Parameter(
        "epoch_size",
        float,
        1.0,
        "Steps between full passes, as a multiple of the rows. doubling: 2, 4, 8 and so on.",
        word="doubling",
        least=0,
    ),
    Parameter(
        "n_partitions",
        int,
        "auto",
        "Parts of the rows that step side by side; 1 is the sequential algorithm. auto: 1 for rows of up "
        "to 256 MB.",
        word="auto",
        least=1,
    ),
    MAX_ITER.varied(help="Epochs at most; 0 keeps the first centres."),
    TOL.varied(
        help="Stop when the inertia changes by at most this times itself from one epoch to the next; "
        "0 waits until nothing moves."
    ),
    METRIC,
    RANDOM_STATE,
    VERBOSE,
    MAX_TIME,
    CHAIN_LENGTH,
    CHECKPOINT,
    CHECKPOINT_EVERY,
)
"""All of them but ``engine`` and ``callbacks``, which are objects."""
