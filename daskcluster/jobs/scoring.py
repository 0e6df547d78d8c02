"""The job that scores rows with a saved model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from daskcluster.events import Callback
from daskcluster.jobs.kinds import estimator_of
from daskcluster.jobs.opening import open_rows
from daskcluster.jobs.run import Run
from daskcluster.metrics.separation import SAMPLE_SIZE, measure
from daskcluster.models.persist import load_document
from daskcluster.models.record import ScoreRecord
from daskcluster.parameters.algorithm import check_measures


def score(
    model: str,
    source: Any,
    *,
    array: str | None = None,
    weights: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    flatten: bool = False,
    decode: bool | None = None,
    columns: Any = None,
    missing: str | None = None,
    grid: Mapping[str, Any] | None = None,
    metrics: Sequence[str] = (),
    sample_size: int | None = SAMPLE_SIZE,
    random_state: int | None = None,
    name: str | None = None,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
) -> ScoreRecord:
    """Return the inertia of `source` under a saved model.

    Parameters
    ----------
    model : str
        URL of a saved model.
    source, array, weights, storage_options, flatten, decode, columns, missing, grid, name, engine
    callbacks
        See `fit`. By default, rows that lack a value are treated as in the fit of the model.
    metrics : sequence of str
        Measures of the model's clustering of these rows; names of
        `daskcluster.parameters.algorithm.MEASURES`. Silhouettes use the model's metric.
    sample_size, random_state
        Sample of the silhouette; see `daskcluster.metrics.silhouette`.

    Raises
    ------
    ModelFormatError
    InvalidDataError
        The rows have another number of features than the model.
    InvalidParameterError
        A measure is unknown, or undefined since all rows are in one cluster.

    Notes
    -----
    Cost: one pass, and the passes of the measures, which are shared between them. To leave out rows that
    lack a value takes one more.
    """
    asked = dict(locals())
    wanted = check_measures(metrics)
    run = Run("score", asked)
    with run:
        run.hold()
        fitted = load_document(model, storage_options)
        opened, chosen = open_rows(run, fitted.feature_names)
        estimator = estimator_of(fitted, chosen)
        dataset: Any = estimator.known_rows(opened, complete=True)
        inertia, value = estimator.scores(dataset, run.callbacks)
        found = None
        if wanted:
            found = measure(
                dataset.with_facts(normalize=False),
                estimator.label_function(dataset.dtype),
                fitted.n_clusters,
                wanted,
                metric=str(fitted.facts().get("metric", "euclidean")),
                sample_size=sample_size,
                random_state=random_state,
                engine=chosen,
                callbacks=run.callbacks,
            )
        common = run.counters.common(dataset)
        return run.done(
            ScoreRecord(model=str(model), inertia=inertia, score=value, metrics=found, **common)
        )
