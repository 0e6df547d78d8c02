"""One call of ``VariationalGaussianMixture.fit``: checkpoints, projected cost, coreset, seeding, EM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daskcluster.elementary import log
from daskcluster.engine.engine import Placement, Traffic
from daskcluster.engine.local import LocalEngine, home_engine
from daskcluster.engine.memory import Footprint, check_limit
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.checkpoints import CheckpointDocument
from daskcluster.estimators.fit import FitRun
from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.loop import mean_distance
from daskcluster.estimators.plan import DriverWork, Plan, centres_bytes
from daskcluster.events import (
    StopReason,
)
from daskcluster.methods.coreset.estimator import (
    CORESET_PASSES,
    LightweightCoreset,
    coreset_bytes,
    coreset_footprint,
    coreset_travel,
)
from daskcluster.methods.coreset.start import sampled_start
from daskcluster.methods.kmeans.fit import (
    SeededFit,
    pass_flop,
    seeding_bytes,
    travel,
)
from daskcluster.methods.kmeans.initial import restarts_for, seeding_of, warn_of_one_start
from daskcluster.methods.mixture.algorithm import (
    SAVE_EVERY,
    SETTLED,
    SHARED_STEPS,
    EMSettings,
    EMState,
    variational_em,
)
from daskcluster.methods.mixture.chunkwise.statistics import Gaussians, packed_size
from daskcluster.methods.mixture.model import SAMPLED, means_method, start_of, variances_shape
from daskcluster.methods.mixture.parameters import MATRICES
from daskcluster.randomness import Key
from daskcluster.storage.checkpoint import StateFiles
from daskcluster.storage.document import Document, Shapes
from daskcluster.storage.location import Location
from daskcluster.typing import Dataset


@dataclass(frozen=True)
class Attached:
    """Names of the folders that lie next to the commits.

    Attributes
    ----------
    coreset : str or None
        Commits of the coreset that is fitted.
    sets : str or None
        K(n) of all rows, written by the tasks.
    """

    coreset: str | None = None
    sets: str | None = None


@dataclass(frozen=True)
class MixtureState:
    """Progress of a fit.

    Attributes
    ----------
    attached : Attached
    centres : ndarray of shape (k, d), or None
        Initial means; None before they are chosen, and once EM has started.
    em : EMState or None
    restart : int
        Number of the current restart.
    best : EMState or None
        Result of the best of the previous restarts.
    """

    attached: Attached = Attached()
    centres: np.ndarray | None = None
    em: EMState | None = None
    restart: int = 0
    best: EMState | None = None


def plan_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return the projected cost of a fit with `parameters` on `dataset`.

    Passes over a coreset do not count. The candidate sets, 4 C' bytes per row, are part of the footprint.
    """
    k = int(parameters["n_components"])
    check_enough_rows(dataset, k)
    size = parameters["coreset_size"]
    if size is not None:
        return _plan_on_coreset(dataset, parameters, int(size))
    truncation, max_iter = min(int(parameters["truncation"]), k), int(parameters["max_iter"])
    method = means_method(parameters["init"], k, in_memory=dataset.in_memory)
    seeding = CORESET_PASSES if method == SAMPLED else seeding_of(method).passes(k)
    restarts = restarts_for(method, int(parameters["n_init"]), in_memory=True)
    before = 1 if truncation == k else int(parameters["warmup_steps"]) + 1
    return Plan(
        seeding=method,
        passes_seeding=seeding,
        restarts=restarts,
        passes_at_most=restarts
        * (seeding + before + max_iter + 1),  # + 1: the evaluation at the end
        footprint=mixture_footprint(dataset, parameters, method),
        flop=pass_flop(dataset, _components_met(parameters)) * _flop_share(dataset, parameters),
        commit_bytes=commit_bytes(dataset, parameters, dataset.n_rows),
        travel=travel(dataset, k, bounded=False),
        kernel="truncated",
    )


def _plan_on_coreset(dataset: Dataset, parameters: Mapping[str, Any], size: int) -> Plan:
    drawn, d = min(size, dataset.n_rows), dataset.n_features
    k = int(parameters["n_components"])
    iteration_flop = 2.0 * drawn * d * _components_met(parameters)
    iteration_flop *= _flop_share(dataset, parameters)
    max_iter = int(parameters["max_iter"])
    return Plan(
        seeding=means_method(parameters["init"], k, in_memory=True),
        passes_seeding=0,
        restarts=1,
        passes_at_most=CORESET_PASSES,
        footprint=coreset_footprint(dataset, size),
        flop=pass_flop(dataset, 1),
        commit_bytes=coreset_bytes(dataset, size) + commit_bytes(dataset, parameters, drawn),
        travel=coreset_travel(dataset, drawn),
        kernel="scan",
        afterwards=DriverWork("truncated", drawn, d, iteration_flop, max_iter),
    )


