"""Passes of variational EM, and the state of rows and clusters between E-steps."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from daskcluster.chunkwise.exact_sum import Scale
from daskcluster.engine.engine import Placement
from daskcluster.engine.scaled import ScaledPlacement, score_rows
from daskcluster.methods.mixture.chunkwise.e_step import (
    EXACT_EM,
    MixtureParams,
    Search,
    Step,
    truncated_pass,
)
from daskcluster.methods.mixture.chunkwise.statistics import Gaussians, MixtureStatistics
from daskcluster.methods.mixture.kernels.neighbours import learn_neighbours
from daskcluster.methods.mixture.kernels.tile import listed_tile_for
from daskcluster.methods.mixture.kernels.truncated import STEPS
from daskcluster.methods.mixture.settings import EMSettings
from daskcluster.randomness import Key
from daskcluster.storage.location import locate
from daskcluster.storage.row_state import StateFiles

SAVE_EVERY = 8
"""Steps between two saves of K(n). On average, rows of a lost worker repeat half of these."""


class Saves:
    """Decides when the candidate sets are saved, and removes the saves that are not needed any more.

    Sets are saved when the caller requests it and, on a cluster with a folder that all workers share,
    every `SAVE_EVERY` steps. Threads lose no sets and need neither saves nor a journal.

    Parameters
    ----------
    placement : Placement
    width : int
        Size of a set.
    last : StateFiles, optional
        A complete save of an earlier fit.

    Attributes
    ----------
    last : StateFiles or None
        The last complete save.
    """

    def __init__(self, placement: Placement, width: int, last: StateFiles | None = None) -> None:
        self._placement, self._width = placement, width
        self._count = 0
        self.last = last
        self._next: StateFiles | None = None

    def next(self, n_steps: int, asked: StateFiles | None = None) -> StateFiles | None:
        """Return where to save the sets in the next step, or None not to save them.

        Parameters
        ----------
        n_steps : int
            Length of the journal after that step.
        asked : StateFiles, optional
            Files that the caller requests in any case.
        """
        self._next = asked
        if asked is not None or n_steps < SAVE_EVERY:
            return asked
        folder = self._placement.shared_folder()
        if folder is not None:
            self._count += 1
            self._next = StateFiles(locate(f"{folder}/{self._count}"), self._width)
        return self._next

    def done(self, n_rows: int) -> bool:
        """Return whether the sets of all rows were saved; remove the save that is not needed any more.

        Saves of a checkpoint are never removed.

        Raises
        ------
        CheckpointError
            The driver does not see the checkpoint files that the workers wrote.
        """
        if self._next is None:
            return False
        whole = n_rows == self._placement.dataset.n_rows
        if self._next.kept:
            self._next.check(self._placement.dataset.n_rows, whole=False)
        useless = self.last if whole else self._next
        if useless is not None and not useless.kept:
            useless.remove()
        if whole:
            self.last = self._next
        return whole


@dataclass(frozen=True)
class Carried:
    """State that passes carry from one iteration to the next, in addition to the parameters.

    Attributes
    ----------
    n_steps : int
        E-steps so far; part of the key of the random numbers of each.
    neighbours : ndarray of shape (k, g), int32, or None
        G_c; None for exact EM.
    sets : StateFiles or None
        K(n) of all rows, if the last pass saved them.
    """

    n_steps: int
    neighbours: np.ndarray | None = None
    sets: StateFiles | None = None


class ExactPasses:
    """Passes of exact EM: rows are compared with all clusters and have no state."""

    def __init__(self, rows: ScaledPlacement, settings: EMSettings) -> None:
        self._rows, self._settings = rows, settings
        self._n_uncounted = self._n_steps = 0

    def first_cost(self, gaussians: Gaussians) -> float:
        """Return the weighted sum of squared distances to the nearest means."""
        self._n_uncounted = self._rows.known().n_rows * gaussians.k
        return score_rows(self._rows, gaussians.means).inertia

    def search(self, gaussians: Gaussians) -> None:
        """Do nothing: exact EM has no candidate sets."""

    def step(self, gaussians: Gaussians, save_to: StateFiles | None = None) -> MixtureStatistics:
        """Make an E-step and return the statistics of the M-step; `save_to` is ignored."""
        key = Key(self._settings.seed, "mixture sets")

        def params(scale: Scale) -> MixtureParams:
            return MixtureParams(Step(gaussians, None), scale, gaussians.k, key)

        found: MixtureStatistics = self._rows.reduce(EXACT_EM, params)
        found.n_distances += self._n_uncounted
        self._n_uncounted = 0
        self._n_steps += 1
        return found

    def carried(self) -> Carried:
        return Carried(self._n_steps)

    def close(self) -> None:
        return None


class TruncatedPasses:
    """Passes of truncated EM: K(n) stays with the rows, G_c in this object.

    Parameters
    ----------
    rows : ScaledPlacement
    k : int
    settings : EMSettings
    resumed : Carried, optional
        State after earlier passes.
    """

    def __init__(
        self, rows: ScaledPlacement, k: int, settings: EMSettings, resumed: Carried | None = None
    ) -> None:
        self._rows, self._settings = rows, settings
        self._reduction = truncated_pass(settings.truncation)
        g = min(settings.n_neighbors, k)
        resumed = resumed or Carried(0, first_neighbours(settings.seed, k, g))
        assert resumed.neighbours is not None
        self.neighbours = resumed.neighbours
        self._journal, self._n_steps = list[Step](), resumed.n_steps
        self._saves = Saves(rows.placement, settings.truncation, resumed.sets)
        self._rooted = settings.covariance_type == "isotropic"
        self._searched = False
        self._n_uncounted = self._room = 0

    def first_cost(self, gaussians: Gaussians) -> float:
        """Search with a variance of one; return the weighted sum of the least squared distances (eq. 8)."""
        return self.search(gaussians).bound.value

    def search(self, gaussians: Gaussians) -> MixtureStatistics:
        """Search for the candidate sets before the first iteration, in ``warmup_steps`` + 1 passes."""
        for _ in range(self._settings.warmup_steps + 1):
            found = self._pass(gaussians, self._search(), learns=False)
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

    def carried(self) -> Carried:
        """Return the state that the next pass depends on; resuming also needs the saved sets."""
        saved = None if self._journal else self._saves.last
        return Carried(self._n_steps, self.neighbours, saved)

    def _search(self) -> Search:
        settings, number = self._settings, self._n_steps
        key = Key(settings.seed, "mixture candidates", number)
        return Search(self.neighbours, settings.rule_of(number), settings.n_random, key)

    def _pass(
        self,
        gaussians: Gaussians,
        search: Search | None,
        *,
        learns: bool,
        save_to: StateFiles | None = None,
    ) -> MixtureStatistics:
        settings, step = self._settings, Step(gaussians, search)
        params = MixtureParams(
            step,
            self._rows.scale,
            settings.truncation,
            Key(settings.seed, "mixture sets"),
            tuple(self._journal),
            self._saves.last,
            self._saves.next(len(self._journal) + 1, save_to),
            learns=learns,
            rooted=self._rooted,
            room=self._room,
        )
        found: MixtureStatistics = self._rows.placement.map_state(self._reduction, params)
        self._n_steps += 1
        if self._rows.placement.loses_state:
            # A copy of the parameters, without the factors and costs that were derived from them.
            self._journal.append(Step(replace(gaussians), search))
        if self._saves.done(found.n_saved):
            self._journal.clear()
        if search is not None:
            # Otherwise the pairs of several threads are merged, and their number says little about one.
            if self._rows.placement.shares_memory:
                self._room = found.pairs.most_used
            self._learn_neighbours(found, search, gaussians)
        return found

    def _learn_neighbours(
        self, found: MixtureStatistics, search: Search, gaussians: Gaussians
    ) -> None:
        lists, sizes = search.lists(listed_tile_for(gaussians.means.dtype).height)
        neighbour_sums_of = found.neighbour_sums, found.neighbour_counts, STEPS / found.key_shift
        self.neighbours = learn_neighbours(
            lists, sizes, *neighbour_sums_of, found.pairs.listed(), self.neighbours
        )

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
