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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from daskcluster.engine.scaled import ScaledPlacement, score_rows
from daskcluster.estimators.loop import NO_LIMITS, Limits, Stepped, run_loop
from daskcluster.events import EMStepEnded, StopReason
from daskcluster.methods.kmeans.algorithm import total_weight
from daskcluster.methods.mixture.chunkwise.e_step import (
    EXACT_EM,
    CandidateSearch,
    EStep,
    MixtureParams,
    truncated_pass,
)
from daskcluster.methods.mixture.chunkwise.statistics import (
    Gaussians,
    MixtureStatistics,
    diagonals,
    raised,
)
from daskcluster.methods.mixture.kernels.candidates import learn_neighbours, listed_tile_for
from daskcluster.methods.mixture.kernels.truncated import STEPS
from daskcluster.methods.mixture.parameters import MATRICES
from daskcluster.randomness import Key
from daskcluster.storage.checkpoint import StateFiles
from daskcluster.storage.location import locate

SHARED_STEPS = 2
"""Initial M-steps that learn one variance for all clusters; later ones learn one per cluster."""
SAVE_EVERY = 8
"""Steps between two saves of K(n). On average, rows of a lost worker repeat half of these."""
SETTLED = (StopReason.CONVERGED, StopReason.TOLERANCE)
_UNRECORDED = ("shift", "n_empty", "bytes_read", "n_touched")
"""Fields of an event that say nothing of an iteration of EM."""
_LEAST_VARIANCE = 1e-30
"""Minimum variance, relative to the mean feature variance or, if that exceeds one, to one."""
_LEAST_OF_SINGLE = 1e-36
"""Absolute minimum variance for float32 rows."""


@dataclass(frozen=True)
class EMSettings:
    """Settings of a fit by EM.

    Attributes
    ----------
    covariance_type : {"isotropic", "spherical", "diag", "tied", "full"}
    truncation : int
        C', the size of a row's candidate set; with all clusters, EM is exact.
    n_neighbors : int
        G, including the cluster itself.
    n_random : int
        Clusters drawn at random for each row in each E-step.
    warmup_steps : int
        E-steps before the first variance is set.
    rule : {"tile", "row", "alternate"}
        As in `CandidateSearch`; ``"alternate"`` takes both in turn.
    floor : float
        Minimum variance.
    floor_share : float
        Minimum variance of a feature, as a fraction of its variance over all rows; for variances by
        feature and for matrices. Constant features have `floor` instead.
    tol : float
        Stop when the free energy, divided by total row weight and number of features, changes by less
        than this; 0 never stops. A change of the free energy, unlike its value, does not depend on the
        units of the features.
    max_iter : int
    seed : int
    max_time : float or None
    shared_steps : int
        M-steps that learn one variance for all clusters before each learns its own.
    """

    covariance_type: str = "isotropic"
    truncation: int = 5
    n_neighbors: int = 5
    n_random: int = 0
    warmup_steps: int = 0
    rule: str = "tile"
    floor: float = 0.0
    floor_share: float = 0.0
    tol: float = 1e-4
    seed: int = 0
    shared_steps: int = SHARED_STEPS

    @property
    def first_tested_iteration(self) -> int:
        """First iteration at which `tol` is tested.

        Until clusters have learnt their own variances, a small change of the free energy may precede a
        large one.
        """
        return 2 if self.covariance_type == "isotropic" else self.shared_steps + 2

    def rule_of(self, number: int) -> str:
        """Return the search rule of pass `number`, counted from 0."""
        if self.rule != "alternate":
            return self.rule
        searches = number - (number > self.warmup_steps)  # the pass after them does not search
        return "tile" if searches % 2 else "row"