def _flop_share(dataset: Dataset, parameters: Mapping[str, Any]) -> float:
    """Return the operations of a distance relative to those of a squared Euclidean distance."""
    has_matrices = parameters["covariance_type"] in MATRICES
    return (dataset.n_features + 1) / 2 if has_matrices else 1.0


def _components_met(parameters: Mapping[str, Any]) -> int:
    """Return the maximum number of components that a row is compared with in an iteration."""
    k, q = int(parameters["n_components"]), int(parameters["truncation"])
    if q >= k:
        return k
    return min(k, q + int(parameters["n_neighbors"]) ** 2 + int(parameters["n_random"]))


def commit_bytes(dataset: Dataset, parameters: Mapping[str, Any], n_rows: int) -> int:
    """Return the bytes of a commit of EM on `n_rows` rows: mixture, neighbourhoods, sets of rows."""
    k, q = int(parameters["n_components"]), int(parameters["truncation"])
    mixture = step_bytes(dataset, k, parameters["covariance_type"]) + 8 * k
    if int(parameters["n_init"]) > 1:
        mixture *= 2  # also stores the best restart
    if q >= k:
        return mixture
    return mixture + 8 * k * min(k, int(parameters["n_neighbors"])) + 4 * q * n_rows


SAMPLE_ROWS = 2048
"""Rows of the sample that gives the first means; three times as many hardly give better ones."""
_FLOOR = 1e-6
"""Minimum variance, relative to that of the feature, or to their mean where features share a variance."""


def without_empty(result: EMState) -> EMState:
    """Return the mixture of the components that have posterior weight; all of them if none has.

    With equal weights, those of the others rise, and with them the free energy of every row.
    """
    found, filled = result.gaussians, result.masses > 0.0
    n_filled = int(filled.sum())
    if n_filled in (0, found.k):
        return result
    shared = found.shared or (found.has_matrices and len(found.variances) < found.k)
    variances = found.variances if shared else found.variances[filled]
    weights = None if found.weights is None else found.weights[filled]
    gain = 0.0 if weights is not None else float(log(found.k)) - float(log(n_filled))
    free_energy = result.free_energy + result.weight * gain
    gaussians = Gaussians(found.means[filled], variances, weights)
    figures = {"free_energy": free_energy, "weight": result.weight}
    return EMState.of(gaussians, result.masses[filled], result.history, result.reason, **figures)


