"""Passes of a mixture over a chunk: truncated EM, exact EM, and rows under a fitted mixture.

Truncated EM updates the candidate sets K(n) of the rows and sums moments, in one pass. The sets are
*carried* state: they depend on all previous steps, not only on the parameters. Params therefore hold a
journal of the steps since the sets were last saved, or since the start. Lost sets are recomputed by
repeating the steps of the journal, to identical bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.chunkwise.data_statistics import refuse_bad
from daskcluster.chunkwise.exact_sum import Scale
from daskcluster.chunkwise.statistics import ExactScalar, Reduction, StatefulReduction
from daskcluster.errors import CheckpointError
from daskcluster.fingerprint import NO_MATTER
from daskcluster.kernels.accumulate import sum_on_grid
from daskcluster.kernels.jit import NO_WEIGHTS, aligned_zeros, read_only, weights_or_none
from daskcluster.kernels.sum_grid import SumGrid
from daskcluster.methods.mixture.chunkwise.statistics import (
    Gaussians,
    MixtureGrids,
    MixtureStatistics,
    PairSums,
)
from daskcluster.methods.mixture.kernels.candidates import Space, listed_tile_for, neighbour_lists
from daskcluster.methods.mixture.kernels.sums import MomentGrids, Moments
from daskcluster.methods.mixture.kernels.truncated import (
    NeighbourSums,
    all_kernel,
    draw_sets,
    step_kernel,
)
from daskcluster.randomness import Key

if TYPE_CHECKING:
    from daskcluster.storage.checkpoint import StateFiles


@dataclass(frozen=True)
class CandidateSearch:
    """The search space of rows: the candidates that they are compared with.

    Attributes
    ----------
    neighbours : ndarray of shape (k, g), int32
        G_c, the cluster itself first.
    rule : {"tile", "row"}
        ``"row"``: the neighbours of all members of K(n). ``"tile"``: K(n), and the neighbours' neighbours
        of its nearest member, which all rows of that cluster share.
    n_random : int
        Number of extra candidates that are drawn at random for each row.
    key : Key
        Random key of the draws; another one in each step.
    """

    neighbours: np.ndarray
    rule: str
    n_random: int
    key: Key

    def lists(self, height: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the shared candidates (k, width) and their numbers (k,), for tiles of `height`."""
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
class EStep:
    """The parameters and the search space of one E-step.

    Attributes
    ----------
    gaussians : Gaussians
    search : CandidateSearch or None
        None: the members of K(n) stay the same and are only sorted.
    """

    gaussians: Gaussians
    search: CandidateSearch | None


@dataclass(frozen=True)
class MixtureParams:
    """Params of a pass: its step, its options, and the journal of earlier steps.

    Attributes
    ----------
    step : EStep
    scale : Scale
    truncation : int
        Size of K(n), if rows have such sets.
    initial : Key or None
        Random key of the initial sets.
    journal : tuple of EStep
        Steps since `saved`, in order.
    saved : StateFiles or None
        Sets that the journal starts from; None: the initial sets.
    save_to : StateFiles or None
        Where to save the sets after this step; None: nowhere.
    learns : bool
        Sum the moments of the M-step.
    rooted : bool
        Neighbours are ranked by mean distance, not by mean cost.
    room : int
        Initial capacity of a table of pairs of clusters.
    """

    step: EStep
    scale: Scale
    truncation: int = 0
    initial: Key | None = None
    journal: tuple[EStep, ...] = field(default=(), repr=False)
    saved: StateFiles | None = None
    save_to: StateFiles | None = None
    learns: bool = True
    rooted: bool = True
    room: int = field(default=0, metadata=NO_MATTER)


