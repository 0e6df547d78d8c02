"""Whole pieces of work as plain functions: URLs and numbers in, a small record out.

They are called directly, by the command line, or through ``client.submit(jobs.fit, ..., pure=False)``:
no parameter is named like a keyword of ``Client.submit``. Outputs are checked before work starts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from daskcluster.chunk import compute_dtype
from daskcluster.chunkwise.assign import SCORE, AssignParams, RowParams, ScoreStatistics
from daskcluster.data.open import open_dataset
from daskcluster.data.staging import check_free as check_output_free
from daskcluster.data.stores import Location, locate
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.estimators.labels import save_rows
from daskcluster.events import Callback, Event, PassEnded
from daskcluster.models.kmeans import KMeansModel
from daskcluster.models.persist import check_free, load_document
from daskcluster.models.record import FitRecord, PredictRecord, ScoreRecord
from daskcluster.models.versions import created_with
from daskcluster.typing import Dataset


class Tally:
    """Counts passes and bytes from the events of a job."""

    def __init__(self) -> None:
        self.passes = 0
        self.bytes_read = 0
        self._began = time.perf_counter()

    def __call__(self, event: Event) -> None:
        if isinstance(event, PassEnded):
            self.passes += 1
            self.bytes_read += event.bytes_read

    def common(self, dataset: Dataset) -> dict[str, Any]:
        """Return the fields that all records share."""
        return {
            "n_rows": dataset.n_rows,
            "n_features": dataset.n_features,
            "passes": self.passes,
            "bytes_read": self.bytes_read,
            "seconds": time.perf_counter() - self._began,
            "versions": created_with(),
        }


def fit(
    source: Any,
    *,
    n_clusters: int,
    model: str,
    algorithm: str = "auto",
    init: Any = "auto",
    n_init: int | str = "auto",
    max_iter: int = 300,
    tol: float = 1e-4,
    metric: str = "euclidean",
    random_state: int | None = None,
    verbose: int = 0,
    max_time: float | None = None,
    bounds_memory: int | str = "auto",
    array: str | None = None,
    weights: Any = None,
    labels: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    flatten: bool = False,
    overwrite: bool = False,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
) -> FitRecord:
    """Cluster `source`, save the model and, if asked, the label of every row.

    Parameters
    ----------
    source : URL, or anything `open_dataset` takes
    n_clusters : int
    model : str
        URL of the model to write.
    algorithm, init, n_init, max_iter, tol, metric, random_state, verbose, max_time, bounds_memory
        See `daskcluster.KMeans`.
    array : str, optional
        Name of the array, where `source` is a Zarr group.
    weights : str or array-like of shape (n,), optional
        Row weights: an array's name in the same group, a URL, or values.
    labels : str, optional
        URL of a 1-D int32 Zarr array to write.
    storage_options : mapping, optional
        For all URLs.
    flatten : bool
        Take an array of shape (..., d) as rows; see `daskcluster.open_dataset`.
    overwrite : bool
        Replace outputs that exist.
    engine : see `daskcluster.KMeans`
    callbacks : sequence of callables
        Hear the events of `daskcluster.events`.

    Returns
    -------
    FitRecord

    Raises
    ------
    OutputExistsError
        Before any work.
    InvalidParameterError, InvalidDataError, MemoryLimitError

    Notes
    -----
    Cost: see `daskcluster.KMeans`; one pass more with `labels`.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[0.0, 0], [0, 1], [9, 9], [9, 8]])
    >>> url = "memory://example/model.zarr"
    >>> record = fit(rows, n_clusters=2, model=url, random_state=0, overwrite=True)
    >>> record.inertia, record.stop_reason
    (1.0, 'converged')
    """
    tally = Tally()
    outputs = {"model": model, **({} if labels is None else {"labels": labels})}
    check_outputs(outputs, {"source": source, "weights": weights}, storage_options, overwrite)
    dataset = open_dataset(
        source, array=array, weights=weights, storage_options=storage_options, flatten=flatten
    )
    chosen = choose_engine(engine, dataset)
    # Scikit-learn takes longest to import, and of all jobs only this one needs it.
    from daskcluster.estimators.kmeans import KMeans

    estimator = KMeans(
        n_clusters,
        init=init,
        n_init=n_init,
        algorithm=algorithm,
        max_iter=max_iter,
        tol=tol,
        metric=metric,
        random_state=random_state,
        engine=chosen,
        callbacks=(*callbacks, tally),
        verbose=verbose,
        max_time=max_time,
        bounds_memory=bounds_memory,
    ).fit(dataset)
    fitted = estimator.to_model()
    estimator.save(model, overwrite=overwrite, storage_options=_options(storage_options))
    if labels is not None:
        watchers: tuple[Callback, ...] = (*callbacks, tally)
        _write_labels(fitted, dataset, chosen, labels, storage_options, overwrite, watchers)
    return FitRecord(
        model=str(model),
        labels=labels,
        n_clusters=n_clusters,
        inertia=fitted.inertia,
        n_iter=fitted.n_iter,
        stop_reason=fitted.stop_reason,
        seeding=fitted.seeding,
        **tally.common(dataset),
    )


def predict(
    model: str,
    source: Any,
    *,
    output: str,
    array: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    flatten: bool = False,
    overwrite: bool = False,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
) -> PredictRecord:
    """Write the label of every row of `source` to `output`, a 1-D int32 Zarr array.

    Parameters
    ----------
    model : str
        URL of a saved model.
    source, array, storage_options, flatten, overwrite, engine, callbacks
        See `fit`.
    output : str
        URL of the labels; whole or absent.

    Raises
    ------
    ModelFormatError, OutputExistsError
        Before any work.
    InvalidDataError
        The rows do not have the model's features.

    Notes
    -----
    Cost: one pass.
    """
    tally = Tally()
    check_outputs(
        {"output": output}, {"source": source, "model": model}, storage_options, overwrite
    )
    fitted = load_document(model, _options(storage_options))
    dataset = open_dataset(source, array=array, storage_options=storage_options, flatten=flatten)
    _check_features(fitted, dataset)
    chosen = choose_engine(engine, dataset)
    watchers: tuple[Callback, ...] = (*callbacks, tally)
    _write_labels(fitted, dataset, chosen, output, storage_options, overwrite, watchers)
    return PredictRecord(model=str(model), output=output, **tally.common(dataset))


def score(
    model: str,
    source: Any,
    *,
    array: str | None = None,
    weights: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    flatten: bool = False,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
) -> ScoreRecord:
    """Return the inertia of `source` under a saved model.

    Parameters
    ----------
    model : str
        URL of a saved model.
    source, array, weights, storage_options, flatten, engine, callbacks
        See `fit`.

    Raises
    ------
    ModelFormatError
    InvalidDataError
        The rows do not have the model's features.

    Notes
    -----
    Cost: one pass.
    """
    tally = Tally()
    fitted = load_document(model, _options(storage_options))
    dataset = open_dataset(
        source, array=array, weights=weights, storage_options=storage_options, flatten=flatten
    )
    found = evaluate(fitted, dataset, engine=engine, callbacks=(*callbacks, tally))
    return ScoreRecord(
        model=str(model), inertia=found.inertia, score=-found.inertia, **tally.common(dataset)
    )


def evaluate(
    model: KMeansModel, dataset: Dataset, *, engine: Any = None, callbacks: Sequence[Callback] = ()
) -> ScoreStatistics:
    """Return size, weight and cost of every cluster on `dataset`. One pass."""
    _check_features(model, dataset)
    params = _row_params(model, dataset)
    chosen = choose_engine(engine, dataset)
    with chosen.place(dataset, callbacks=callbacks) as placement:
        rows = ScaledPlacement(placement, unit=params.unit)
        found: ScoreStatistics = rows.reduce(
            SCORE, lambda scale: AssignParams(params.centres, scale, params.unit)
        )
    return found


def _write_labels(
    model: KMeansModel,
    dataset: Dataset,
    engine: Any,
    url: str,
    storage_options: Mapping[str, Any] | None,
    overwrite: bool,
    callbacks: Sequence[Callback],
) -> None:
    save_rows(
        dataset,
        engine,
        _row_params(model, dataset),
        url,
        overwrite=overwrite,
        storage_options=_options(storage_options),
        callbacks=callbacks,
    )


def _row_params(model: KMeansModel, dataset: Dataset) -> RowParams:
    centres = np.ascontiguousarray(model.centres, compute_dtype(dataset.dtype))
    return RowParams(centres, model.metric == "cosine")


def _options(storage_options: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if storage_options is None else dict(storage_options)


# -- checks before work ---------------------------------------------------------------------------


def _check_features(model: KMeansModel, dataset: Dataset) -> None:
    if dataset.n_features != model.n_features:
        raise InvalidDataError(
            f"X has {dataset.n_features} features, but the model is expecting {model.n_features} "
            "features as input; give it rows with the columns it was fitted on."
        )


def check_outputs(
    outputs: Mapping[str, str],
    inputs: Mapping[str, Any],
    storage_options: Mapping[str, Any] | None,
    overwrite: bool,
) -> None:
    """Refuse outputs that exist, that would replace an input, or each other.

    Parameters
    ----------
    outputs : mapping of str to URL
        A ``"model"``, or Zarr arrays under any other name.
    inputs : mapping of str to object
        Those that are URLs are compared.

    Raises
    ------
    OutputExistsError, InvalidParameterError
    """
    places = {name: locate(url, storage_options) for name, url in outputs.items()}
    read = {
        name: locate(value, storage_options)
        for name, value in inputs.items()
        if isinstance(value, str) or hasattr(value, "__fspath__")
    }
    for name, place in places.items():
        for other, input_place in read.items():
            if _holds(place, input_place):
                raise InvalidParameterError(
                    f"{name}={place.url!r} would replace the {other} {input_place.url!r}; write to "
                    "another URL."
                )
    if len({place.url for place in places.values()}) < len(places):
        raise InvalidParameterError(
            f"{' and '.join(places)} should be written to different URLs, both are "
            f"{next(iter(places.values())).url!r}."
        )
    for name, place in places.items():
        check = check_free if name == "model" else check_output_free
        check(place.url, overwrite=overwrite, storage_options=storage_options)


def _holds(outer: Location, inner: Location) -> bool:
    return f"{inner.url}/".startswith(f"{outer.url.rstrip('/')}/")
