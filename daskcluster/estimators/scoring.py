"""Size, weight and cost of every cluster under given centres: what inertia is made of."""

from __future__ import annotations

import numpy as np

from daskcluster.chunkwise.assign import SCORE, AssignParams, ScoreStatistics
from daskcluster.engine.scaled import ScaledPlacement


def score_rows(
    rows: ScaledPlacement,
    centres: np.ndarray,
    labels: np.ndarray | None = None,
    *,
    labelled: bool = False,
) -> ScoreStatistics:
    """Measure all rows against their nearest centres, by direct differences.

    Parameters
    ----------
    rows : ScaledPlacement
    centres : ndarray of shape (k, d)
        In the compute dtype of the rows.
    labels : ndarray of shape (n,), int32, optional
        OUT. Where labels are kept, by global row index, in this process.
    labelled : bool
        `labels` are those of `centres` already.

    Notes
    -----
    Cost: one pass; k + 1 distances a row, or one where rows are labelled already. A worker returns 5 k
    numbers.
    """
    found: ScoreStatistics = rows.reduce(
        SCORE, lambda scale: AssignParams(centres, scale, labels, labelled=labelled)
    )
    return found