class MixtureFit(SeededFit):
    """One call of fit. With a coreset, only passes over the original rows are counted.

    Attributes
    ----------
    state : MixtureState
        Progress of the fit.
    coreset : LightweightCoreset or None
        The one that EM ran on.
    """

    coreset: LightweightCoreset | None = None
    variances: np.ndarray | None
    weights: np.ndarray | None
    _is_due: bool = False
    _sets: str | None = None

    def prepare(self) -> None:
        estimator, dataset = self.estimator, self.dataset
        self.init = getattr(estimator.init, "means_", estimator.init)  # of another mixture
        shape = self.n_clusters, dataset.n_features
        self.variances, self.weights = start_of(estimator, shape)
        self.state = self.resumed(MixtureState, self._shapes) or MixtureState()

    @property
    def name(self) -> str:  # type: ignore[override]
        return "var-gmm" if self.estimator.coreset_size is None else "vc-gmm"

    def placed(self, stack: ExitStack) -> Placement:
        """Return the rows that EM runs on: those of the fit, or their coreset in this process."""
        estimator, dataset = self.estimator, self.dataset
        engine, callbacks = self.engine, self.callbacks
        if estimator.coreset_size is not None:
            self.coreset = coreset = self._coreset(estimator.coreset_size)
            # Only passes over the rows are reported.
            dataset, engine, callbacks = coreset.coreset_, home_engine(engine), ()
        self.method = self.method_on(dataset)
        self.restarts = restarts_for(self.method, estimator.n_init, in_memory=True)
        warn_of_one_start(estimator, self.method, stacklevel=5)
        if isinstance(engine, LocalEngine):
            kind = estimator.covariance_type
            own, shared = matrices_bytes(self.n_clusters, dataset.n_features, kind)
            what = f"matrices of covariance_type={kind!r} ('tied' has one) and their sums take"
            check_limit(what, engine.n_threads * own + shared, engine.memory_limit)
        footprint = mixture_footprint(dataset, vars(estimator), self.method)
        placement = engine.place(dataset, footprint=footprint, callbacks=callbacks)
        return stack.enter_context(placement)

    @property
    def n_clusters(self) -> int:
        return int(self.estimator.n_components)

    def took(self) -> Traffic:
        """Return passes and bytes; with a coreset, those over the original rows."""
        if self.coreset is None:
            return super().took()
        read = self.coreset.bytes_read_ - self.bytes_read
        return Traffic(self.coreset.passes_ - self.passes, read)

    def learn(self, rows: ScaledPlacement, stack: ExitStack) -> FitRun:
        """Return the restart with the highest free energy; the first one on ties."""
        kept = without_empty if self.estimator.discard_empty else lambda result: result
        best = kept(
            self.best_restart(
                self.state, lambda result: result, lambda result: -kept(result).free_energy
            )
        )
        return FitRun(best, best)

    def validated(self, rows: ScaledPlacement, state: EMState) -> float:
        return mean_distance(rows, state.means)

    def begin(self, restart: int, best: EMState | None) -> MixtureState:
        attached = Attached(self.state.attached.coreset)
        self.state = state = MixtureState(attached, restart=restart, best=best)
        self.keep(lambda: state, now=True)
        return state

    def finish(self, state: MixtureState) -> tuple[EMState, EMState]:
        rows = self.rows
        assert rows is not None
        result = variational_em(
            rows,
            self._centres(rows),
            self._settings(rows),
            limits=self.limits(),
            variances=self.variances,
            weights=self.weights,
            resumed=self.state.em,
            sets=self._resumed_sets(),
            save_to=self._save_to,
            keep=self._keep,
            validate=self.validate,
        )
        self.stopped = result.stop_reason == StopReason.CALLBACK
        return result, result

    def _coreset(self, size: int) -> LightweightCoreset:
        """Return the coreset to run EM on; its commits lie in a folder next to those of the fit."""
        place = None
        commits = self.checkpoints.commits
        if commits is not None:
            if self.state.attached.coreset is None:
                name = commits.folder.new_attachment("coreset")
                self.state = replace(self.state, attached=Attached(name))
                self.keep(lambda: self.state, now=True)
            place = commits.folder.attachment(str(self.state.attached.coreset))
        drawn = LightweightCoreset(
            size,
            random_state=self.seed,
            engine=self.engine,
            callbacks=self.callbacks,
            checkpoint=place,
        )
        return drawn.draw(self.dataset, resume=self.resumes)

    def _centres(self, rows: ScaledPlacement) -> np.ndarray:
        """Return the current means of EM if it has started, else the initial means, seeding if needed."""
        if self.state.em is not None:
            return self.state.em.means
        if self.state.centres is None:
            centres = self.seeded(rows, Key(self.seed, "mixture seeding", *self._number))
            self.state = replace(self.state, centres=np.ascontiguousarray(centres, rows.dtype))
            self.keep(lambda: self.state, now=True)
        assert self.state.centres is not None
        return self.state.centres

    def method_on(self, dataset: Dataset) -> str:
        return means_method(self.init, self.n_clusters, in_memory=dataset.in_memory)

    def chosen(self, rows: ScaledPlacement, seed: int) -> np.ndarray:
        if self.method == SAMPLED:
            return sampled_start(rows, self.n_clusters, SAMPLE_ROWS, seed, looks=False).centres
        return super().chosen(rows, seed)

    @property
    def _number(self) -> tuple[int, ...]:
        """Part of the random key: the number of the restart, or empty for the first one."""
        return (self.state.restart,) if self.state.restart else ()

    def _settings(self, rows: ScaledPlacement) -> EMSettings:
        estimator = self.estimator
        floor, share = estimator.reg_covar, 0.0
        if floor == "auto":
            variance, share = rows.known().mean_variance, _FLOOR
            floor = _FLOOR * (variance if variance > 0.0 else 1.0)
        # Means from a sample let components learn variances of their own at once, but not before rows
        # have found their candidate sets.
        is_given = self.variances is not None or self.weights is not None
        has_variances = is_given or (self.method == SAMPLED and not self.has_sets)
        return EMSettings(
            covariance_type=estimator.covariance_type,
            truncation=self.width,
            n_neighbors=estimator.n_neighbors,
            n_random=estimator.n_random,
            warmup_steps=estimator.warmup_steps,
            rule=estimator.search,
            floor=float(floor),
            floor_share=share,
            tol=estimator.tol,
            seed=Key(self.seed, "mixture restart", *self._number).derived_seed()
            if self._number
            else self.seed,
            shared_steps=0 if has_variances else SHARED_STEPS,
        )

    # -- checkpoints ------------------------------------------------------------------------------

    @property
    def width(self) -> int:
        """Size of a row's candidate set."""
        return min(self.estimator.truncation, self.n_clusters)

    @property
    def has_sets(self) -> bool:
        """True if rows have candidate sets; exact EM has none."""
        return self.width < self.n_clusters

    def sets_at(self, place: Location) -> StateFiles:
        """Return the folder of the candidate sets of rows, next to the commits."""
        return StateFiles(place, self.width, kept=True)

    @property
    def _shapes(self) -> Shapes:
        """Shapes of the arrays of a `MixtureState`."""
        k, d, kind = self.n_clusters, self.dataset.n_features, self.estimator.covariance_type
        own: Shapes = {
            "means": (k, d),
            # A shared variance is stored as a number.
            "variances": variances_shape("spherical" if kind == "isotropic" else kind, k, d),
            "mixing": (k,),
            "masses": (k,),
        }
        parts = {f"{part}_{name}": shape for part in ("em", "best") for name, shape in own.items()}
        g = min(self.estimator.n_neighbors, k)
        return {"centres": (k, d), "em_neighbours": (k, g), **parts}

    def check_attached(self, found: Document, place: Callable[[str], Location]) -> None:
        """Refuse a commit whose candidate sets are damaged. Reads them all."""
        framed = CheckpointDocument(found, place("").url)
        sets = framed.state(MixtureState, self._shapes).attached.sets
        data_statistics = framed.header(self.dataset.n_features).data_statistics
        if sets is not None and data_statistics is not None:
            self.sets_at(place(sets)).check(data_statistics.n_rows)

    def _resumed_sets(self) -> StateFiles | None:
        """Return the candidate sets that the fit resumes from; None if it has none."""
        sets, commits = self.state.attached.sets, self.checkpoints.commits
        if sets is None or commits is None:
            return None
        return self.sets_at(commits.folder.attachment(sets))

    def _save_to(self, is_wanted: bool, content: tuple[int, Gaussians]) -> StateFiles | None:
        """Return where the tasks write the sets of their rows, in the pass before a commit."""
        commits = self.checkpoints.commits
        self._is_due, self._sets = commits is not None and (is_wanted or commits.is_due()), None
        if commits is None or not (self._is_due and self.has_sets):
            return None
        self._sets = commits.folder.new_attachment("sets", self.seed, self.state.restart, content)
        return self.sets_at(commits.folder.attachment(self._sets))

    def _keep(self, em: EMState) -> None:
        state = self.state
        attached = replace(state.attached, sets=self._sets)
        # A fixed point needs no sets: no fit resumes from it.
        due = self._is_due or em.reason in SETTLED
        self.keep(lambda: replace(state, attached=attached, centres=None, em=em), due=due)


