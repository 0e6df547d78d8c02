"""The job that fits a model with any algorithm of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from daskcluster.data.label_files import check_map
from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.base import CentreEstimator
from daskcluster.estimators.labels import Labels
from daskcluster.events import Callback
from daskcluster.jobs.opening import open_rows
from daskcluster.jobs.run import Run
from daskcluster.methods.catalogue import ALGORITHMS
from daskcluster.models.persist import Model
from daskcluster.models.record import FitRecord
from daskcluster.parameters.checks import check_arguments
from daskcluster.storage.checkpoint import noting_stored_state
from daskcluster.storage.files import check_space
from daskcluster.storage.location import locate

_LABEL_BYTES = 4


def fit(
    source: Any,
    *,
    n_clusters: int,
    model: str,
    algorithm: str = "auto",
    random_state: int | None = None,
    array: str | None = None,
    weights: Any = None,
    labels: str | None = None,
    distances: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    flatten: bool = False,
    decode: bool | None = None,
    columns: Any = None,
    missing: str = "error",
    grid: Mapping[str, Any] | None = None,
    scale: str | None = None,
    overwrite: bool = False,
    resume: bool = False,
    name: str | None = None,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
    **parameters: Any,
) -> FitRecord:
    """Cluster `source`, save the model and, with `labels`, the label of every row.

    Parameters
    ----------
    source : URL, or anything `open_dataset` takes
    n_clusters : int
    model : str
        URL of the model to write.
    algorithm : str
        A name of `daskcluster.methods.catalogue.ALGORITHMS`, which lists its estimator.
    random_state : int, optional
    array : str, optional
        Name of the array, where `source` is a Zarr group.
    weights : str or array-like of shape (n,), optional
        Row weights: an array's name in the same group, a URL, or values.
    labels : str, optional
        URL of the labels to write: a file if it ends in .parquet, .csv (both with ids) or .npy, else a 1-D
        int32 Zarr array. Of the cells of a grid, a map in a Zarr group, or a GeoTIFF if it ends in .tif.
    distances : bool
        Also write Euclidean distances: labels become a Zarr group, or a table with both columns.
    storage_options : mapping, optional
        Options of the file system for all URLs.
    flatten : bool
        Read an array of shape (..., d) as rows; see `daskcluster.open_dataset`.
    decode : bool, optional
        Whether attributes of a stored array decode its numbers; see `daskcluster.open_dataset`.
    columns : str, sequence of str or mapping, optional
        Of a table: names of the columns of features, or a mapping with any of ``columns``, ``drop``
        and ``id_column`` as `daskcluster.open_dataset` has them.
    missing : {"error", "drop", "mean", "partial"}
        Rows that lack a value; see `daskcluster.open_dataset`. Takes one pass or two. Cells of a grid that
        lack one are left out by default.
    grid : mapping, optional
        ``features``, ``nodata``, ``select`` and ``dequantize`` as `daskcluster.open_grid` has them, if the
        source is a grid. Labels in Zarr then have its shape.
    scale : {"standard", "minmax"}, optional
        Scale the features first, in one extra pass; see `daskcluster.open_dataset`. The model stores the
        scale and applies it to new rows.
    overwrite : bool
        Replace existing outputs.
    resume : bool
        Resume from the state under the parameter ``checkpoint``, a URL; see `daskcluster.KMeans.fit`.
        Chunks of `labels` that an interrupted call finished are not computed again.
    name : str, optional
        Name of the job, which makes it re-entrant. The job saves its state next to the model until it is
        done. Called again under its name, it resumes from there, or returns its record if it was done. In a
        Dask task, the default is the key of the task.
    engine : see `daskcluster.KMeans`
    callbacks : sequence of callables
        Called with the events of `daskcluster.events`.
    **parameters
        Further parameters of the estimator, e.g. ``init``, ``max_iter``, ``tol``, ``max_time``.

    Returns
    -------
    FitRecord

    Raises
    ------
    OutputExistsError
        An output exists; raised before any work.
    InvalidParameterError
        An invalid parameter, or one that the algorithm does not have.
    InvalidDataError, MemoryLimitError
    JobCancelledError, LeaseError
        The job was cancelled, or another job or run writes the model.

    Notes
    -----
    Cost: that of the estimator; one more pass with `labels`, unless k-means runs on threads of this process
    with room for them. With a name, writes a few small objects next to the model and its checkpoints.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[0.0, 0], [0, 1], [9, 9], [9, 8]])
    >>> url = "memory://example/model.zarr"
    >>> record = fit(rows, n_clusters=2, model=url, random_state=0, overwrite=True)
    >>> record.inertia, record.stop_reason
    (1.0, 'converged')
    """
    asked = dict(locals())
    given = {"n_clusters": n_clusters, **parameters}
    if random_state is not None:
        given["random_state"] = random_state
    if given.get("checkpoint") is not None:
        given["checkpoint"] = locate(given["checkpoint"], storage_options)
    ALGORITHMS.check(algorithm, given)
    check_arguments(ALGORITHMS[algorithm], given)
    if distances and labels is None:
        raise InvalidParameterError(
            "distances=True adds distances to the labels, and no labels are written; give labels=URL."
        )
    run = Run("fit", asked)
    with run, noting_stored_state(given.get("checkpoint")):
        before = run.begin(FitRecord)
        if before is not None:
            return before
        dataset, chosen = open_rows(run)
        if labels is not None:
            kind = np.dtype(np.float32 if distances else np.int32)
            check_map(labels, getattr(dataset, "grid", None), kind)
            check_space(labels, _LABEL_BYTES * dataset.n_rows, storage_options=storage_options)
        estimator = _estimator(algorithm, run.keeping(algorithm, given), chosen, run.callbacks)
        if distances and not isinstance(estimator, CentreEstimator):
            raise InvalidParameterError(
                f"algorithm={algorithm!r} has no centres, so there are no distances to them; leave "
                "distances out."
            )
        resume = run.resumes(algorithm, resume=resume)
        estimator.fit(dataset, **({"resume": True} if resume else {}))
        fitted: Model = estimator.to_model()
        run.counters.at_least(fitted.passes, fitted.bytes_read)
        run.begin_output()
        options: dict[str, Any] = {
            "overwrite": run.overwrite,
            "storage_options": None if storage_options is None else dict(storage_options),
        }
        save = partial(estimator.save, model, **options)
        # The model is written last: until it exists, the same call resumes.
        options |= {
            "callbacks": run.callbacks,
            "resume": resume or run.is_resumed,
            "before_end": save,
        }
        # Not `estimator.labels_`, which may compute them.
        known = vars(estimator).get("labels_")
        if labels is None:
            save()
        elif distances:
            estimator.predict_level(dataset, return_distance=True, output=labels, **options)
        elif isinstance(known, Labels):
            known.write(labels, **options)
        else:
            estimator.map_rows(dataset, estimator.label_function, output=labels, **options)
        common = run.counters.common(dataset)
        return run.done(
            FitRecord(
                model=str(model), labels=labels, algorithm=algorithm, **_facts(fitted), **common
            )
        )


def _estimator(
    algorithm: str, given: Mapping[str, Any], engine: Any, callbacks: tuple[Callback, ...]
) -> Any:
    # Imported here, since scikit-learn takes long to import and other jobs do not need it.
    from pkgutil import resolve_name

    entry = ALGORITHMS.find(algorithm)
    estimator = resolve_name(entry.estimator)
    return estimator(**entry.arguments(given), engine=engine, callbacks=callbacks)


def _facts(fitted: Model) -> dict[str, Any]:
    objectives = fitted.facts()
    return {
        "estimator": fitted.estimator,
        "n_clusters": fitted.n_clusters,
        "n_iter": fitted.n_iter,
        "stop_reason": fitted.stop_reason,
        "seeding": fitted.seeding,
        "inertia": objectives.get("inertia"),
        "lower_bound": objectives.get("lower_bound"),
    }
