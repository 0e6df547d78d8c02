"""Operations of jobs on rows, for each kind of model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from daskcluster.chunkwise.assign import ScoreStatistics
from daskcluster.chunkwise.labelled import ComputedLabels
from daskcluster.engine.engine import Engine
from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.examples import Examination
from daskcluster.estimators.labels import save_rows
from daskcluster.events import Callback
from daskcluster.methods.hierarchical.model import HierarchicalModel
from daskcluster.methods.kernel.graph import GraphKMeansModel
from daskcluster.methods.kernel.jobs import KernelJobs
from daskcluster.methods.kernel.model import KernelKMeansModel
from daskcluster.methods.kmeans.jobs import CentreJobs
from daskcluster.methods.mixture.jobs import MixtureJobs
from daskcluster.methods.mixture.model import MixtureModel
from daskcluster.methods.partition.model import PartitionJobs, PartitionModel
from daskcluster.models.kmeans import KMeansModel
from daskcluster.models.levels import ancestors, check_labels_alone
from daskcluster.models.persist import Model
from daskcluster.typing import Dataset


class ModelJobs(Protocol):
    """Operations that all models have. Rows are already known to have the model's features."""

    def row_labels(self, model: Any, dataset: Dataset) -> ComputedLabels:
        """Return the object that computes labels of rows of `dataset` in tasks."""
        ...

    def evaluate(
        self, model: Any, dataset: Dataset, engine: Any, callbacks: Sequence[Callback]
    ) -> ScoreStatistics:
        """Return size, weight and cost of every cluster on `dataset`."""
        ...

    def score(
        self, model: Any, dataset: Dataset, engine: Any, callbacks: Sequence[Callback]
    ) -> tuple[float, float]:
        """Return the inertia and the score of `dataset`."""
        ...


class ExampleJobs(Protocol):
    """Operations of models whose centres are points in the space of the rows."""

    def examine(
        self,
        model: Any,
        dataset: Dataset,
        shown: int,
        most: int,
        engine: Any,
        callbacks: Sequence[Callback],
    ) -> Examination:
        """Return the figures of every cluster, and its nearest and farthest rows."""
        ...


class PosteriorJobs(Protocol):
    """Operations of models that have posteriors."""

    def write_posteriors(
        self,
        model: Any,
        dataset: Dataset,
        engine: Engine,
        url: str,
        *,
        overwrite: bool,
        storage_options: Mapping[str, Any] | None,
        callbacks: Sequence[Callback],
        resume: bool = False,
    ) -> None:
        """Write the largest posteriors of every row to `url`, a Zarr group."""
        ...


JOBS: dict[str, ModelJobs] = {
    KMeansModel.kind: CentreJobs(),
    HierarchicalModel.kind: CentreJobs(),
    PartitionModel.kind: PartitionJobs(),
    MixtureModel.kind: MixtureJobs(),
    KernelKMeansModel.kind: KernelJobs(),
    GraphKMeansModel.kind: KernelJobs(),
}
"""Operations by kind of model, as in `daskcluster.models.persist.KINDS`."""

EXAMPLES: dict[str, ExampleJobs] = {
    KMeansModel.kind: CentreJobs(),
    HierarchicalModel.kind: CentreJobs(),
    MixtureModel.kind: MixtureJobs(),
}
"""The kinds of model whose centres are points in the space of the rows."""

POSTERIORS: dict[str, PosteriorJobs] = {MixtureModel.kind: MixtureJobs()}
"""The kinds of model that have posteriors."""


def check_posteriors(model: Model) -> None:
    """Raise if the model has no posteriors.

    Raises
    ------
    InvalidParameterError
    """
    if model.kind not in POSTERIORS:
        raise InvalidParameterError(
            f"a model of kind {model.kind!r} has no posteriors; leave posteriors out, or give a model of "
            f"kind {' or '.join(map(repr, POSTERIORS))}."
        )


def write_labels(
    model: Model,
    dataset: Dataset,
    engine: Engine,
    url: str,
    *,
    overwrite: bool,
    storage_options: Mapping[str, Any] | None,
    callbacks: Sequence[Callback],
    resume: bool = False,
    before_end: Callable[[], None] = lambda: None,
    n_nearest: int | None = None,
    return_distance: bool = False,
    level: int = 1,
    computed: np.ndarray | None = None,
) -> None:
    """Write the label of every row to `url`, a Zarr array or a file; see `save_rows`.

    The rows must have the model's features and be on its scale. Above `level` 1, labels are the clusters of
    that level. One pass, none if labels are `computed`.

    Raises
    ------
    InvalidParameterError
        Nearest centres or distances of a model that has no centres, or of a level above the first; a level
        that the model does not have.
    """
    labels = JOBS[model.kind].row_labels(model, dataset)
    parents = ancestors(getattr(model, "parents", ()), level)
    if parents is not None:
        check_labels_alone(level, n_nearest=n_nearest, distances=return_distance)
        labels = replace(labels, params=replace(labels.params, parents=parents))
    found: dict[str, Any] = {"fn": labels.fn, "params": labels.params}
    if n_nearest is not None or return_distance:
        nearest = getattr(JOBS[model.kind], "nearest", None)
        if nearest is None:
            raise InvalidParameterError(
                f"a model of kind {model.kind!r} has no nearest centres; leave n_nearest and distances out."
            )
        found = nearest(model, dataset, n_nearest, return_distance)
    save_rows(
        dataset.normalized() if labels.normalize else dataset,
        engine,
        url=url,
        overwrite=overwrite,
        storage_options=storage_options,
        callbacks=callbacks,
        resume=resume,
        before_end=before_end,
        computed=computed,
        **found,
    )


def evaluate(
    model: Model, dataset: Dataset, *, engine: Any = None, callbacks: Sequence[Callback] = ()
) -> ScoreStatistics:
    """Return size, weight and cost of every cluster on `dataset`. One pass."""
    dataset = model.features.align(dataset)
    return JOBS[model.kind].evaluate(model, dataset, engine, callbacks)


def examine(
    model: Model,
    dataset: Dataset,
    *,
    shown: int = 0,
    most: int = 5,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
) -> Examination:
    """Return size, weight and cost of every cluster, and its `most` nearest and farthest rows.

    Kernel k-means has no examples, since its centres are not points in the space of the rows.

    Parameters
    ----------
    shown : int
        Number of clusters, from the largest, for which the example rows are returned as well. If it is
        positive, so is a sample of 10,000 rows, for silhouettes and the stability of k-means.

    Notes
    -----
    Cost: one pass with k + 1 distances per row. Each worker returns at most 40 k (`most` + 1) bytes, its
    part of the sample, and example rows of all clusters if these take at most 64 MiB; else those of the
    `shown` clusters are read once more.
    """
    dataset = model.features.align(dataset)
    jobs = EXAMPLES.get(model.kind)
    if jobs is None:
        found = JOBS[model.kind].evaluate(model, dataset, engine, callbacks)
        return Examination.of(found, dataset)
    return jobs.examine(model, dataset, shown, most, engine, callbacks)
