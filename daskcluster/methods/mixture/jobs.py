"""Jobs on a Gaussian mixture: labels, posteriors, scores. Rows belong to their most probable component."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from daskcluster.chunkwise.assign import RowParams, ScoreStatistics, prepare_rows
from daskcluster.chunkwise.labelled import ComputedLabels
from daskcluster.data.sparse import SparseDataset
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.engine import Engine
from daskcluster.engine.memory import ONE_PASS
from daskcluster.engine.scaled import ScaledPlacement, score_rows
from daskcluster.errors import InvalidDataError
from daskcluster.estimators.examples import Examination, examine_rows
from daskcluster.events import Callback
from daskcluster.methods.mixture.chunkwise.rows import (
    MixtureRowParams,
    label_by_density,
)
from daskcluster.methods.mixture.chunkwise.statistics import Gaussians
from daskcluster.methods.mixture.model import MixtureModel
from daskcluster.methods.mixture.rows import gaussians_for, log_likelihood, save_posteriors
from daskcluster.typing import Dataset


class MixtureJobs:
    """Operations of jobs on rows under a `MixtureModel`."""

    def row_labels(self, model: MixtureModel, dataset: Dataset) -> ComputedLabels:
        """Return the computation of labels for rows of `dataset`."""
        params = MixtureRowParams.of(_gaussians(model, dataset))
        return ComputedLabels(label_by_density, params, prepare_rows)

    def write_posteriors(
        self,
        model: MixtureModel,
        dataset: Dataset,
        engine: Engine,
        url: str,
        *,
        overwrite: bool,
        storage_options: Mapping[str, Any] | None,
        callbacks: Sequence[Callback],
        resume: bool = False,
    ) -> None:
        """Write the posteriors of every row; see `save_posteriors`. One pass."""
        save_posteriors(
            dataset,
            engine,
            _gaussians(model, dataset),
            min(model.truncation, model.n_clusters),
            url,
            overwrite=overwrite,
            storage_options=storage_options,
            callbacks=callbacks,
            resume=resume,
        )

    def evaluate(
        self, model: MixtureModel, dataset: Dataset, engine: Any, callbacks: Sequence[Callback]
    ) -> ScoreStatistics:
        """Return size, weight and cost of every cluster, with rows of `dataset` at their nearest mean."""
        means = _gaussians(model, dataset).means
        chosen = choose_engine(engine, dataset)
        with chosen.place(dataset, callbacks=callbacks, footprint=ONE_PASS) as placement:
            return score_rows(ScaledPlacement(placement), means)

    def score(
        self, model: MixtureModel, dataset: Dataset, engine: Any, callbacks: Sequence[Callback]
    ) -> tuple[float, float]:
        """Return the inertia about the nearest means, and the mean log-density. Two passes."""
        gaussians = _gaussians(model, dataset)
        chosen = choose_engine(engine, dataset)
        with chosen.place(dataset, callbacks=callbacks, footprint=ONE_PASS) as placement:
            rows = ScaledPlacement(placement)
            inertia = score_rows(rows, gaussians.means).inertia
            total, weight = log_likelihood(rows, gaussians)
        return inertia, total / weight

    def examine(
        self,
        model: MixtureModel,
        dataset: Dataset,
        shown: int,
        most: int,
        engine: Any,
        callbacks: Sequence[Callback],
    ) -> Examination:
        """Return statistics and the nearest and farthest rows of every mean. One pass."""
        rows = RowParams(_gaussians(model, dataset).means)
        return examine_rows(dataset, rows, shown, most, engine, callbacks)


def _gaussians(model: MixtureModel, dataset: Dataset) -> Gaussians:
    if isinstance(dataset, SparseDataset):
        raise InvalidDataError(
            "a mixture takes dense rows, the source is sparse; project its rows to fewer features first."
        )
    return gaussians_for(
        dataset.dtype, model.centres, model.variances, model.mixing, model.covariance_type
    )
