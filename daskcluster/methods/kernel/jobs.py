"""Jobs on a kernel k-means model: labels and scores, by distances in the space of the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from daskcluster.chunkwise.assign import ScoreStatistics, prepare_rows
from daskcluster.chunkwise.labelled import ComputedLabels
from daskcluster.engine.choose import choose_engine
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.events import Callback
from daskcluster.methods.kernel.chunkwise.centres import GramCentres, GramRowParams, label_by_gram
from daskcluster.methods.kernel.chunkwise.gram import CALLABLE
from daskcluster.methods.kernel.initial import measure_by_gram, refuse_distances
from daskcluster.methods.kernel.model import KernelKMeansModel
from daskcluster.typing import Dataset


class KernelJobs:
    """Operations of jobs on rows under a `KernelKMeansModel`."""

    def row_labels(self, model: KernelKMeansModel, dataset: Dataset) -> ComputedLabels:
        """Return the computation of labels for rows of `dataset`."""
        params = GramRowParams.of(_centres(model))
        return ComputedLabels(label_by_gram, params, prepare_rows)

    def evaluate(
        self, model: KernelKMeansModel, dataset: Dataset, engine: Any, callbacks: Sequence[Callback]
    ) -> ScoreStatistics:
        """Return size, weight and cost of every cluster on `dataset`. One pass."""
        centres = _centres(model)
        refuse_distances(centres)
        if centres.gram.is_precomputed and dataset.n_rows != dataset.n_features:
            raise InvalidDataError(
                f"rows of shape ({dataset.n_rows}, {dataset.n_features}) should be the square matrix of "
                "the fit: with a precomputed kernel, K(x, x) of other rows is not known."
            )
        with choose_engine(engine, dataset).place(dataset, callbacks=callbacks) as placement:
            return measure_by_gram(placement, centres)

    def score(
        self, model: KernelKMeansModel, dataset: Dataset, engine: Any, callbacks: Sequence[Callback]
    ) -> tuple[float, float]:
        """Return inertia and score (minus the inertia). One pass."""
        inertia = self.evaluate(model, dataset, engine, callbacks).inertia
        return inertia, -inertia


def _centres(model: KernelKMeansModel) -> GramCentres:
    if model.gram.name == CALLABLE:
        raise InvalidParameterError(
            "the model was fitted with a callable kernel, which is not saved with it; load it with "
            "daskcluster.load_model, restore the function with set_params(kernel=...), and predict."
        )
    return model.gram_centres()
