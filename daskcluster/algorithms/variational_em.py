"""Variational EM for Gaussian mixtures with truncated posteriors (var-GMM-S), in one pass an iteration.

Forster and Luecke, "Can clustering scale sublinearly with its clusters?" (AISTATS 2018); Hirschberger,
Forster and Luecke (arXiv 1810.00803), whose numbers of equations are used here. Each row n keeps the set
K(n) of the C' clusters that are nearest among those it has looked at, each cluster c the G clusters G_c
that were nearest on average to the rows that c is nearest to (eq. 31).

What differs from the paper: with ``rule="tile"`` a row looks at its set K(n) and at the neighbours'
neighbours of its nearest cluster, which are as many candidates as the neighbours of all members of K(n),
but the same for all rows of that cluster. K(n) is part of either search space, so the free energy never
falls. Eq. 31 then takes, of rows that stayed with their cluster, what all of them have looked at, and, of
rows that came from another one, the clusters that they keep (or all that they have looked at, where they
keep fewer than a neighbourhood has).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskcluster.algorithms.scoring import score_rows
from daskcluster.algorithms.stopping import Stopping
from daskcluster.algorithms.variational_m_step import as_kind, updated
from daskcluster.chunkwise.exact_sum import Scale
from daskcluster.chunkwise.mixture import (
    EXACT_EM,
    MixtureParams,
    Search,
    Step,
    truncated_pass,
)
from daskcluster.chunkwise.mixture_parameters import Gaussians
from daskcluster.chunkwise.mixture_statistics import MixtureGrids, MixtureStatistics
from daskcluster.data.state_files import StateFiles
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.events import Callback, EMStepEnded, StopReason
from daskcluster.kernels.truncated import STEPS
from daskcluster.kernels.truncated_neighbours import learn_neighbours
from daskcluster.kernels.truncated_tile import listed_tile_for
from daskcluster.randomness import Key

_LEAST_VARIANCE = 1e-30

SAVE_EVERY = 8
"""Steps between two saves of K(n): a lost worker costs its rows half of these again on average."""

SHARED_STEPS = 2
"""The first M-steps learn one variance for all clusters, whatever is learnt afterwards."""


@dataclass(frozen=True)
class EMSettings:
    """How a mixture is learnt.

    Attributes
    ----------
    covariance_type : {"isotropic", "spherical", "diag"}
    truncation : int
        C', clusters that a row keeps; with all of them, EM is exact.
    n_neighbors : int
        G, the cluster itself among them.
    n_random : int
        Clusters drawn at random for each row in each E-step.
    warmup_steps : int
        E-steps before the first variance is set.
    rule : {"tile", "row"}
    floor : float
        Least variance.
    tol : float
        Stop when the free energy changes by less than this times itself; 0 never.
    max_iter : int
    seed : int
    max_time : float or None
    """

    covariance_type: str = "isotropic"
    truncation: int = 5
    n_neighbors: int = 5
    n_random: int = 0
    warmup_steps: int = 0
    rule: str = "tile"
    floor: float = 0.0
    tol: float = 1e-4
    max_iter: int = 300
    seed: int = 0
    max_time: float | None = None


@dataclass
class MixtureResult:
    """The mixture, and how the loop came to it.

    Attributes
    ----------
    gaussians : Gaussians
    free_energy : float
        Of the last iteration, at the parameters that it started from; -inf without iterations.
    weight : float
        Total row weight: the free energy is a sum over rows.
    masses : ndarray of shape (k,)
        Posterior row weight of each cluster, in the last iteration.
    n_iter : int
    stop_reason : StopReason
    history : list of dict
        One record an iteration: ``iteration, free_energy, inertia, variance, seconds, n_distances,
        n_moved``; the inertia is weighted by posteriors, and the first record has the distances of the
        passes before it, too.
    """

    gaussians: Gaussians
    free_energy: float
    weight: float
    masses: np.ndarray
    n_iter: int
    stop_reason: StopReason
    history: list[dict[str, Any]] = field(default_factory=list)


def variational_em(
    rows: ScaledPlacement,
    centres: np.ndarray,
    settings: EMSettings,
    *,
    callbacks: Sequence[Callback] = (),
) -> MixtureResult:
    """Learn a mixture from initial means.

    Parameters
    ----------
    rows : ScaledPlacement
    centres : ndarray of shape (k, d)
        Not changed.
    settings : EMSettings
    callbacks : sequence of callables
        Hear an `EMStepEnded` each iteration.

    Notes
    -----
    Cost: ``warmup_steps`` + 1 passes before the first iteration, then one pass each. At most
    C' + G^2 + `n_random` distances a row and pass. State: 4 C' bytes a row.
    """
    rows.known()
    centres = np.ascontiguousarray(centres, dtype=rows.dtype)
    passes = _ExactPasses if settings.truncation >= len(centres) else _TruncatedPasses
    run = _Run(rows, settings, passes(rows, centres, settings))
    try:
        return run.loop(centres, callbacks)
    finally:
        run.passes.close()


class _Run:
    """The loop of one fit."""

    def __init__(
        self, rows: ScaledPlacement, settings: EMSettings, passes: _ExactPasses | _TruncatedPasses
    ) -> None:
        self.rows, self.settings, self.passes = rows, settings, passes

    def loop(self, centres: np.ndarray, callbacks: Sequence[Callback]) -> MixtureResult:
        settings, weight = self.settings, self._total_weight()
        stopping = Stopping(settings.max_iter, settings.max_time, callbacks)
        gaussians = Gaussians(centres, np.asarray(1.0))
        first = self.passes.first_cost(gaussians) / (gaussians.d * weight)
        gaussians = Gaussians(centres, np.asarray(max(first, settings.floor, _LEAST_VARIANCE)))
        reason = StopReason.MAX_ITER if settings.max_iter == 0 else None
        history: list[dict[str, Any]] = []
        free_energy, masses = -np.inf, np.full(gaussians.k, weight / gaussians.k)
        while reason is None:
            began, iteration = time.perf_counter(), len(history) + 1
            found = self.passes.step(gaussians)
            before, free_energy = free_energy, found.bound.value + weight * gaussians.log_constant
            masses = found.masses
            gaussians = self._learnt(found, gaussians, iteration)
            seconds = time.perf_counter() - began
            history.append(_record(iteration, free_energy, gaussians, found, seconds))
            stopping.tell(_event(history[-1]))
            change = abs(free_energy - before) if iteration > 1 else np.inf
            reason = stopping.reason(
                iteration,
                moved=change > 0.0 or settings.tol == 0.0,
                shift=change,
                threshold=settings.tol * abs(free_energy),
            )
        gaussians = as_kind(gaussians, settings.covariance_type)
        return MixtureResult(gaussians, free_energy, weight, masses, len(history), reason, history)

    def _learnt(self, found: MixtureStatistics, gaussians: Gaussians, iteration: int) -> Gaussians:
        kind, floor = self.settings.covariance_type, max(self.settings.floor, _LEAST_VARIANCE)
        if kind == "isotropic" or iteration <= SHARED_STEPS:
            learnt = updated(found, gaussians, kind="isotropic", floor=floor)
            return as_kind(learnt, kind) if iteration == SHARED_STEPS else learnt
        return updated(found, gaussians, kind=kind, floor=floor)

    def _total_weight(self) -> float:
        survey = self.rows.known()
        return survey.weight.value or float(survey.n_rows)


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
        "inertia": float(found.seconds.sum()),
        "variance": float(np.mean(gaussians.variances)),
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


class _ExactPasses:
    """Passes that look at all clusters; nothing stays with the rows."""

    def __init__(self, rows: ScaledPlacement, centres: np.ndarray, settings: EMSettings) -> None:
        self._rows, self._settings = rows, settings
        self._n_uncounted = 0

    def first_cost(self, gaussians: Gaussians) -> float:
        """Return the weighted sum of squared distances to the nearest means."""
        self._n_uncounted = self._rows.known().n_rows * gaussians.k
        return score_rows(self._rows, gaussians.means).inertia

    def step(self, gaussians: Gaussians) -> MixtureStatistics:
        key = Key(self._settings.seed, "mixture sets")

        def params(scale: Scale) -> MixtureParams:
            return MixtureParams(Step(gaussians, None), scale, gaussians.k, key)

        found: MixtureStatistics = self._rows.reduce(EXACT_EM, params)
        found.n_distances += self._n_uncounted
        self._n_uncounted = 0
        return found

    def close(self) -> None:
        return None


class _TruncatedPasses:
    """Passes that keep K(n) with the rows, and G_c here."""

    def __init__(self, rows: ScaledPlacement, centres: np.ndarray, settings: EMSettings) -> None:
        self._rows, self._settings = rows, settings
        self._reduction = truncated_pass(settings.truncation)
        g = min(settings.n_neighbors, len(centres))
        self.neighbours = first_neighbours(settings.seed, len(centres), g)
        self._journal, self._n_steps = list[Step](), 0
        self._saves = _Saves(rows)
        self._rooted = settings.covariance_type == "isotropic"
        self._searched = False
        self._n_uncounted = 0

    def first_cost(self, gaussians: Gaussians) -> float:
        """Search with a variance of one, and return the sum of the least squared distances (eq. 8)."""
        for _ in range(self._settings.warmup_steps + 1):
            found = self._pass(gaussians, self._search(), learns=False)
            self._n_uncounted += found.n_distances
        self._searched = True
        return found.bound.value

    def step(self, gaussians: Gaussians) -> MixtureStatistics:
        """Make an E-step and return what an M-step needs. The search before counts as the first."""
        search = None if self._searched else self._search()
        found = self._pass(gaussians, search, learns=True)
        found.n_distances += self._n_uncounted
        self._searched, self._n_uncounted = False, 0
        return found

    def _search(self) -> Search:
        settings, number = self._settings, self._n_steps
        key = Key(settings.seed, "mixture candidates", number)
        return Search(self.neighbours, settings.rule, settings.n_random, key)

    def _pass(
        self, gaussians: Gaussians, search: Search | None, *, learns: bool
    ) -> MixtureStatistics:
        settings, step = self._settings, Step(gaussians, search)
        params = MixtureParams(
            step,
            self._rows.scale,
            settings.truncation,
            Key(settings.seed, "mixture sets"),
            tuple(self._journal),
            self._saves.last,
            self._saves.next(len(self._journal) + 1),
            learns=learns,
            rooted=self._rooted,
        )
        found: MixtureStatistics = self._rows.placement.map_state(self._reduction, params)
        self._n_steps += 1
        self._journal.append(step)
        if self._saves.done(found.n_saved):
            self._journal.clear()
        if search is not None:
            self._learn_neighbours(found, search, gaussians)
        return found

    def _learn_neighbours(
        self, found: MixtureStatistics, search: Search, gaussians: Gaussians
    ) -> None:
        lists, sizes = search.lists(listed_tile_for(gaussians.means.dtype).height)
        rooted = self._rooted
        shift = MixtureGrids.of(self._rows.scale, gaussians, rooted=rooted).keys
        told = found.told_sums, found.told_counts, STEPS / shift
        self.neighbours = learn_neighbours(lists, sizes, *told, found.pairs.table, self.neighbours)

    def close(self) -> None:
        self._rows.placement.drop_state(self._reduction.name)


class _Saves:
    """Saves of K(n), every `SAVE_EVERY` steps where state may be lost: the journal then starts anew.

    On threads nothing is lost. On a cluster sets are saved if there is a folder that all workers see.

    Attributes
    ----------
    last : StateFiles or None
        The last save that is whole.
    """

    def __init__(self, rows: ScaledPlacement) -> None:
        self._placement = rows.placement
        self._count = 0
        self.last: StateFiles | None = None
        self._next: StateFiles | None = None

    def next(self, n_steps: int) -> StateFiles | None:
        """Return where to save sets in the step that makes a journal of `n_steps`, None for not at all."""
        self._next = None
        folder = self._placement.shared_folder() if n_steps >= SAVE_EVERY else None
        if folder is not None:
            self._count += 1
            self._next = StateFiles(f"{folder}/{self._count}")
        return self._next

    def done(self, n_rows: int) -> bool:
        """Return True if the sets of all rows were saved; the save before is removed then."""
        if self._next is None:
            return False
        whole = n_rows == self._placement.dataset.n_rows
        useless = self.last if whole else self._next
        if useless is not None:
            useless.remove()
        if whole:
            self.last = self._next
        return whole


def first_neighbours(seed: int, k: int, g: int) -> np.ndarray:
    """Return (k, g) int32: each cluster itself, and g - 1 distinct others, drawn uniformly."""
    generator = Key(seed, "mixture neighbours").generator()
    found = np.empty((k, g), np.int32)
    for c in range(k):
        others = generator.choice(k - 1, size=g - 1, replace=False)
        found[c, 0] = c
        found[c, 1:] = others + (others >= c)
    return found