def mixture_footprint(dataset: Dataset, parameters: Mapping[str, Any], method: str) -> Footprint:
    """Return the memory per thread, per row and per process of a fit that is seeded by `method`."""
    d, k = dataset.n_features, int(parameters["n_components"])
    covariance_type, truncation = parameters["covariance_type"], int(parameters["truncation"])
    grids = 2 if dataset.weights is not None or dataset.dtype.itemsize == 8 else 1
    seconds = 2 * d if covariance_type == "diag" else 2
    statistics = 8 * k * (d * grids + seconds + 2 + 25)
    row_bytes = max(8, 4 * min(truncation, k))
    of_thread, of_process = matrices_bytes(k, d, covariance_type)
    seeding, sampling = seeding_bytes(dataset, k, method, int(parameters["chain_length"])), 0
    if method == SAMPLED:
        seeding = sampling = coreset_footprint(dataset, SAMPLE_ROWS).thread_bytes
    journal = SAVE_EVERY * step_bytes(dataset, k, covariance_type) if truncation < k else 0
    return Footprint(
        max(2 * statistics + of_thread, sampling),
        row_bytes,
        max(seeding, of_process),
        worker_bytes=journal,
    )


def step_bytes(dataset: Dataset, k: int, covariance_type: str) -> int:
    """Return the bytes of the means, variances and weights of a step."""
    d = dataset.n_features
    own = {"isotropic": 0, "spherical": 1, "diag": d, "tied": 0, "full": d * d}[covariance_type]
    shared = 8 * d * d if covariance_type == "tied" else 8
    return centres_bytes(dataset, k) + 8 * k * (own + 1) + shared


def matrices_bytes(k: int, d: int, covariance_type: str) -> tuple[int, int]:
    """Return the bytes of covariance matrices and their sums, per thread and per process.

    A thread has two parts of a packed triangle of sums for each matrix, and a copy while they are
    combined; a process has the matrices, their factors and inverses, and those of the M-step.
    """
    if covariance_type not in MATRICES:
        return 0, 0
    n = 1 if covariance_type == "tied" else k
    return 2 * 2 * 8 * n * packed_size(d), 8 * 8 * n * d * d
