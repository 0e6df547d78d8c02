"""Variational EM for Gaussian mixtures with truncated posteriors (var-GMM-S), one pass per iteration.

Forster and Luecke, "Can clustering scale sublinearly with its clusters?" (AISTATS 2018); Hirschberger,
Forster and Luecke (arXiv 1810.00803), whose equation numbers are used here. Each row n has a candidate
set K(n): the C' nearest of the clusters that it was compared with. Each cluster c has a neighbourhood G_c:
the G clusters with the smallest mean distance to the rows whose nearest cluster is c (eq. 31).

Differences from the paper: with ``rule="tile"``, a row is compared with K(n) and the neighbours'
neighbours of its nearest cluster. These are as many candidates as the neighbours of all members of K(n),
but all rows of a cluster share them. K(n) is part of either search space, so the free energy never falls.
Eq. 31 then uses all candidates of rows that stayed with their cluster. Of rows that moved to it, it uses
only the members of the new K(n), or all candidates if C' < G.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.fit import Stopping
from daskcluster.events import Callback, EMStepEnded, StopReason
from daskcluster.methods.mixture.chunkwise.covariances import raised
from daskcluster.methods.mixture.chunkwise.statistics import Gaussians, MixtureStatistics
from daskcluster.methods.mixture.m_step import as_kind, updated, variances_by_feature
from daskcluster.methods.mixture.passes import Carried, ExactPasses, TruncatedPasses
from daskcluster.methods.mixture.settings import MATRICES, EMSettings
from daskcluster.storage.row_state import StateFiles

_LEAST_VARIANCE = 1e-30
"""Minimum variance, relative to the mean feature variance or, if that exceeds one, to one."""
_LEAST_OF_SINGLE = 1e-36
"""Absolute minimum variance for float32 rows."""

_FLOORS_BY_FEATURE = ("diag", *MATRICES)
_SETTLED = (StopReason.CONVERGED, StopReason.TOLERANCE)


@dataclass
class MixtureResult:
    """A fitted mixture and the history of its fit.

    Attributes
    ----------
    gaussians : Gaussians
    free_energy : float
        A weighted sum over rows at these parameters; -inf without iterations.
    weight : float
        Total row weight.
    masses : ndarray of shape (k,)
        Posterior row weight of each cluster, at these parameters.
    n_iter : int
    stop_reason : StopReason
    history : list of dict
        A record per iteration: ``iteration, free_energy, inertia, variance, seconds, n_distances,
        n_moved``. The inertia is weighted by posteriors. The first record also counts the distances of
        the passes before it.
    """

    gaussians: Gaussians
    free_energy: float
    weight: float
    masses: np.ndarray
    n_iter: int
    stop_reason: StopReason
    history: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class EMState:
    """State of EM between two iterations, or after the last one.

    Attributes
    ----------
    gaussians : Gaussians
        Parameters that the next iteration starts from. If the last iteration converged, the parameters
        that it started from, because those are the ones it evaluated.
    masses : ndarray of shape (k,)
    history : sequence of dict
        As in `MixtureResult`; empty before the first iteration.
    reason : StopReason or None
        Why EM stopped; None if it has not.
    carried : Carried
        State of the passes.
    """

    gaussians: Gaussians
    masses: np.ndarray
    history: Sequence[dict[str, Any]]
    reason: StopReason | None
    carried: Carried


class Keeper(Protocol):
    """Stores states of EM, from which a fit can resume."""

    def begin(self, *, is_last: bool) -> StateFiles | None:
        """Begin an iteration; return where to save the sets of all rows, or None not to save them.

        Parameters
        ----------
        is_last : bool
            The iteration is the last one that `max_iter` allows.
        """
        ...

    def end(self, state: EMState) -> None:
        """Store the state after the iteration, if it is due."""
        ...


def variational_em(
    rows: ScaledPlacement,
    centres: np.ndarray,
    settings: EMSettings,
    *,
    callbacks: Sequence[Callback] = (),
    variances: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    resumed: EMState | None = None,
    keeper: Keeper | None = None,
) -> MixtureResult:
    """Learn a mixture from initial means.

    Parameters
    ----------
    rows : ScaledPlacement
    centres : ndarray of shape (k, d)
        Not changed.
    settings : EMSettings
    callbacks : sequence of callables
        Called with an `EMStepEnded` after each iteration.
    variances : ndarray of shape (), (k,), (k, d), (k, d, d) or (1, d, d), optional
        Initial variances, in the shape of `settings.covariance_type`; None: one for all, by eq. 8.
    weights : ndarray of shape (k,), optional
        Initial mixing weights, where they are learnt; None: equal ones.
    resumed : EMState, optional
        State to resume from, to a bit-identical result; `rows` must have its data statistics.
    keeper : Keeper, optional

    Notes
    -----
    Cost: ``warmup_steps`` + 1 passes before the first iteration, then one pass per iteration, and one
    more unless EM ends by `tol`. At most C' + G^2 + `n_random` distances per row and pass. State: 4 C'
    bytes per row.
    """
    rows.known()
    centres = np.ascontiguousarray(centres, dtype=rows.dtype)
    passes: ExactPasses | TruncatedPasses = ExactPasses(rows, settings)
    if settings.truncation < len(centres):
        carried = None if resumed is None else resumed.carried
        passes = TruncatedPasses(rows, len(centres), settings, carried)
    run = _Run(rows, settings, passes)
    try:
        state = resumed or run.first(centres, variances, weights)
        return run.result(run.loop(state, callbacks, keeper))
    finally:
        run.passes.close()


class _Run:
    """The loop of one fit."""

    def __init__(
        self, rows: ScaledPlacement, settings: EMSettings, passes: ExactPasses | TruncatedPasses
    ) -> None:
        self.settings, self.passes = settings, passes
        data_statistics = rows.known()
        self.weight = data_statistics.weight.value or float(data_statistics.n_rows)
        # A feature whose deviation is within rounding error counts as constant.
        resolution = float(np.finfo(rows.dtype).eps) * data_statistics.max_abs.astype(np.float64)
        self._constant = resolution * resolution
        self._least = _least_variance(data_statistics.mean_variance, rows.dtype)
        self._floor = max(settings.floor, self._least)

    def first(
        self, centres: np.ndarray, variances: np.ndarray | None, weights: np.ndarray | None
    ) -> EMState:
        """Return the state before the first iteration, after the searches; sets missing variances."""
        kind, gaussians = self.settings.covariance_type, Gaussians(centres, np.asarray(1.0))
        if variances is not None:
            if kind in MATRICES:
                given = raised(variances, np.full(gaussians.d, self._least))
            else:
                given = np.asarray(np.maximum(variances, self._least))
            gaussians = Gaussians(centres, given)
            gaussians = as_kind(gaussians, kind, weights)
            self.passes.search(gaussians)
        else:
            cost = self.passes.first_cost(gaussians) / (gaussians.d * self.weight)
            gaussians = Gaussians(centres, np.asarray(max(cost, self._floor)))
            if weights is not None or self.settings.shared_steps == 0:
                gaussians = as_kind(gaussians, kind, weights)
        masses = np.full(gaussians.k, self.weight / gaussians.k)
        return EMState(gaussians, masses, [], None, self.passes.carried())

    def loop(self, state: EMState, callbacks: Sequence[Callback], keeper: Keeper | None) -> EMState:
        """Return the state after the last iteration."""
        settings = self.settings
        stopping = Stopping(settings.max_iter, settings.max_time, callbacks)
        if state.reason is None and settings.max_iter <= len(state.history):
            state = replace(state, reason=StopReason.MAX_ITER)
        while state.reason is None:
            is_last = len(state.history) + 1 >= settings.max_iter
            save_to = None if keeper is None else keeper.begin(is_last=is_last)
            state = self._iteration(state, stopping, save_to)
            if keeper is not None:
                keeper.end(state)
        return state

    def _iteration(self, state: EMState, stopping: Stopping, save_to: StateFiles | None) -> EMState:
        began, iteration, weight = time.perf_counter(), len(state.history) + 1, self.weight
        old, tol = state.gaussians, self.settings.tol
        found = self.passes.step(old, save_to)
        free_energy = found.bound.value + weight * old.log_constant
        gaussians = self._learnt(found, old, iteration)
        seconds = time.perf_counter() - began
        record = _record(iteration, free_energy, gaussians, found, seconds)
        stopping.tell(_event(record))
        is_tested = tol > 0.0 and iteration >= self.settings.first_tested_iteration
        change = abs(free_energy - _free_energy(state)) if is_tested else np.inf
        reason = stopping.reason(
            iteration,
            moved=change > 0.0,
            shift=change,
            threshold=tol * old.d * weight,
        )
        kept = old if reason in _SETTLED else gaussians
        history = [*state.history, record]
        return EMState(kept, found.masses, history, reason, self.passes.carried())

    def result(self, state: EMState) -> MixtureResult:
        """Return the result. Makes one more pass if no iteration has evaluated its parameters."""
        assert state.reason is not None
        gaussians = as_kind(state.gaussians, self.settings.covariance_type)
        free_energy, masses = _free_energy(state), state.masses
        if state.history and state.reason not in _SETTLED:
            found = self.passes.step(gaussians)
            free_energy = found.bound.value + self.weight * gaussians.log_constant
            masses = found.masses
        return MixtureResult(
            gaussians,
            free_energy,
            self.weight,
            masses,
            len(state.history),
            state.reason,
            list(state.history),
        )

    def _learnt(self, found: MixtureStatistics, gaussians: Gaussians, iteration: int) -> Gaussians:
        kind, last_shared = self.settings.covariance_type, self.settings.shared_steps
        if kind == "isotropic" or iteration <= last_shared:
            learnt = updated(found, gaussians, kind="isotropic", floor=self._floor)
            return as_kind(learnt, kind) if iteration == last_shared else learnt
        floor = self._floors(found, gaussians) if kind in _FLOORS_BY_FEATURE else self._floor
        return updated(found, gaussians, kind=kind, floor=floor)

    def _floors(self, found: MixtureStatistics, gaussians: Gaussians) -> np.ndarray:
        """Return the minimum variance of each feature, (d,)."""
        share = self.settings.floor_share
        if share == 0.0:
            return np.full(gaussians.d, self._floor)
        whole = variances_by_feature(found, gaussians)
        floors = np.where(whole > self._constant, share * whole, self._floor)
        return np.maximum(floors, self._least)


def _least_variance(mean: float, dtype: np.dtype[Any]) -> float:
    least = _LEAST_VARIANCE * (min(mean, 1.0) if mean > 0.0 else 1.0)
    return max(least, _LEAST_OF_SINGLE) if dtype == np.float32 else least


def _free_energy(state: EMState) -> float:
    return float(state.history[-1]["free_energy"]) if state.history else -np.inf


def _record(
    iteration: int,
    free_energy: float,
    gaussians: Gaussians,
    found: MixtureStatistics,
    seconds: float,
) -> dict[str, Any]:
    return {
        "iteration": iteration,
        "free_energy": free_energy,
        "inertia": found.inertia,
        "variance": float(np.mean(gaussians.feature_variances)),
        "seconds": seconds,
        "n_distances": found.n_distances,
        "n_moved": found.n_moved,
    }


def _event(record: dict[str, Any]) -> EMStepEnded:
    return EMStepEnded(
        iteration=record["iteration"],
        inertia=record["inertia"],
        shift=0.0,
        seconds=record["seconds"],
        n_distances=record["n_distances"],
        free_energy=record["free_energy"],
    )