def updated(
    statistics: MixtureStatistics, old: Gaussians, *, kind: str, floor: float | np.ndarray
) -> Gaussians:
    """Return the parameters that maximise the free energy at the posteriors of a pass (eq. 6).

    Parameters
    ----------
    statistics : MixtureStatistics
    old : Gaussians
        Parameters of the pass.
    kind : {"isotropic", "spherical", "diag", "tied", "full"}
        Covariance type of the result. Except with ``"isotropic"``, weights are learnt too.
    floor : float, or ndarray of shape (d,) with ``kind="diag"``, ``"tied"`` and ``"full"``
        Minimum variance, for all features or for each. Of a matrix, it is that of every direction; see
        `daskcluster.methods.mixture.chunkwise.statistics.raised`.

    Notes
    -----
    A cluster without posterior weight keeps its mean and variance.
    """
    masses, firsts = statistics.masses, statistics.firsts
    filled = masses > 0.0
    divisor = np.where(filled, masses, 1.0)[:, None]
    before = old.means.astype(np.float64)
    means = np.where(filled[:, None], firsts / divisor, before).astype(old.means.dtype)
    step = means.astype(np.float64) - before
    if kind in MATRICES:
        covariances = _covariances(statistics, old, step, divisor)
        return Gaussians(means, raised(covariances, np.asarray(floor)), masses / masses.sum())
    # The sums of w (x - c)^2 by feature, moved from the old c to the new one.
    change = masses[:, None] * step * step - 2.0 * step * (firsts - masses[:, None] * before)
    seconds = statistics.seconds
    spread = seconds + (change if seconds.ndim == 2 else change.sum(axis=1))
    d, total = old.d, float(masses.sum())
    if kind == "isotropic":
        variance = float(spread.sum()) / (d * total) if total > 0.0 else float(old.variances)
        return Gaussians(means, np.asarray(max(variance, floor)))
    if kind == "spherical":
        own = spread / (d * divisor[:, 0])
    else:
        own = spread / divisor
        filled = filled[:, None]
    column = old.variances.ndim == 1 and own.ndim == 2
    kept = np.broadcast_to(old.variances[:, None] if column else old.variances, own.shape)
    variances = np.maximum(np.where(filled, own, kept), floor)
    return Gaussians(means, variances, masses / total)


def _covariances(
    statistics: MixtureStatistics, old: Gaussians, step: np.ndarray, divisor: np.ndarray
) -> np.ndarray:
    """Return the covariances about means that moved by `step` from the old ones, (k, d, d) or (1, d, d)."""
    masses, found = statistics.masses, statistics.seconds
    away = statistics.firsts - masses[:, None] * old.means.astype(np.float64)
    tied = len(found) < old.k or len(old.variances) < old.k
    for s in range(old.d):
        for t in range(s, old.d):
            change = masses * step[:, s] * step[:, t] - (
                step[:, s] * away[:, t] + step[:, t] * away[:, s]
            )
            found[:, s, t] += change.sum() if tied else change
            found[:, t, s] = found[:, s, t]
    if tied:
        total = float(masses.sum())
        return found / total if total > 0.0 else old.variances
    filled = (masses > 0.0)[:, None, None]
    return np.where(filled, found / divisor[:, :, None], old.variances)


def variances_by_feature(statistics: MixtureStatistics, old: Gaussians) -> np.ndarray:
    """Return the weighted variance of each feature over all rows, regardless of clusters, (d,).

    Parameters
    ----------
    statistics : MixtureStatistics
        With second moments by feature, or with matrices of them.
    old : Gaussians
        Parameters of the pass.
    """
    masses, firsts = statistics.masses[:, None], statistics.firsts
    before, total = old.means.astype(np.float64), float(statistics.masses.sum())
    if not total > 0.0:
        return np.zeros(old.d)
    # The sums of w (x - a)^2 about the mean a of all rows, from sums about the cluster means.
    offset = before - firsts.sum(axis=0) / total
    seconds = statistics.seconds
    change = offset * (2.0 * (firsts - masses * before) + masses * offset)
    if seconds.ndim == 3:
        whole = diagonals(seconds).sum(axis=0) + change.sum(axis=0)
    else:
        whole = (seconds + change).sum(axis=0)
    return np.maximum(whole / total, 0.0)


def as_kind(gaussians: Gaussians, kind: str, weights: np.ndarray | None = None) -> Gaussians:
    """Return the same mixture with variances in the shape of `kind`, and with weights if `kind` has them.

    Parameters
    ----------
    gaussians : Gaussians
    kind : {"isotropic", "spherical", "diag", "tied", "full"}
    weights : ndarray of shape (k,), optional
        None: equal weights. Ignored if the mixture has weights.
    """
    k, d = gaussians.k, gaussians.d
    if kind == "isotropic" or gaussians.weights is not None:
        return gaussians
    if kind in MATRICES:
        shape: tuple[int, ...] = (1 if kind == "tied" else k, d, d)
        shared = gaussians.variances
        own = shared if gaussians.has_matrices else shared * np.eye(d)
    else:
        shape, own = ((k, d) if kind == "diag" else (k,)), gaussians.variances
    variances = np.broadcast_to(own, shape).copy()
    return Gaussians(
        gaussians.means, variances, np.full(k, 1.0 / k) if weights is None else weights
    )


