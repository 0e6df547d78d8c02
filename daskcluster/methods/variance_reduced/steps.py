"""Where the inner loop of variance reduced k-means runs: in this process, or where partitions are."""

from __future__ import annotations

from daskcluster.chunk import Chunk
from daskcluster.engine.engine import Placement
from daskcluster.methods.variance_reduced.chunkwise import STEPS, StepParams, StepsTaken


class StepsHere:
    """All rows as one partition, in this process: the sequential algorithm of the paper.

    Parameters
    ----------
    rows : Chunk
        All rows.
    """

    def __init__(self, rows: Chunk) -> None:
        self._rows = rows

    def __call__(self, params: StepParams) -> StepsTaken:
        prepared = STEPS.prepare(params)
        taken: StepsTaken = STEPS.zero(prepared)
        STEPS.chunk(self._rows, prepared, taken)
        return taken


class StepsWhereRowsAre:
    """A partition steps for itself, from the snapshot; what all of them did is added up.

    Parameters
    ----------
    placement : Placement
        Of a `daskcluster.data.partitioned.PartitionedDataset`.
    """

    def __init__(self, placement: Placement) -> None:
        self._placement = placement

    def __call__(self, params: StepParams) -> StepsTaken:
        taken: StepsTaken = self._placement.reduce(STEPS, params)
        return taken
