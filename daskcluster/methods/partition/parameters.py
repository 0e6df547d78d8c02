"""The parameters of `daskcluster.partition`."""

from __future__ import annotations

from daskcluster.parameters import shared
from daskcluster.parameters.parameter import Parameter

TARGET_SIZE = Parameter("target_size", int, 1000, "Mean number of rows of a partition.", ge=1)

MAX_SIZE = Parameter(
    "max_size",
    int,
    None,
    "Largest number of rows of a partition; twice the target by default.",
    ge=1,
)

RANDOM_STATE = shared.RANDOM_STATE.varied(
    default=0, help="Seed of the sample and its first centres."
)

PARTITION = (TARGET_SIZE, MAX_SIZE, shared.METRIC, RANDOM_STATE)
