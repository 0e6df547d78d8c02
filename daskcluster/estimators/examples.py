"""Statistics and example rows of every cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daskcluster.chunkwise.assign import AssignParams, RowParams, ScoreStatistics
from daskcluster.chunkwise.examples import (
    EXAMINE,
    ClusterExamples,
    Examined,
    ExamineParams,
)
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.engine import Placement
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.events import Callback
from daskcluster.models.balance import largest
from daskcluster.sparse_rows import dense_rows
from daskcluster.typing import Dataset


@dataclass(frozen=True)
class Examination:
    """Figures and examples of clusters on some rows.

    Attributes
    ----------
    scores : ScoreStatistics
        Size, weight and cost of every cluster.
    weights : ndarray of shape (k,)
        Weights of the clusters, or their sizes if rows have no weights.
    examples : ClusterExamples, optional
        Nearest and farthest rows; None if the centres are not points in the space of the rows.
    """

    scores: ScoreStatistics
    weights: np.ndarray
    examples: ClusterExamples | None = None

    @classmethod
    def of(cls, scores: ScoreStatistics, dataset: Dataset) -> Examination:
        """Return the examination of `dataset` with these scores."""
        weights = scores.cluster_weights(weighted=dataset.weights is not None)
        return cls(scores, weights)


def examine_rows(
    dataset: Dataset,
    rows: RowParams,
    shown: int,
    most: int,
    engine: Any,
    callbacks: Sequence[Callback],
) -> Examination:
    """Compute figures and examples of all clusters in one pass; fetch rows of the largest."""
    chosen = choose_engine(engine, dataset)
    with chosen.place(dataset, callbacks=callbacks) as placement:
        found: Examined = ScaledPlacement(placement).reduce(
            EXAMINE,
            lambda scale: ExamineParams(AssignParams(rows.centres, scale), most),
        )
        measured = Examination.of(found.scores, dataset)
        rows_shown = _fetch(placement, found, largest(measured.weights, shown))
    return replace(measured, examples=ClusterExamples(found.examples, rows_shown))


def _fetch(placement: Placement, found: Examined, clusters: Sequence[int]) -> dict[int, np.ndarray]:
    ends = (found.examples.nearest, found.examples.farthest)
    indices = [end.of(cluster)[0] for cluster in clusters for end in ends]
    wanted = np.unique(np.concatenate([np.empty(0, np.int64), *indices]))
    return dict(zip(wanted.tolist(), dense_rows(placement.take(wanted)), strict=True))