@dataclass(frozen=True)
class EMState:
    """State of EM between two iterations, which commits hold without the sets of rows; or its result.

    Attributes
    ----------
    means : ndarray of shape (k, d)
        These and the variances are what the next iteration starts from. If the last iteration converged,
        they are what it started from, because those are the ones it evaluated.
    variance : float or None
        Shared by all clusters.
    variances : ndarray of shape (k,), (k, d), (k, d, d) or (1, d, d), or None
        Variances of each cluster, if they do not share one; or covariance matrices.
    mixing : ndarray of shape (k,), or None
    masses : ndarray of shape (k,)
        Posterior row weight of each cluster, in a result at these parameters.
    history : sequence of dict
        A record per iteration: ``iteration, free_energy, inertia, variance, seconds, n_distances,
        n_moved``. The inertia is weighted by posteriors. The first record also counts the distances of
        the passes before it.
    reason : StopReason or None
        Why EM stopped; None if it has not.
    n_steps : int
        E-steps so far; part of the key of the random numbers of each. Not of a result.
    neighbours : ndarray of shape (k, g), int64, or None
        G_c; None for exact EM and in a result.
    free_energy : float
        A weighted sum over rows at these parameters, in a result; -inf without iterations.
    weight : float
        Total row weight, in a result.
    """

    means: np.ndarray
    variance: float | None
    variances: np.ndarray | None
    mixing: np.ndarray | None
    masses: np.ndarray
    history: Sequence[dict[str, Any]]
    reason: StopReason | None
    n_steps: int = 0
    neighbours: np.ndarray | None = None
    free_energy: float = 0.0
    weight: float = 0.0

    @classmethod
    def of(
        cls,
        gaussians: Gaussians,
        masses: np.ndarray,
        history: Sequence[dict[str, Any]] = (),
        reason: StopReason | None = None,
        **own: Any,
    ) -> Self:
        """Return a state with these parameters, and with the fields that only some states have."""
        variances = gaussians.variances
        both = (float(variances), None) if gaussians.shared else (None, variances)
        shared = gaussians.means, *both, gaussians.weights, masses, history
        return cls(*shared, reason, **own)  # type: ignore[call-arg]

    @property
    def gaussians(self) -> Gaussians:
        """The parameters, a new object in each call; factors that it computes are its own."""
        variances = np.asarray(self.variance) if self.variances is None else self.variances
        return Gaussians(self.means, variances, self.mixing)

    @property
    def n_iter(self) -> int:
        return len(self.history)

    @property
    def stop_reason(self) -> StopReason:
        assert self.reason is not None
        return self.reason

    @property
    def inertia(self) -> float:
        """The inertia of the last iteration, weighted by posteriors."""
        return self.history[-1]["inertia"] if self.history else 0.0


SaveTo = Callable[[bool, tuple[int, Gaussians]], StateFiles | None]


class ExactPasses:
    """Passes of exact EM: rows are compared with all clusters and have no state."""

    def __init__(self, rows: ScaledPlacement) -> None:
        self._rows = rows
        self._n_uncounted = self._n_steps = 0

    def first_cost(self, gaussians: Gaussians) -> float:
        """Return the weighted sum of squared distances to the nearest means."""
        self._n_uncounted = self._rows.known().n_rows * gaussians.k
        return score_rows(self._rows, gaussians.means).inertia

    def search(self, gaussians: Gaussians) -> None:
        """Do nothing: exact EM has no candidate sets."""

    def step(self, gaussians: Gaussians, save_to: StateFiles | None = None) -> MixtureStatistics:
        """Make an E-step and return the statistics of the M-step; `save_to` is ignored."""
        step = EStep(gaussians, None)
        found: MixtureStatistics = self._rows.reduce(
            EXACT_EM, lambda scale: MixtureParams(step, scale)
        )
        found.n_distances += self._n_uncounted
        self._n_uncounted = 0
        self._n_steps += 1
        return found

    def carried(self) -> dict[str, Any]:
        """Return the fields of an `EMState` that the next pass depends on."""
        return {"n_steps": self._n_steps}

    def close(self) -> None:
        return None


