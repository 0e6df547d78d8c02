"""Rows under saved models: the jobs that label and score them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pkgutil import resolve_name
from typing import Any

from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.examples import MOST_RANKED, Examination
from daskcluster.events import Callback
from daskcluster.jobs.run import Run
from daskcluster.metrics.separation import SAMPLE_SIZE, measure
from daskcluster.models.balance import ancestors, check_labels_alone
from daskcluster.models.fitted import KMeansModel, Model, load_document
from daskcluster.models.record import PredictRecord, ScoreRecord
from daskcluster.parameters.algorithm import check_measures
from daskcluster.reports.tables import Rows, rows_of_record

ESTIMATORS: dict[str, str] = {
    "kmeans": "daskcluster.methods.kmeans.estimator:KMeans",
    "hierarchical-kmeans": "daskcluster.methods.hierarchical.estimator:HierarchicalKMeans",
    "partitions": "daskcluster.methods.partition.partitioning:PartitionRows",
    "mixture": "daskcluster.methods.mixture.estimator:VariationalGaussianMixture",
    "kernel-kmeans": "daskcluster.methods.kernel.estimator:KernelKMeans",
    "graph-kmeans": "daskcluster.methods.kernel.estimator:KernelKMeans",
}
"""Import paths of estimators by kind of model, as in `daskcluster.models.fitted.KINDS`."""


def estimator_of(model: Model, engine: Any = None) -> Any:
    """Return an estimator that has results for rows under a model, on an engine."""
    kind: Any = resolve_name(ESTIMATORS[model.kind])
    return kind.from_model(model).set_params(engine=engine)


def examine(
    model: Model,
    dataset: Any,
    *,
    shown: int = 0,
    most: int = MOST_RANKED,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
) -> Examination:
    """Return size, weight and cost of every cluster, and its `most` nearest and farthest rows.

    Kernel k-means has no examples, since its centres are not points in the space of the rows.

    Parameters
    ----------
    dataset : anything that estimators take
    shown : int
        Number of clusters, from the largest, for which the example rows are returned as well. If it is
        positive, so is a sample of 10,000 rows, for silhouettes and the stability of k-means.

    Notes
    -----
    Cost: one pass with k + 1 distances per row. Each worker returns at most 40 k (`most` + 1) bytes, its
    part of the sample, and example rows of all clusters if these take at most 64 MiB; else those of the
    `shown` clusters are read once more.
    """
    estimator = estimator_of(model, engine)
    rows = estimator.known_rows(dataset, complete=True)
    found: Examination = estimator.examine(rows, shown, most, callbacks)
    return found


def predict(
    model: str,
    source: Any,
    *,
    output: str,
    posteriors: str | None = None,
    n_nearest: int | None = None,
    distances: bool = False,
    level: int = 1,
    array: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    flatten: bool = False,
    decode: bool | None = None,
    columns: Any = None,
    missing: str | None = None,
    grid: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    resume: bool = False,
    name: str | None = None,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
) -> PredictRecord:
    """Write the label of every row of `source` to `output`: a Zarr array, or a file with ids.

    Parameters
    ----------
    model : str
        URL of a saved model.
    source, array, storage_options, flatten, decode, columns, missing, grid, overwrite, name, engine
    callbacks
        See `fit`. By default, rows that lack a value are treated as in the fit of the model.
    output : str
        URL of the labels, which appear there only when complete. A file if it ends in .parquet, .csv (both
        with ids) or .npy, else a 1-D int32 Zarr array; with `distances` a Zarr group of ``label`` and
        ``distance``. Of the cells of a grid, a map in a Zarr group, or a GeoTIFF if it ends in .tif.
    posteriors : str, optional
        For a mixture: URL of a Zarr group with ``components`` (int32) and ``probabilities`` (float32), the
        largest posteriors of every row.
    n_nearest : int, optional
        Write that many nearest centres of every row, nearest first.
    distances : bool
        Also write Euclidean distances.
    level : int
        For a model of several levels: write the clusters of this one, from 1.
    resume : bool
        Resume an interrupted call: finished chunks of the outputs are not computed again. Finished chunks
        of this call are kept if it is interrupted, too.

    Raises
    ------
    ModelFormatError, OutputExistsError
        The model is damaged or an output exists; raised before any work.
    InvalidDataError
        The rows have another number of features than the model.

    Notes
    -----
    Cost: one pass; one more for `posteriors`. With `missing`, and for a grid with ``nodata`` or a GeoTIFF,
    finding what is missing takes one more first, or two (see `daskcluster.open_dataset`).
    """
    with Run("predict", locals()) as run:
        if (before := run.begin(PredictRecord)) is not None:
            return before
        fitted = load_document(model, storage_options)
        parents = ancestors(getattr(fitted, "parents", ()), level)
        if posteriors is not None and fitted.kind != "mixture":
            raise InvalidParameterError(
                f"a model of kind {fitted.kind!r} has no posteriors; leave posteriors out, or give a model "
                "of kind 'mixture'."
            )
        if parents is not None:
            check_labels_alone(level, n_nearest=n_nearest, distances=distances)
        if not isinstance(fitted, KMeansModel) and (n_nearest is not None or distances):
            raise InvalidParameterError(
                f"a model of kind {fitted.kind!r} has no nearest centres; leave n_nearest and distances "
                "out."
            )
        dataset, chosen = run.open_rows(fitted.feature_names)
        estimator = estimator_of(fitted, chosen)
        dataset = estimator.known_rows(dataset)
        run.begin_output()
        options: dict[str, Any] = {
            "overwrite": run.overwrite,
            "storage_options": storage_options,
            "callbacks": run.callbacks,
            "resume": resume or run.is_resumed,
        }

        def write_posteriors() -> None:
            if posteriors is not None:
                estimator.save_posteriors(dataset, posteriors, **options)

        # Labels are published last: until they exist, the same call resumes.
        options_of_labels = options | {"output": output, "before_end": write_posteriors}
        if isinstance(fitted, KMeansModel):
            nearest: dict[str, Any] = {"n_nearest": n_nearest, "return_distance": distances}
            estimator.predict_level(dataset, parents, **nearest, **options_of_labels)
        else:
            estimator.map_rows(dataset, estimator.label_function, **options_of_labels)
        return run.done(
            PredictRecord(
                model=str(model),
                output=output,
                posteriors=posteriors,
                **run.counters.common(dataset),
            )
        )


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
    asked = locals()
    wanted = check_measures(metrics)
    with Run("score", asked) as run:
        run.hold()
        fitted = load_document(model, storage_options)
        opened, chosen = run.open_rows(fitted.feature_names)
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


def lines_of_score(record: Mapping[str, Any]) -> Rows:
    """Return a score as lines of text, with the measured values."""
    measured = [
        (name.replace("-", " "), f"{value:.6g}")
        for name, value in (record["metrics"] or {}).items()
    ]
    return [*rows_of_record(record), *measured]
