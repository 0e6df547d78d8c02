"""The passes of variational EM, and the state of rows and clusters between E-steps."""

from __future__ import annotations

from dataclasses import dataclass

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
"""Steps between two saves of K(n): a lost worker costs its rows half of these again on average."""


class Saves:
    """Saves every `SAVE_EVERY` steps where sets may be lost, and those that are asked for.

    On threads nothing is lost. On a cluster sets are saved if there is a folder that all workers see.

    Parameters
    ----------
    placement : Placement
    width : int
        Clusters in a set.
    last : StateFiles, optional
        A save that is whole, of an earlier fit.

    Attributes
    ----------
    last : StateFiles or None
        The last save that is whole.
    """

    def __init__(self, placement: Placement, width: int, last: StateFiles | None = None) -> None:
        self._placement, self._width = placement, width
        self._count = 0
        self.last = last
        self._next: StateFiles | None = None

    def next(self, n_steps: int, asked: StateFiles | None = None) -> StateFiles | None:
        """Return where to save sets in the step that makes a journal of `n_steps`, None for not at all.

        Parameters
        ----------
        n_steps : int
        asked : StateFiles, optional
            Where somebody wants them in any case.
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
        """Return True if the sets of all rows were saved; the save before is removed, unless it is kept.

        Raises
        ------
        CheckpointError
            Workers have written what is kept where the driver does not see it.
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
    """State that passes carry from one iteration to the next, other than the parameters.

    Attributes
    ----------
    n_steps : int
        E-steps so far: each has random numbers of its own.
    neighbours : ndarray of shape (k, g), int32, or None
        G_c; None for exact EM, which carries nothing.
    sets : StateFiles or None
        K(n) of all rows, where they were saved in the last pass.
    """

    n_steps: int
    neighbours: np.ndarray | None = None
    sets: StateFiles | None = None


class ExactPasses:
    """Passes over all clusters; rows have no state."""

    def __init__(self, rows: ScaledPlacement, settings: EMSettings) -> None:
        self._rows, self._settings = rows, settings
        self._n_uncounted = self._n_steps = 0

    def first_cost(self, gaussians: Gaussians) -> float:
        """Return the weighted sum of squared distances to the nearest means."""
        self._n_uncounted = self._rows.known().n_rows * gaussians.k
        return score_rows(self._rows, gaussians.means).inertia

    def search(self, gaussians: Gaussians) -> None:
        """Nothing is searched for."""

    def step(self, gaussians: Gaussians, save_to: StateFiles | None = None) -> MixtureStatistics:
        """Make an E-step and return what an M-step needs; there are no sets to save."""
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
    """Passes that keep K(n) with the rows, and G_c here.

    Parameters
    ----------
    rows : ScaledPlacement
    k : int
    settings : EMSettings
    resumed : Carried, optional
        What passes that were made before have left.
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
        """Search with a variance of one, and return the sum of the least squared distances (eq. 8)."""
        return self.search(gaussians).bound.value

    def search(self, gaussians: Gaussians) -> MixtureStatistics:
        """Look for the sets of rows before the first iteration."""
        for _ in range(self._settings.warmup_steps + 1):
            found = self._pass(gaussians, self._search(), learns=False)
            self._n_uncounted += found.n_distances
        self._searched = True
        return found

    def step(self, gaussians: Gaussians, save_to: StateFiles | None = None) -> MixtureStatistics:
        """Make an E-step and return what an M-step needs. The search before counts as the first.

        Parameters
        ----------
        gaussians : Gaussians
        save_to : StateFiles, optional
            Where the sets of all rows go.
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
        self._journal.append(step)
        if self._saves.done(found.n_saved):
            self._journal.clear()
        if search is not None:
            # Elsewhere pairs come merged: more than one thread has.
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
    """Return (k, g) int32: each cluster itself, and g - 1 distinct others, drawn uniformly."""
    generator = Key(seed, "mixture neighbours").generator()
    found = np.empty((k, g), np.int32)
    for c in range(k):
        others = generator.choice(k - 1, size=g - 1, replace=False)
        found[c, 0] = c
        found[c, 1:] = others + (others >= c)
    return found