class _Ready:
    """A step, prepared for rows: its candidate lists and its kernel."""

    def __init__(self, step: EStep) -> None:
        self.step = step
        gaussians, search = step.gaussians, step.search
        dtype = gaussians.means.dtype
        if search is None:
            self.lists, self.sizes = _no_lists(gaussians.k)
        else:
            self.lists, self.sizes = search.lists(listed_tile_for(dtype).height)
        self.selects = search is not None and search.rule == "tile"
        self.n_neighbours = 0 if search is None else search.neighbours.shape[1]
        near = search.neighbours if search is not None and search.rule == "row" else None
        self.neighbours = np.empty((gaussians.k, 0), np.int32) if near is None else near
        self.kernel = step_kernel(dtype, scaled=gaussians.scaled)

    def space(self, start: int, stop: int) -> Space:
        drawn, search = np.empty((stop - start, 0), np.int32), self.step.search
        if search is not None and search.n_random:
            m = search.n_random
            words = search.key.words(start * m, stop * m).reshape(-1, m)
            drawn = (words % np.uint64(self.step.gaussians.k)).astype(np.int32)
        return Space(self.lists, self.sizes, self.neighbours, drawn)

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

        The values are not in the order of the rows; callers use them in an exact sum only.
        """
        gaussians, pairs = self.step.gaussians, into.pairs
        bounds = np.empty(block.n_rows)
        selected_only = self.selects and sets.shape[1] >= self.n_neighbours
        pairs.table, computed, n_moved = self.kernel(
            (read_only(block.rows), weights_or_none(block.weights)),
            sets,
            gaussians.costs,
            (gaussians.sharpness, gaussians.least_posterior),
            self.space(block.start, block.stop),
            NeighbourSums(
                into.neighbour_sums,
                into.neighbour_counts,
                np.array([into.key_shift]),
                np.array([rooted]),
                np.array([selected_only]),
            ),
            (pairs.table, pairs.used),
            (grids.moments, into.moments),
            bounds,
            learns,
        )
        into.n_distances += computed
        into.n_moved += n_moved
        return bounds


class _PreparedEStep:
    """Params, prepared once per task; the journal is prepared only if steps have to be repeated."""

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
        """Return empty statistics; with `quiet`, those of a step whose sums are not needed."""
        params, gaussians = self.params, self.params.step.gaussians
        learns, d = params.learns and not quiet, gaussians.d
        collects = params.step.search is not None and not quiet
        k, k_near = (gaussians.k if learns else 0), (gaussians.k if collects else 0)
        moments = Moments(
            aligned_zeros(k * d),
            aligned_zeros(k * d if params.scale.two_grids else 0),
            np.zeros((2, gaussians.seconds_size if learns else 0)),
            aligned_zeros(4 * k),
        )
        return MixtureStatistics(
            moments,
            ExactScalar(),
            np.zeros((k_near, self.ready.lists.shape[1])),
            np.zeros(k_near, np.int64),
            PairSums(params.room if collects else 0),
            self.grids.keys,
            len(gaussians.variances) if gaussians.has_matrices and learns else 0,
        )


def _fresh(n_rows: int, prepared: _PreparedEStep) -> np.ndarray:
    return np.empty((n_rows, prepared.params.truncation), np.int32)


def first_sets(key: Key, start: int, stop: int, q: int, k: int) -> np.ndarray:
    """Return q distinct clusters of k for each of the rows `start` to `stop`, drawn uniformly."""
    sets = np.empty((stop - start, q), np.int32)
    draw_sets(key.words(start * q, stop * q).reshape(-1, q), k, sets)
    return sets


def _rebuild(chunk: Chunk, prepared: _PreparedEStep, state: np.ndarray) -> None:
    params = prepared.params
    q, k = state.shape[1], params.step.gaussians.k
    if params.saved is None:
        assert params.initial is not None
        state[:] = first_sets(params.initial, chunk.start, chunk.stop, q, k)
    else:
        state[:] = params.saved.read(chunk.start, chunk.stop)
        if len(state) and not 0 <= state.min() <= state.max() < k:
            raise CheckpointError(
                f"the saved sets of rows {chunk.start} to {chunk.stop} refer to clusters outside the "
                f"{k} of the fit; remove the damaged checkpoint, or start with resume=False."
            )
    nothing = prepared.zero(quiet=True)
    for block in chunk.blocks():
        sets = state[block.start - chunk.start : block.stop - chunk.start]
        for ready, grids in prepared.replay():
            ready.run(block, sets, grids, nothing, learns=False, rooted=params.rooted)


def _step_chunk(
    chunk: Chunk, prepared: _PreparedEStep, into: MixtureStatistics, state: np.ndarray
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
    """Return the reduction `MixtureParams` -> `MixtureStatistics` for sets of size `truncation`."""
    return StatefulReduction(
        name="truncated EM",
        row_bytes=4 * truncation,
        prepare=_PreparedEStep,
        zero=_PreparedEStep.zero,
        fresh=_fresh,
        rebuild=_rebuild,
        chunk=_step_chunk,
    )


# -- exact EM: no truncation, no state ------------------------------------------------------------


def _exact_chunk(chunk: Chunk, prepared: _PreparedEStep, into: MixtureStatistics) -> None:
    gaussians = prepared.params.step.gaussians
    visit = all_kernel(gaussians.means.dtype, scaled=gaussians.scaled)
    for block in chunk.blocks(least=gaussians.means.dtype):
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
    prepare=_PreparedEStep,
    zero=_PreparedEStep.zero,
    chunk=_exact_chunk,
)
"""`MixtureParams` -> `MixtureStatistics`, with posteriors of all clusters."""


# -- rows under a fitted mixture, by full search --------------------------------------------------

POSTERIOR = np.dtype([("components", np.int32), ("probabilities", np.float64)])
STORED_POSTERIOR = np.dtype([("components", np.int32), ("probabilities", np.float32)])
"""Posteriors as they are stored. float32 suffices: distances of float32 rows have fewer correct digits."""
_NONE, _NO_SECONDS = np.empty(0), np.empty((2, 0))


def prepare_labels(gaussians: Gaussians) -> tuple[Gaussians, PreparedCentres]:
    """Prepare the means, once per task."""
    return gaussians, PreparedCentres(gaussians.means)


def label_by_density(chunk: Chunk, prepared: tuple[Gaussians, PreparedCentres]) -> np.ndarray:
    """Return the cluster with the largest posterior of every row, int32 (n,)."""
    gaussians, centres = prepared
    labels = np.empty(chunk.n_rows, np.int32)
    for block in chunk.cache_blocks(least=gaussians.means.dtype):
        refuse_bad(block)
        out = labels[block.start - chunk.start : block.stop - chunk.start]
        if gaussians.shared:
            centres.nearest(block.rows, out)
        else:
            out[:] = _visit(block.rows, gaussians, 1, every=False)[0][:, 0]
    return labels


def posterior_rows(chunk: Chunk, params: tuple[Gaussians, int, np.dtype[Any]]) -> np.ndarray:
    """Return the clusters with the largest posteriors of every row, (n, most) of a dtype.

    `params` are the mixture, `most` and `POSTERIOR` or `STORED_POSTERIOR`. Largest first; the posteriors
    of a row sum to one.
    """
    gaussians, most, kind = params
    found = np.empty((chunk.n_rows, most), kind)
    for block in chunk.cache_blocks(least=gaussians.means.dtype):
        refuse_bad(block)
        index, posteriors, _ = _visit(block.rows, gaussians, most, every=False)
        out = found[block.start - chunk.start : block.stop - chunk.start]
        out["components"], out["probabilities"] = index, posteriors
    return found


def density_rows(chunk: Chunk, gaussians: Gaussians) -> np.ndarray:
    """Return the log-density of every row under the whole mixture, float64 (n,)."""
    found = np.empty(chunk.n_rows)
    for block in chunk.cache_blocks(least=gaussians.means.dtype):
        refuse_bad(block)
        bounds = _visit(block.rows, gaussians, 1, every=True)[2]
        out = found[block.start - chunk.start : block.stop - chunk.start]
        out[:] = bounds + gaussians.log_constant
    return found


def _visit(
    rows: np.ndarray, gaussians: Gaussians, most: int, *, every: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    n = len(rows)
    index, bounds = np.empty((n, most), np.int32), np.empty(n)
    posteriors = np.empty((n, 0 if every else most))
    none = SumGrid(_NONE, _NONE)
    grids, moments = MomentGrids(none, none, none), Moments(_NONE, _NONE, _NO_SECONDS, _NONE)
    visit = all_kernel(gaussians.means.dtype, scaled=gaussians.scaled)
    visit(
        (read_only(rows), read_only(NO_WEIGHTS)),
        gaussians.costs,
        (gaussians.sharpness, 0.0),
        every,
        (grids, moments),
        index,
        posteriors,
        bounds,
    )
    return index, posteriors, bounds
