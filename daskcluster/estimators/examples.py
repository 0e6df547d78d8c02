"""Statistics, example rows and a sample of every cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.assign import AssignParams, RowParams
from daskcluster.chunkwise.examples import (
    EXAMINE,
    ClusterExamples,
    Examined,
    ExamineParams,
    Sample,
)
from daskcluster.data.dataset import chosen_ids
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.engine import Placement
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.events import Callback
from daskcluster.metrics.separation import SAMPLE_SIZE, sample_of_rows
from daskcluster.models.balance import largest
from daskcluster.reports.contents import Clusters
from daskcluster.sparse_rows import dense_rows
from daskcluster.typing import Dataset

MOST_RANKED = 5
"""Nearest, and farthest, rows per cluster."""
_KEPT_BYTES = 1 << 26
"""Most bytes of example rows that a worker returns; beyond it, rows are read once more."""
_SAMPLE_BYTES = 1 << 27


def examine_rows(
    dataset: Dataset,
    rows: RowParams,
    shown: int,
    most: int,
    engine: Any,
    callbacks: Sequence[Callback],
) -> Clusters:
    """Compute figures and examples of all clusters in one pass, and draw a sample of the rows.

    Rows of the `shown` largest clusters are kept, in the same pass if they are few enough.
    """
    row_bytes = dataset.n_features * dataset.dtype.itemsize
    keeps_rows = shown > 0 and 2 * most * len(rows.centres) * row_bytes <= _KEPT_BYTES
    size = min(SAMPLE_SIZE, max(1, _SAMPLE_BYTES // row_bytes)) if shown > 0 else 0
    sample = sample_of_rows(dataset.n_rows, size, 0)
    chosen = choose_engine(engine, dataset)
    with chosen.place(dataset, callbacks=callbacks) as placement:
        found: Examined = ScaledPlacement(placement).reduce(
            EXAMINE,
            lambda scale: ExamineParams(
                AssignParams(rows.centres, scale, search=rows.search), most, keeps_rows, sample
            ),
        )
        measured = Clusters.of(found.scores, weighted=dataset.weights is not None)
        clusters = largest(measured.weights, shown)
        rows_shown = _kept(found, clusters) if keeps_rows else _fetch(placement, found, clusters)
    examples = ClusterExamples(found.examples, rows_shown, ids_of_rows(dataset, sorted(rows_shown)))
    return replace(measured, examples=examples, sample=_sample(found, dataset))


def _sample(found: Examined, dataset: Dataset) -> Sample | None:
    if not found.sample.parts:
        return None
    rows, labels = found.sample.joined()
    computed = Chunk(rows, normalize=dataset.normalize).computed()
    metric = "cosine" if dataset.normalize else "euclidean"
    return Sample(computed, labels, dataset.n_rows, dataset.weights is not None, metric)


def _ends(found: Examined) -> tuple[Any, Any]:
    return found.examples.nearest, found.examples.farthest


def _kept(found: Examined, clusters: Sequence[int]) -> dict[int, np.ndarray]:
    kept: dict[int, np.ndarray] = {}
    for end in _ends(found):
        for cluster in clusters:
            values = dense_rows(end.values_of(cluster))
            kept.update(zip(end.of(cluster)[0].tolist(), values, strict=True))
    return kept


def _fetch(placement: Placement, found: Examined, clusters: Sequence[int]) -> dict[int, np.ndarray]:
    indices = [end.of(cluster)[0] for cluster in clusters for end in _ends(found)]
    wanted = np.unique(np.concatenate([np.empty(0, np.int64), *indices]))
    return dict(zip(wanted.tolist(), dense_rows(placement.take(wanted)), strict=True))


def ids_of_rows(dataset: Any, rows: Sequence[int]) -> dict[int, str]:
    """Return the ids of ascending rows; empty if rows have none."""
    ids = chosen_ids(dataset, np.asarray(rows)) if len(rows) else ()
    named = zip(rows, getattr(ids, "to_pylist", lambda: ids)(), strict=True)
    found = {int(row): str(one) for row, one in named}
    return {} if all(one == str(row) for row, one in found.items()) else found
