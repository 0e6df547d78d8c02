"""k-means of rows that lack values, by the features that each row has (k-POD)."""

from __future__ import annotations

import copy
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.chunkwise.feature_scaling import FeatureScaling
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidParameterError
from daskcluster.events import StopReason
from daskcluster.methods.kmeans.base import KMeansRun, measure_run
from daskcluster.methods.kmeans.fit import KMeansFit

if TYPE_CHECKING:
    from daskcluster.methods.kmeans.estimator import KMeans


def fit_partial(estimator: KMeans, X: Any, sample_weight: Any) -> tuple[KMeansRun, KMeansFit]:
    """Fit rows opened with ``missing="partial"``; return the result, and the fit of its attributes.

    The inertia is that of the values that are there: the sum over rows of the squared distances to the
    nearest centre, both taken over the features of the row.

    Raises
    ------
    InvalidParameterError
        The cosine metric, or a checkpoint.

    Notes
    -----
    Cost: a fit of rows filled with the means of their features, then short fits that start from its
    centres, one for each round, and a last pass.

    Chi, Chi and Baraniuk, "k-POD: a method for k-means clustering of missing data" (The American
    Statistician, 2016), algorithm 1: rows are filled with the values of their centre and clustered, again
    and again, which never raises the inertia. Here a row is filled each time it is read.
    """
    if estimator.metric != "euclidean" or estimator.checkpoint is not None:
        raise InvalidParameterError(
            "rows opened with missing='partial' are fitted with metric='euclidean' and without checkpoint; "
            "use missing='mean' for others."
        )
    ends = None if estimator.max_time is None else time.monotonic() + estimator.max_time
    fit = _begin(estimator, X, sample_weight)
    dataset: Any = fit.dataset
    result = fit.run().result
    history, n_iter = list(result.history), result.n_iter
    passes, bytes_read, reason = fit.passes, fit.bytes_read, StopReason.MAX_ITER
    while n_iter < estimator.max_iter:
        before = result.centres
        twin = copy.copy(estimator)
        twin.init, twin.n_init, twin.max_iter = before, 1, estimator.max_iter - n_iter
        if ends is not None:
            twin.max_time = ends - time.monotonic()
            if twin.max_time <= 0:
                reason = StopReason.MAX_TIME
                break
        round_ = _begin(twin, _refilled(dataset, before))
        run = round_.run()
        result = run.result
        history += [{**each, "iteration": each["iteration"] + n_iter} for each in result.history]
        n_iter += result.n_iter
        passes, bytes_read = passes + round_.passes, bytes_read + round_.bytes_read
        moved = float(((result.centres.astype(np.float64) - before) ** 2).sum())
        if moved == 0.0:
            reason = StopReason.CONVERGED
            break
        # As in Lloyd's loop, relative to the variance of a feature, here within clusters.
        if moved <= estimator.tol * run.found.inertia / dataset.n_rows / dataset.n_features:
            reason = StopReason.TOLERANCE
            break
    fit = _begin(estimator, _refilled(dataset, result.centres))
    with fit.engine.place(fit.dataset, callbacks=fit.callbacks) as placement:
        result = replace(result, n_iter=n_iter, stop_reason=reason, history=history, labelled=False)
        best = measure_run(ScaledPlacement(placement), result, labelled=False)
        fit.passes = passes + placement.traffic.passes
        fit.bytes_read = bytes_read + placement.traffic.bytes_read
    return best, fit


def _begin(estimator: KMeans, X: Any, sample_weight: Any = None) -> KMeansFit:
    return estimator.begin_fit(KMeansFit, X, sample_weight)


def _refilled(dataset: Any, centres: np.ndarray) -> Any:
    """Return the rows with the values of their nearest centre in place of what they lack."""
    return dataset.with_scaling(FeatureScaling.of_clusters(centres))
