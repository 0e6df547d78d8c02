"""Jobs on a model whose clusters are centres: a row belongs to the nearest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from daskcluster.chunk import for_rows
from daskcluster.chunkwise.assign import (
    RowParams,
    ScoreStatistics,
    label_rows,
    nearest_output,
    prepare_rows,
)
from daskcluster.chunkwise.labelled import ComputedLabels
from daskcluster.data.recipes import for_metric
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.memory import ONE_PASS
from daskcluster.engine.scaled import ScaledPlacement, score_rows
from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.examples import Examination, examine_rows
from daskcluster.events import Callback
from daskcluster.methods.kmeans.stability import stability
from daskcluster.models.kmeans import KMeansModel
from daskcluster.typing import Dataset


class CentreJobs:
    """Jobs on rows under a `KMeansModel`."""

    def row_labels(self, model: KMeansModel, dataset: Dataset) -> ComputedLabels:
        """Return what labels rows of `dataset`."""
        params, cosine = _row_params(model, dataset), model.metric == "cosine"
        return ComputedLabels(label_rows, params, prepare_rows, cosine)

    def nearest(
        self,
        model: KMeansModel,
        dataset: Dataset,
        n_nearest: int | None,
        return_distance: bool,
    ) -> dict[str, Any]:
        """Return what finds the nearest centres of rows: arguments of `save_rows`."""
        most = n_nearest or 1
        if not 1 <= most <= model.n_clusters:
            raise InvalidParameterError(
                f"n_nearest={n_nearest} should be in [1, {model.n_clusters}], the number of centres."
            )
        params = _row_params(model, dataset, most)
        return {"params": params} | nearest_output(params.centres.dtype, n_nearest, return_distance)

    def evaluate(
        self, model: KMeansModel, dataset: Dataset, engine: Any, callbacks: Sequence[Callback]
    ) -> ScoreStatistics:
        """Return size, weight and cost of every cluster on `dataset`. One pass."""
        params = _row_params(model, dataset)
        chosen = choose_engine(engine, dataset)
        rows = for_metric(dataset, model.metric)
        with chosen.place(rows, callbacks=callbacks, footprint=ONE_PASS) as placement:
            return score_rows(ScaledPlacement(placement), params.centres, search=params.search)

    def score(
        self, model: KMeansModel, dataset: Dataset, engine: Any, callbacks: Sequence[Callback]
    ) -> tuple[float, float]:
        """Return inertia and score (minus the inertia, as scikit-learn has it). One pass."""
        inertia = self.evaluate(model, dataset, engine, callbacks).inertia
        return inertia, -inertia

    def examine(
        self,
        model: KMeansModel,
        dataset: Dataset,
        shown: int,
        most: int,
        engine: Any,
        callbacks: Sequence[Callback],
    ) -> Examination:
        """Return figures, and the nearest and farthest rows, of every cluster. One pass."""
        rows, params = for_metric(dataset, model.metric), _row_params(model, dataset)
        found = examine_rows(rows, params, shown, most, engine, callbacks)
        if found.sample is None:
            return found
        return replace(found, stability=stability(found.sample, model.n_clusters))


def _row_params(model: KMeansModel, dataset: Dataset, most: int = 1) -> RowParams:
    return RowParams(for_rows(model.centres, dataset.dtype), most, search=model.search)
