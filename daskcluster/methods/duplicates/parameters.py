"""The parameters of `daskcluster.near_duplicates`."""

from __future__ import annotations

from daskcluster.parameters import shared
from daskcluster.parameters.parameter import Parameter

THRESHOLD = Parameter(
    "threshold",
    float,
    0.95,
    "Rows are near-duplicates from this cosine similarity on, or up to this Euclidean distance.",
    ge=0,
)

METRIC = shared.METRIC.varied(
    default="cosine", help="cosine: by similarity, at most 1; euclidean: by distance."
)

RULES = ("first", "nearest", "farthest")
KEEP = Parameter(
    "keep",
    str,
    "first",
    "The row of each group that is kept: the first, the nearest to its centre or the farthest, or the "
    "one with the largest score in a column, or in an array at a URL.",
    choices=RULES,
    other="a column of scores or its URL",
    also=("array",),
)

GROUPS = Parameter(
    "groups",
    str,
    "components",
    "components: rows that a chain of near-duplicates connects; covered: near-duplicates of the kept row.",
    choices=("components", "covered"),
)

RANDOM_STATE = shared.RANDOM_STATE.varied(
    default=0, help="Seed of the centres, which change no pair; nearest and farthest depend on it."
)

NEAR_DUPLICATES = (THRESHOLD, METRIC, KEEP, GROUPS, RANDOM_STATE)