class TruncatedPasses:
    """Passes of truncated EM: K(n) stays with the rows, G_c in this object.

    The sets are saved when the caller requests it and, on a cluster with a folder that all workers share,
    every `SAVE_EVERY` steps. Threads lose no sets and need neither saves nor a journal.

    Parameters
    ----------
    rows : ScaledPlacement
    k : int
    settings : EMSettings
    resumed : EMState, optional
        State after earlier passes.
    sets : StateFiles, optional
        K(n) of all rows after these passes.
    save_to : callable
        See `variational_em`.
    """

    def __init__(
        self,
        rows: ScaledPlacement,
        k: int,
        settings: EMSettings,
        resumed: EMState | None,
        sets: StateFiles | None,
        save_to: SaveTo,
    ) -> None:
        self._rows, self._settings, self._save_to = rows, settings, save_to
        self._reduction = truncated_pass(settings.truncation)
        self._journal, self._n_steps = list[EStep](), 0
        if resumed is None:
            self.neighbours = first_neighbours(settings.seed, k, min(settings.n_neighbors, k))
        else:
            assert resumed.neighbours is not None
            self.neighbours = resumed.neighbours.astype(np.int32)
            self._n_steps = resumed.n_steps
        self._saved, self._n_saves = sets, 0
        self._rooted = settings.covariance_type == "isotropic"
        self._searched = False
        self._n_uncounted = self._room = 0

    def first_cost(self, gaussians: Gaussians) -> float:
        """Search with a variance of one; return the weighted sum of the least squared distances (eq. 8)."""
        return self.search(gaussians).bound.value

    def search(self, gaussians: Gaussians) -> MixtureStatistics:
        """Search for the candidate sets before the first iteration, in ``warmup_steps`` + 1 passes."""
        for _ in range(self._settings.warmup_steps + 1):
            save_to = None
            if not self._rows.placement.dataset.in_memory:
                # The pass may take hours, and no commit follows it.
                save_to = self._save_to(True, (self._n_steps, gaussians))
            found = self._pass(gaussians, self._search(), learns=False, save_to=save_to)
            self._n_uncounted += found.n_distances
        self._searched = True
        return found

    def step(self, gaussians: Gaussians, save_to: StateFiles | None = None) -> MixtureStatistics:
        """Make an E-step and return the statistics of the M-step.

        The first step after `search` does not search again.

        Parameters
        ----------
        gaussians : Gaussians
        save_to : StateFiles, optional
            Files to save the sets of all rows in.
        """
        search = None if self._searched else self._search()
        found = self._pass(gaussians, search, learns=True, save_to=save_to)
        found.n_distances += self._n_uncounted
        self._searched, self._n_uncounted = False, 0
        return found

    def carried(self) -> dict[str, Any]:
        """Return the fields of an `EMState` that the next pass depends on, besides the sets."""
        return {"n_steps": self._n_steps, "neighbours": self.neighbours.astype(np.int64)}

    def _search(self) -> CandidateSearch:
        settings, number = self._settings, self._n_steps
        key = Key(settings.seed, "mixture candidates", number)
        return CandidateSearch(self.neighbours, settings.rule_of(number), settings.n_random, key)

    def _pass(
        self,
        gaussians: Gaussians,
        search: CandidateSearch | None,
        *,
        learns: bool,
        save_to: StateFiles | None = None,
    ) -> MixtureStatistics:
        settings, step = self._settings, EStep(gaussians, search)
        if save_to is None and len(self._journal) + 1 >= SAVE_EVERY:
            folder = self._rows.placement.shared_folder()
            if folder is not None:
                self._n_saves += 1
                save_to = StateFiles(locate(f"{folder}/{self._n_saves}"), settings.truncation)
        params = MixtureParams(
            step,
            self._rows.scale,
            settings.truncation,
            Key(settings.seed, "mixture sets"),
            tuple(self._journal),
            self._saved,
            save_to,
            learns=learns,
            rooted=self._rooted,
            room=self._room,
        )
        # Sets are not a function of the parameters alone: rows that are done need saved ones.
        keeps = save_to is not None and save_to.kept
        placement = self._rows.placement
        found: MixtureStatistics = placement.map_state(self._reduction, params, keeps=keeps)
        self._n_steps += 1
        if placement.loses_state:
            # A copy of the parameters, without the factors and costs that were derived from them.
            self._journal.append(EStep(replace(gaussians), search))
        if save_to is not None:
            self._end_save(save_to, found.n_saved)
        if search is not None:
            if placement.shares_memory:
                self._room = int(found.pairs.used[0])
            lists = search.lists(listed_tile_for(gaussians.means.dtype).height)
            sums = found.neighbour_sums, found.neighbour_counts, STEPS / found.key_shift
            self.neighbours = learn_neighbours(*lists, *sums, found.pairs.listed(), self.neighbours)
        return found

    def _end_save(self, place: StateFiles, n_rows: int) -> None:
        """Start the journal anew if all rows are saved; remove the save that is not needed any more.

        Saves of a checkpoint are never removed.

        Raises
        ------
        CheckpointError
            The driver does not see the checkpoint files that the workers wrote.
        """
        n_all = self._rows.placement.dataset.n_rows
        if place.kept:
            place.check(n_all, whole=False)
        useless = self._saved if n_rows == n_all else place
        if useless is not None and not useless.kept:
            useless.remove()
        if n_rows == n_all:
            self._saved = place
            self._journal.clear()

    def close(self) -> None:
        self._rows.placement.drop_state(self._reduction.name)


