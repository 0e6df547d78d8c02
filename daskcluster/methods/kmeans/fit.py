"""One call of ``KMeans.fit``: its restarts, their final figures, and what a dry run says of them."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from daskcluster.chunk import compute_dtype
from daskcluster.chunkwise.assign import RowParams, nearest_function
from daskcluster.chunkwise.feature_scaling import FeatureScaling
from daskcluster.chunkwise.pruned import search_bytes
from daskcluster.data.csr import csr_of
from daskcluster.engine.memory import Footprint
from daskcluster.engine.scaled import ScaledPlacement, score_rows
from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.fit import Fit, FitRun
from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.plan import PassTraffic, Plan, centres_bytes
from daskcluster.estimators.rows import results_of_rows
from daskcluster.events import SeedingEnded, StopReason, publish
from daskcluster.methods.kmeans.algorithm import lloyd
from daskcluster.methods.kmeans.assignment import few_rows, search_for
from daskcluster.methods.kmeans.bounds import BOUNDS, AssignmentChoice, automatic, fallbacks
from daskcluster.methods.kmeans.initial import (
    initial_centres,
    is_auto,
    method_for,
    restarts_for,
    seeding_of,
    warn_of_one_start,
)
from daskcluster.models.fitted import FitResult
from daskcluster.parameters import shared
from daskcluster.randomness import Key
from daskcluster.typing import Dataset

LABELS_SHARE = 1 / 16
"""Share of the room for state that labels may take if nobody has asked for them yet."""

_NO_BOUNDS = (
    "algorithm='elkan' doesn't make sense for a single cluster: there is no other centre to bound the "
    "distance to. Its result is that of 'lloyd'."
)


def measure_run(
    rows: ScaledPlacement,
    result: FitResult,
    labels: np.ndarray | None = None,
    *,
    labelled: bool,
) -> FitRun:
    """Compute the final inertia and cluster figures, and labels, row by row: one pass.

    Parameters
    ----------
    rows : ScaledPlacement
    result : FitResult
    labels : ndarray of shape (n,), int32, optional
        OUT. Room for labels in this process, or those of ``result.centres`` already
        (``result.labelled``).
    labelled : bool
        Labels are requested; without room for them, that takes one more pass. If they are not, they are
        kept where the pass can write them to this process and they take little of its memory.
    """
    centres, known = result.centres, labels is not None and result.labelled
    placement, n_rows = rows.placement, rows.placement.dataset.n_rows
    if labels is None and placement.shares_memory:
        size = np.dtype(np.int32).itemsize * n_rows
        if size <= LABELS_SHARE * placement.state_room():
            labels = np.full(n_rows, -1, np.int32)
    search = search_for(centres, rows, partial(few_rows, rows))
    found = score_rows(rows, centres, labels, labelled=known, search=search)
    if labels is not None and labels.min() < 0:
        labels = None  # an earlier process measured some of the rows and kept the total alone
    if labelled and labels is None:
        params = RowParams(centres, search=search)
        labels = results_of_rows(placement, nearest_function(params))
    return FitRun(result, found, labels, search if search is not None and search.pays else None)


class SeededFit(Fit):
    """A `Fit` whose first centres come from ``init=``."""

    def seeded(self, rows: ScaledPlacement, key: Key) -> np.ndarray:
        """Return the first centres (k, d), chosen among `rows` with the draws of `key`."""
        dataset, traffic = rows.placement.dataset, rows.placement.traffic
        self.method = self.method_on(dataset)
        began, passes = time.perf_counter(), traffic.passes
        centres = self.chosen(rows, key.derived_seed())
        seconds = time.perf_counter() - began
        publish(self.callbacks, SeedingEnded(self.method, traffic.passes - passes, seconds))
        return centres

    def method_on(self, dataset: Dataset) -> str:
        """Return the name of the method that chooses centres among the rows of `dataset`."""
        return method_for(self.init, in_memory=dataset.in_memory)

    def chosen(self, rows: ScaledPlacement, seed: int) -> np.ndarray:
        """Return centres (k, d) chosen by `method`."""
        return initial_centres(
            self.method if is_auto(self.init) else self.init,
            rows,
            self.n_clusters,
            seed,
            source=self.source,
            chain_length=self.estimator.chain_length,
        )


@dataclass(frozen=True)
class KMeansState:
    """State of a fit between two iterations.

    Attributes
    ----------
    restart : int
        Number of the current restart.
    centres : ndarray of shape (k, d)
    history, reason
        History of the current restart, see `daskcluster.estimators.loop.LoopState`.
    best : FitResult or None
        Best result of the earlier restarts.
    """

    restart: int
    centres: np.ndarray
    history: Sequence[dict[str, Any]] = ()
    reason: StopReason | None = None
    best: FitResult | None = None


class KMeansFit(SeededFit):
    """One call of fit: places the rows, runs the restarts, keeps the best."""

    def prepare(self) -> None:
        estimator, dataset = self.estimator, self.dataset
        self.name = estimator.algorithm
        self.method = method_for(estimator.init, in_memory=dataset.in_memory)
        self.restarts = restarts_for(self.method, estimator.n_init, in_memory=dataset.in_memory)
        warn_of_one_start(estimator, self.method, stacklevel=5)
        if estimator.algorithm == "elkan" and estimator.n_clusters == 1:
            warnings.warn(_NO_BOUNDS, RuntimeWarning, stacklevel=5)
        self.choice = AssignmentChoice(
            estimator.algorithm,
            estimator.n_clusters,
            estimator.bounds_memory,
            self.callbacks,
            max_iter=estimator.max_iter,
        )

    def footprint(self) -> Footprint:
        estimator = self.estimator
        return fit_footprint(self.dataset, self.n_clusters, self.method, estimator.chain_length)

    def learn(self, rows: ScaledPlacement, stack: ExitStack) -> FitRun:
        shape = (self.n_clusters, self.dataset.n_features)
        resumed = self.resumed(KMeansState, {"centres": shape, "best_centres": shape})
        return self.best_restart(resumed, self.measured, lambda run: run.found.inertia)

    def begin(self, restart: int, best: FitResult | None) -> KMeansState:
        assert self.rows is not None
        centres = self.seeded(self.rows, Key(self.seed, "restart", restart))
        # The labels of the best restart stay behind.
        best = None if best is None else replace(best, labelled=False)
        state = KMeansState(restart, centres, best=best)
        self.keep_step(state)
        return state

    def finish(self, state: KMeansState) -> tuple[FitResult, FitRun]:
        rows, estimator = self.rows, self.estimator
        assert rows is not None
        labels = self.kept_labels(rows.placement)
        with closing(self.choice(rows, labels)) as assign:
            end = lloyd(
                rows,
                state,
                self.limits(),
                assign=assign,
                tol=estimator.tol,
                labels=labels,
                keep=self.keep_step,
                validate=self.validate,
            )
        self.stopped = end.reason is StopReason.CALLBACK
        run = self.measured(FitResult.of(end, None if labels is None else state), labels)
        return run.result, run

    def measured(self, result: FitResult, labels: np.ndarray | None = None) -> FitRun:
        """Return the final figures of a restart; see `measure_run`."""
        assert self.rows is not None
        if labels is None:
            labels = self.kept_labels(self.rows.placement)
        return measure_run(self.rows, result, labels, labelled=self.labelled)


# -- rows that lack values ---------------------------------------------------------------------------


def fit_partial(estimator: Any, X: Any, sample_weight: Any) -> tuple[FitRun, KMeansFit]:
    """Fit rows opened with ``missing="partial"``; return the result, and the fit of its attributes.

    The inertia is that of the values that are there: the sum over rows of the squared distances to the
    nearest centre, both taken over the features of the row.

    Raises
    ------
    InvalidParameterError
        The cosine metric, a checkpoint, or validation rows.

    Notes
    -----
    Cost: a fit of rows filled with the means of their features, then short fits that start from its
    centres, one for each round, and a last pass.

    Chi, Chi and Baraniuk, "k-POD: a method for k-means clustering of missing data" (The American
    Statistician, 2016), algorithm 1: rows are filled with the values of their centre and clustered, again
    and again, which never raises the inertia. Here a row is filled each time it is read.
    """
    given = estimator.checkpoint, estimator.validation
    if estimator.metric != "euclidean" or any(each is not None for each in given):
        raise InvalidParameterError(
            "rows opened with missing='partial' are fitted with metric='euclidean' and without checkpoint "
            "and validation; use missing='mean' for others."
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


def _begin(estimator: Any, X: Any, sample_weight: Any = None) -> KMeansFit:
    return estimator.begin_fit(KMeansFit, X, sample_weight)


def _refilled(dataset: Any, centres: np.ndarray) -> Any:
    """Return the rows with the values of their nearest centre in place of what they lack."""
    return dataset.with_scaling(FeatureScaling.of_clusters(centres))


# -- dry runs -----------------------------------------------------------------------------------------

_COPIES = 2
"""Rows that have been drawn are joined: for a moment they are there twice."""


def fit_footprint(
    dataset: Dataset, n_clusters: int, method: str, chain_length: int = shared.CHAIN_LENGTH.default
) -> Footprint:
    """Return what k-means needs per thread, per row and per process.

    Parameters
    ----------
    dataset : Dataset
    n_clusters : int
    method : str
        Method of seeding among all rows, as `method_for` names it; another word where a sample is enough.
    chain_length : int
        Length of the chains of ``"afk-mc2"``.
    """
    statistics = statistics_bytes(dataset, n_clusters)
    panels = 2 * 4 * (n_clusters + 64) * (dataset.n_features + 1)
    seeding = seeding_of(method)
    drawn = seeding.task_rows(n_clusters) * _row_bytes(dataset)
    held = seeding_bytes(dataset, n_clusters, method, chain_length)
    searched = search_bytes(n_clusters, dataset.n_features, compute_dtype(dataset.dtype))
    return Footprint(2 * statistics + panels + searched + drawn, seeding.row_bytes, held)


def statistics_bytes(dataset: Dataset, n_clusters: int) -> int:
    """Return the bytes of the sums and weights of clusters: on two grids where one is not exact."""
    grids = 2 if dataset.weights is not None or dataset.dtype.itemsize == 8 else 1
    return 8 * n_clusters * (dataset.n_features + 1) * grids


def seeding_bytes(
    dataset: Dataset, n_clusters: int, method: str, chain_length: int = shared.CHAIN_LENGTH.default
) -> int:
    """Return the bytes of rows that a seeding holds in one process: candidates, or proposals."""
    drawn = seeding_of(method).process_rows(n_clusters, chain_length)
    return _COPIES * min(drawn, dataset.n_rows) * _row_bytes(dataset)


def _row_bytes(dataset: Dataset) -> int:
    """Return the bytes of a row that has been drawn, on average, with its number and its key."""
    size = compute_dtype(dataset.dtype).itemsize * dataset.n_features
    if csr_of(dataset) is not None:
        size = dataset.row_bytes  # type: ignore[attr-defined]
    return size + 16


def plan_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return what a fit with `parameters` takes on `dataset`; see `daskcluster.estimators.plan`."""
    n_clusters = int(parameters["n_clusters"])
    check_enough_rows(dataset, n_clusters)
    method = method_for(parameters["init"], in_memory=dataset.in_memory)
    seeding = seeding_of(method).passes(n_clusters)
    restarts = restarts_for(method, parameters["n_init"], in_memory=dataset.in_memory)
    budget = parameters["bounds_memory"]
    states = bounds_bytes(dataset, n_clusters, parameters["algorithm"])
    return Plan(
        seeding=method,
        passes_seeding=seeding,
        restarts=restarts,
        passes_at_most=(seeding + int(parameters["max_iter"]) + 1) * restarts,
        footprint=fit_footprint(dataset, n_clusters, method, int(parameters["chain_length"])),
        flop=pass_flop(dataset, n_clusters),
        states=states,
        states_at_most=None if budget == "auto" else int(budget),
        commit_bytes=centres_bytes(dataset, n_clusters) * (2 if restarts > 1 else 1),
        travel=travel(dataset, n_clusters, bounded=bool(states)),
    )


def travel(dataset: Dataset, n_clusters: int, *, bounded: bool) -> PassTraffic:
    """Return what a pass sends: centres (with bounds, those before them as well), and sums back."""
    sent = centres_bytes(dataset, n_clusters) * (2 if bounded else 1)
    return PassTraffic(sent, statistics_bytes(dataset, n_clusters))


def pass_flop(dataset: Dataset, n_clusters: int) -> float:
    """Return the operations of one pass that computes all distances."""
    csr = csr_of(dataset)
    values = dataset.n_rows * dataset.n_features if csr is None else csr.n_entries
    return 2.0 * values * n_clusters


def bounds_bytes(dataset: Dataset, n_clusters: int, algorithm: str) -> dict[str, int]:
    """Return the bytes of each kind of bounds that the algorithm may keep."""
    if algorithm == "lloyd" or csr_of(dataset) is not None:
        return {}
    dtype = compute_dtype(dataset.dtype)
    kinds = (
        automatic(dataset.n_features, n_clusters, dtype)
        if algorithm == "auto"
        else fallbacks(BOUNDS[algorithm])
    )
    return {str(kind): dataset.n_rows * kind.row_bytes(n_clusters, dtype) for kind in kinds}
