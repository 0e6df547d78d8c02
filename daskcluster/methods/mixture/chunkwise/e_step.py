"""Chunkwise truncated EM: update the candidate sets K(n) of rows and sum the moments in one visit.

The sets are *carried* state: they depend on all steps before, not on the parameters alone. Params
therefore hold the journal of the steps made since the sets were last saved, or since the
beginning, and rows whose sets were lost go through all of them again, to the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.exact_sum import Scale
from daskcluster.chunkwise.statistics import Reduction, StatefulReduction
from daskcluster.errors import CheckpointError
from daskcluster.kernels.accumulate import sum_on_grid
from daskcluster.kernels.arrays import read_only, weights_or_none
from daskcluster.methods.mixture.chunkwise.statistics import (
    Gaussians,
    MixtureGrids,
    MixtureStatistics,
)
from daskcluster.methods.mixture.kernels.all import all_kernel
from daskcluster.methods.mixture.kernels.candidates import Space
from daskcluster.methods.mixture.kernels.neighbours import neighbour_lists
from daskcluster.methods.mixture.kernels.tile import listed_tile_for
from daskcluster.methods.mixture.kernels.truncated import draw_sets, step_kernel
from daskcluster.randomness import Key


@dataclass(frozen=True)
class Search:
    """Candidates among which rows find nearer clusters.

    Attributes
    ----------
    neighbours : ndarray of shape (k, g), int32
        G_c, the cluster itself first.
    rule : {"tile", "row"}
        ``"row"``: the neighbours of all members of K(n). ``"tile"``: K(n), and the neighbours' neighbours
        of its nearest member, which all rows of that cluster share.
    n_random : int
        Clusters drawn at random for each row, in addition.
    key : Key
        Of the draws; new in each step.
    """

    neighbours: np.ndarray
    rule: str
    n_random: int
    key: Key

    def lists(self, height: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the shared candidates (k, width) and how many there are, for tiles of a height."""
        k, g = self.neighbours.shape
        if self.rule == "row":
            return _no_lists(k)
        width = -(-min(k, g * g) // height) * height
        lists, sizes = np.empty((k, width), np.int32), np.empty(k, np.int32)
        neighbour_lists(self.neighbours, lists, sizes)
        return lists, sizes


def _no_lists(k: int) -> tuple[np.ndarray, np.ndarray]:
    return np.empty((k, 0), np.int32), np.zeros(k, np.int32)


@dataclass(frozen=True)
class Step:
    """One E-step: with these parameters, in this search space.

    Attributes
    ----------
    gaussians : Gaussians
    search : Search or None
        None leaves K(n) as a set, and only orders it.
    """

    gaussians: Gaussians
    search: Search | None


class SavedSets(Protocol):
    """Sets of all rows after one pass, where any task can read and write them."""

    def write(self, start: int, values: np.ndarray) -> bool:
        """Save the sets of the rows from `start` on; False, or an error, if that failed."""
        ...

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return the sets of rows `start` to `stop`."""
        ...


@dataclass(frozen=True)
class MixtureParams:
    """A step, what comes of it, and the steps before.

    Attributes
    ----------
    step : Step
    scale : Scale
    truncation : int
        Size of K(n).
    initial : Key
        Of the sets that rows begin with.
    journal : tuple of Step
        Those made since `saved`, in order.
    saved : SavedSets or None
        The state that the journal resumes from; None: a new one.
    save_to : SavedSets or None
        Where sets go after this step.
    learns : bool
        Add up the moments of an M-step.
    rooted : bool
        Clusters are as near as the mean distance (not the mean cost) says.
    room : int
        Pairs of clusters that a thread makes room for before it has met any.
    """

    step: Step
    scale: Scale
    truncation: int
    initial: Key
    journal: tuple[Step, ...] = field(default=(), repr=False)
    saved: SavedSets | None = None
    save_to: SavedSets | None = None
    learns: bool = True
    rooted: bool = True
    room: int = 0


class _Ready:
    """A step made ready for rows: its lists and kernel."""

    def __init__(self, step: Step) -> None:
        self.step = step
        gaussians, search = step.gaussians, step.search
        dtype = gaussians.means.dtype
        if search is None:
            self.lists, self.sizes = _no_lists(gaussians.k)
        else:
            self.lists, self.sizes = search.lists(listed_tile_for(dtype).height)
        self.tells_kept = search is not None and search.rule == "tile"
        self.n_neighbours = 0 if search is None else search.neighbours.shape[1]
        near = search.neighbours if search is not None and search.rule == "row" else None
        self.neighbours = np.empty((gaussians.k, 0), np.int32) if near is None else near
        self.kernel = step_kernel(dtype, scaled=gaussians.by_feature)

    def space(self, start: int, stop: int) -> Space:
        return Space(self.lists, self.sizes, self.neighbours, self._drawn(start, stop))

    def _drawn(self, start: int, stop: int) -> np.ndarray:
        search = self.step.search
        if search is None or not search.n_random:
            return np.empty((stop - start, 0), np.int32)
        m = search.n_random
        words = search.key.words(start * m, stop * m).reshape(-1, m)
        return (words % np.uint64(self.step.gaussians.k)).astype(np.int32)

    def run(
        self,
        block: Chunk,
        sets: np.ndarray,
        grids: MixtureGrids,
        into: MixtureStatistics,
        *,
        learns: bool,
        rooted: bool,
    ) -> np.ndarray:
        """Update the sets of a block and add it to `into`; return its weighted log-sums or least costs.

        These are in the order of the kernel's visits: all that is made of them is an exact sum.
        """
        gaussians, pairs = self.step.gaussians, into.pairs
        bounds = np.empty(block.n_rows)
        kept = self.tells_kept and sets.shape[1] >= self.n_neighbours
        pairs.table, computed, n_moved = self.kernel(
            (read_only(block.rows), weights_or_none(block.weights)),
            sets,
            gaussians.costs,
            (gaussians.sharpness, gaussians.least_posterior),
            self.space(block.start, block.stop),
            into.neighbour_sums_of(rooted=rooted, kept=kept),
            (pairs.table, pairs.used),
            (grids.moments, into.moments),
            bounds,
            learns,
        )
        into.n_distances += computed
        into.n_moved += n_moved
        return bounds


class _Prepared:
    """Params, made ready once per task; the journal only if rows have to be replayed."""

    def __init__(self, params: MixtureParams) -> None:
        self.params = params
        self.ready = _Ready(params.step)
        self.grids = MixtureGrids.of(params.scale, params.step.gaussians, rooted=params.rooted)
        self._replay: list[tuple[_Ready, MixtureGrids]] | None = None

    def replay(self) -> list[tuple[_Ready, MixtureGrids]]:
        if self._replay is None:
            scale, rooted = self.params.scale, self.params.rooted
            self._replay = [
                (_Ready(step), MixtureGrids.of(scale, step.gaussians, rooted=rooted))
                for step in self.params.journal
            ]
        return self._replay

    def zero(self, *, quiet: bool = False) -> MixtureStatistics:
        params = self.params
        return MixtureStatistics.zero(
            params.step.gaussians,
            two_grids=params.scale.two_grids,
            learns=params.learns and not quiet,
            tells=params.step.search is not None and not quiet,
            width=self.ready.lists.shape[1],
            room=params.room,
            key_shift=self.grids.keys,
        )


def _fresh(n_rows: int, prepared: _Prepared) -> np.ndarray:
    return np.empty((n_rows, prepared.params.truncation), np.int32)


def first_sets(key: Key, start: int, stop: int, q: int, k: int) -> np.ndarray:
    """Return q distinct clusters of k for each of the rows `start` to `stop`, drawn uniformly."""
    sets = np.empty((stop - start, q), np.int32)
    draw_sets(key.words(start * q, stop * q).reshape(-1, q), k, sets)
    return sets


def _rebuild(chunk: Chunk, prepared: _Prepared, state: np.ndarray) -> None:
    params = prepared.params
    q, k = state.shape[1], params.step.gaussians.k
    if params.saved is None:
        state[:] = first_sets(params.initial, chunk.start, chunk.stop, q, k)
    else:
        state[:] = params.saved.read(chunk.start, chunk.stop)
        if len(state) and not 0 <= state.min() <= state.max() < k:
            raise CheckpointError(
                f"the saved sets of rows {chunk.start} to {chunk.stop} name clusters that are not among "
                f"the {k} of the fit; remove that checkpoint, or begin without resume."
            )
    nothing = prepared.zero(quiet=True)
    for block in chunk.blocks():
        sets = state[block.start - chunk.start : block.stop - chunk.start]
        for ready, grids in prepared.replay():
            ready.run(block, sets, grids, nothing, learns=False, rooted=params.rooted)


def _zero(prepared: _Prepared) -> MixtureStatistics:
    return prepared.zero()


def _step_chunk(
    chunk: Chunk, prepared: _Prepared, into: MixtureStatistics, state: np.ndarray
) -> None:
    params, grids = prepared.params, prepared.grids
    for block in chunk.blocks():
        sets = state[block.start - chunk.start : block.stop - chunk.start]
        bounds = prepared.ready.run(
            block, sets, grids, into, learns=params.learns, rooted=params.rooted
        )
        into.bound.add(*sum_on_grid(bounds, grids.bounds))
    if params.save_to is not None and params.save_to.write(chunk.start, state):
        into.n_saved += chunk.n_rows


def truncated_pass(truncation: int) -> StatefulReduction:
    """Return the reduction `MixtureParams` -> `MixtureStatistics` for sets of that size."""
    return StatefulReduction(
        name="truncated EM",
        row_bytes=4 * truncation,
        prepare=_Prepared,
        zero=_zero,
        fresh=_fresh,
        rebuild=_rebuild,
        chunk=_step_chunk,
        combine=MixtureStatistics.combine,
    )


# -- without truncation: exact EM, which has no state ---------------------------------------------


def _exact_chunk(chunk: Chunk, prepared: _Prepared, into: MixtureStatistics) -> None:
    gaussians = prepared.params.step.gaussians
    visit = all_kernel(gaussians.means.dtype, scaled=gaussians.by_feature)
    for block in chunk.blocks():
        bounds, nearest = np.empty(block.n_rows), np.empty((block.n_rows, 1), np.int32)
        visit(
            (read_only(block.rows), weights_or_none(block.weights)),
            gaussians.costs,
            (gaussians.sharpness, gaussians.least_posterior),
            True,
            (prepared.grids.moments, into.moments),
            nearest,
            np.empty((block.n_rows, 0)),
            bounds,
        )
        into.n_distances += block.n_rows * gaussians.k
        if block.weights is not None:
            bounds *= block.weights
        into.bound.add(*sum_on_grid(bounds, prepared.grids.bounds))


EXACT_EM = Reduction(
    name="EM",
    prepare=_Prepared,
    zero=_zero,
    chunk=_exact_chunk,
    combine=MixtureStatistics.combine,
)
"""`MixtureParams` -> `MixtureStatistics`, with posteriors of all clusters."""