def first_neighbours(seed: int, k: int, g: int) -> np.ndarray:
    """Return initial neighbourhoods (k, g), int32: each cluster, then g - 1 distinct others at random."""
    generator = Key(seed, "mixture neighbours").generator()
    found = np.empty((k, g), np.int32)
    for c in range(k):
        others = generator.choice(k - 1, size=g - 1, replace=False)
        found[c, 0] = c
        found[c, 1:] = others + (others >= c)
    return found


def variational_em(
    rows: ScaledPlacement,
    centres: np.ndarray,
    settings: EMSettings,
    *,
    limits: Limits = NO_LIMITS,
    variances: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    resumed: EMState | None = None,
    sets: StateFiles | None = None,
    save_to: SaveTo = lambda is_wanted, content: None,
    keep: Callable[[EMState], None] | None = None,
    validate: Callable[[EMState], float] | None = None,
) -> EMState:
    """Learn a mixture from initial means.

    Parameters
    ----------
    rows : ScaledPlacement
    centres : ndarray of shape (k, d)
        Not changed.
    settings : EMSettings
    limits : Limits
        Callbacks are called with an `EMStepEnded` after each iteration.
    variances : ndarray of shape (), (k,), (k, d), (k, d, d) or (1, d, d), optional
        Initial variances, in the shape of `settings.covariance_type`; None: one for all, by eq. 8.
    weights : ndarray of shape (k,), optional
        Initial mixing weights, where they are learnt; None: equal ones.
    resumed : EMState, optional
        State to resume from, to a bit-identical result; `rows` must have its data statistics.
    sets : StateFiles, optional
        The sets of all rows in that state.
    save_to : callable (is_wanted, content) -> StateFiles or None, optional
        Called before each pass, with whether the sets of all rows should be saved even if no commit is due,
        and with everything that they depend on. Returns where to save them, or None not to.
    keep, validate : callable (state), optional
        The same as in `daskcluster.estimators.loop.run_loop`.

    Notes
    -----
    Cost: ``warmup_steps`` + 1 passes before the first iteration, then one pass per iteration, and one
    more unless EM ends by `tol`. At most C' + G^2 + `n_random` distances per row and pass. State: 4 C'
    bytes per row.
    """
    rows.known()
    centres = np.ascontiguousarray(centres, dtype=rows.dtype)
    passes: ExactPasses | TruncatedPasses = ExactPasses(rows)
    if settings.truncation < len(centres):
        passes = TruncatedPasses(rows, len(centres), settings, resumed, sets, save_to)
    run = _Run(rows, settings, passes)

    def step(state: EMState) -> Stepped[EMState]:
        is_last = len(state.history) + 1 >= limits.max_iter
        return run.step(state, save_to(is_last, (state.n_steps, state.gaussians)))

    try:
        state = resumed or run.first(centres, variances, weights)
        end = run_loop(step, state, EMStepEnded, limits, keep=keep, validate=validate)
        return run.result(end)
    finally:
        run.passes.close()


