"""The job that labels rows with a saved model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from daskcluster.errors import InvalidParameterError
from daskcluster.events import Callback
from daskcluster.jobs.kinds import estimator_of
from daskcluster.jobs.opening import open_rows
from daskcluster.jobs.run import Run
from daskcluster.models.balance import ancestors, check_labels_alone
from daskcluster.models.kmeans import KMeansModel
from daskcluster.models.persist import load_document
from daskcluster.models.record import PredictRecord


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
    asked = dict(locals())
    run = Run("predict", asked)
    with run:
        before = run.begin(PredictRecord)
        if before is not None:
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
        dataset, chosen = open_rows(run, fitted.feature_names)
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