class _Run:
    """The iterations of one fit."""

    def __init__(
        self, rows: ScaledPlacement, settings: EMSettings, passes: ExactPasses | TruncatedPasses
    ) -> None:
        self.settings, self.passes = settings, passes
        data_statistics = rows.known()
        self.weight = total_weight(rows)
        # A feature whose deviation is within rounding error counts as constant.
        resolution = float(np.finfo(rows.dtype).eps) * data_statistics.max_abs.astype(np.float64)
        self._constant = resolution * resolution
        mean = data_statistics.mean_variance
        least = _LEAST_VARIANCE * (min(mean, 1.0) if mean > 0.0 else 1.0)
        self._least = max(least, _LEAST_OF_SINGLE) if rows.dtype == np.float32 else least
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
            if self.settings.shared_steps == 0:
                gaussians = as_kind(gaussians, kind, weights)
        masses = np.full(gaussians.k, self.weight / gaussians.k)
        return EMState.of(gaussians, masses, **self.passes.carried())

    def step(self, state: EMState, save_to: StateFiles | None) -> Stepped[EMState]:
        """Make an iteration; the sets of all rows are saved in `save_to`, if it is given."""
        iteration, weight, old = len(state.history) + 1, self.weight, state.gaussians
        found = self.passes.step(old, save_to)
        free_energy = found.bound.value + weight * old.log_constant
        gaussians = self._learnt(found, old, iteration)
        tol = self.settings.tol
        is_tested = tol > 0.0 and iteration >= self.settings.first_tested_iteration
        change = abs(free_energy - _free_energy(state)) if is_tested else np.inf
        threshold = tol * old.d * weight
        settled = not change > threshold
        facts = {
            "free_energy": free_energy,
            "inertia": found.inertia,
            "shift": 0.0,
            "variance": float(np.mean(gaussians.feature_variances)),
            "n_distances": found.n_distances,
            "n_moved": found.n_moved,
        }
        return Stepped(
            EMState.of(old if settled else gaussians, found.masses, **self.passes.carried()),
            facts,
            weight,
            moved=change > 0.0,
            shift=change,
            threshold=threshold,
            unrecorded=_UNRECORDED,
        )

    def result(self, state: EMState) -> EMState:
        """Return the result. Makes one more pass if no iteration has evaluated its parameters."""
        gaussians = as_kind(state.gaussians, self.settings.covariance_type)
        free_energy, masses = _free_energy(state), state.masses
        if state.history and state.reason not in SETTLED:
            found = self.passes.step(gaussians)
            free_energy = found.bound.value + self.weight * gaussians.log_constant
            masses = found.masses
        figures = {"free_energy": free_energy, "weight": self.weight}
        return EMState.of(gaussians, masses, state.history, state.reason, **figures)

    def _learnt(self, found: MixtureStatistics, gaussians: Gaussians, iteration: int) -> Gaussians:
        kind, last_shared = self.settings.covariance_type, self.settings.shared_steps
        if kind == "isotropic" or iteration <= last_shared:
            learnt = updated(found, gaussians, kind="isotropic", floor=self._floor)
            return as_kind(learnt, kind) if iteration == last_shared else learnt
        has_floors = kind == "diag" or kind in MATRICES
        floor = self._floors(found, gaussians) if has_floors else self._floor
        return updated(found, gaussians, kind=kind, floor=floor)

    def _floors(self, found: MixtureStatistics, gaussians: Gaussians) -> np.ndarray:
        """Return the minimum variance of each feature, (d,)."""
        share = self.settings.floor_share
        if share == 0.0:
            return np.full(gaussians.d, self._floor)
        whole = variances_by_feature(found, gaussians)
        floors = np.where(whole > self._constant, share * whole, self._floor)
        return np.maximum(floors, self._least)


def _free_energy(state: EMState) -> float:
    return float(state.history[-1]["free_energy"]) if state.history else -np.inf
