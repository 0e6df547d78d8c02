"""Chunkwise steps of seeding: D^2 potentials for k-means++, oversampling rounds for k-means||."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.chunkwise.statistics import ExactScalar, Reduction, StatefulReduction
from daskcluster.kernels.accumulate import sum_on_grid
from daskcluster.kernels.sampling import cumulative_pick
from daskcluster.kernels.sum_grid import SumGrid, round_to_grid
from daskcluster.randomness import Key
from daskcluster.sparse_rows import Rows, dense_rows, join_rows

# -- k-means++ ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PotentialParams:
    """One step of greedy k-means++.

    Attributes
    ----------
    centres : ndarray of shape (c, d)
        Centres chosen so far; the state of the previous step includes all but the last.
    candidates : ndarray of shape (t, d)
    shift : float
        Grid of the masses w * min d^2.
    """

    centres: np.ndarray
    candidates: np.ndarray
    shift: float


@dataclass
class Potentials:
    """Potential of every candidate by block, from which prefix sums over rows follow.

    Attributes
    ----------
    parts : dict
        First row of a chunk -> first rows (c,) and masses (c, t) of its blocks, exact on one grid.
    """

    parts: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def combine(self, other: Potentials) -> Potentials:
        self.parts.update(other.parts)
        return self

    def ordered(self) -> tuple[np.ndarray, np.ndarray]:
        """Return first rows (c,) in order, and masses (c, t)."""
        starts, masses = zip(*(self.parts[start] for start in sorted(self.parts)), strict=True)
        return np.concatenate(starts), np.concatenate(masses)


@dataclass(frozen=True)
class _PreparedStep:
    params: PotentialParams
    centres: PreparedCentres
    candidates: PreparedCentres


def _prepare_step(params: PotentialParams) -> _PreparedStep:
    return _PreparedStep(
        params, PreparedCentres(params.centres), PreparedCentres(params.candidates)
    )


def _zero_potentials(prepared: _PreparedStep) -> Potentials:
    return Potentials()


def _far(n_rows: int, prepared: _PreparedStep) -> np.ndarray:
    return np.full(n_rows, np.inf)


def _rebuild_nearest(chunk: Chunk, prepared: _PreparedStep, mind2: np.ndarray) -> None:
    for block in chunk.cache_blocks():
        part = mind2[block.start - chunk.start : block.stop - chunk.start]
        for number in range(len(prepared.centres) - 1):
            prepared.centres.lower(block.rows, number, part)


def _potential_chunk(
    chunk: Chunk, prepared: _PreparedStep, into: Potentials, mind2: np.ndarray
) -> None:
    starts, masses = [], []
    grid = SumGrid(prepared.params.shift, prepared.params.shift)  # the low part is not used
    for block in chunk.cache_blocks():
        part = mind2[block.start - chunk.start : block.stop - chunk.start]
        high, low = np.zeros((2, len(prepared.candidates)))
        prepared.centres.lower(block.rows, -1, part)
        prepared.candidates.potentials(block.rows, part, block.weights, grid, high, low)
        starts.append(block.start)
        masses.append(high)
    into.parts[chunk.start] = np.array(starts, np.int64), np.array(masses)


POTENTIALS = StatefulReduction(
    name="k-means++",
    row_bytes=8,
    prepare=_prepare_step,
    zero=_zero_potentials,
    fresh=_far,
    rebuild=_rebuild_nearest,
    chunk=_potential_chunk,
    combine=Potentials.combine,
)
"""`PotentialParams` -> `Potentials`; the state is each row's squared distance to its nearest centre."""


@dataclass(frozen=True)
class Pick:
    """Finds the rows at which prefix sums of masses over blocks exceed targets.

    Called with a work item's chunk, and the next step's prepared parameters and state.

    Attributes
    ----------
    blocks : tuple of (start, stop, target)
        Rows of a block of the work item, and the sum from its first row on to exceed.
    """

    blocks: tuple[tuple[int, int, float], ...]

    def __call__(
        self, chunk: Chunk, prepared: _PreparedStep, mind2: np.ndarray
    ) -> list[tuple[int, np.ndarray]]:
        found = []
        for start, stop, target in self.blocks:
            part = chunk.slice(start - chunk.start, stop - chunk.start)
            masses = mind2[start - chunk.start : stop - chunk.start].copy()
            rows = part.computed()
            prepared.centres.lower(rows, -1, masses)
            index = cumulative_pick(masses, part.weights, prepared.params.shift, target)
            found.append((start + index, dense_rows(rows[index : index + 1])[0].copy()))
        return found


# -- k-means|| ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RoundParams:
    """One round of k-means||.

    Attributes
    ----------
    candidates : Rows, shape (m, d)
        All candidates so far; CSR if the rows are CSR, since they are sent to workers.
    known : int
        The state of the previous round includes the first `known` of them.
    key : Key
        Stream of this round's random numbers.
    most : int
        Most sampled rows to keep; 0 samples nothing.
    grid : SumGrid
        Of the masses w * d^2.
    weight_shift : float
        M of the grid of the row weights.
    n_clusters : int
        Final number of clusters, whose tile is also used to search new candidates.
    rounds : tuple of (first, last)
        Ranges of the candidates that were new in each earlier round.
    """

    candidates: Rows
    known: int
    key: Key
    most: int
    grid: SumGrid
    weight_shift: float
    n_clusters: int = 1
    rounds: tuple[tuple[int, int], ...] = ()


@dataclass
class RoundStatistics:
    """Statistics of a round of k-means||.

    Attributes
    ----------
    cost : ExactScalar
        phi, the weighted sum of squared distances to the nearest candidate.
    weights : ndarray of shape (m,)
        Weight of the rows nearest to each candidate, on one grid.
    ratios : ndarray
        u / (w d^2) of the kept rows, ascending. A row belongs to the sample of a round with oversampling l
        if its ratio is below l / phi.
    indices : ndarray
        Indices of the kept rows.
    rows : Rows
        The kept rows; CSR rows stay CSR, since many are sent.
    """

    most: int
    cost: ExactScalar
    weights: np.ndarray
    ratios: np.ndarray
    indices: np.ndarray
    rows: Rows

    def combine(self, other: RoundStatistics) -> RoundStatistics:
        self.cost.combine(other.cost)
        self.weights += other.weights
        self.keep(other.ratios, other.indices, other.rows)
        return self

    def keep(self, ratios: np.ndarray, indices: np.ndarray, rows: Rows) -> None:
        """Merge rows, keeping the `most` smallest ratios (ties by the lowest row)."""
        if len(ratios) == 0:
            return
        ratios = np.concatenate([self.ratios, ratios])
        indices = np.concatenate([self.indices, indices])
        kept = np.lexsort((indices, ratios))[: self.most]
        self.ratios, self.indices = ratios[kept], indices[kept]
        self.rows = join_rows([self.rows, rows])[kept]

    @property
    def worst(self) -> float:
        """Ratios from this value on need not be kept."""
        return float(self.ratios[-1]) if len(self.ratios) >= self.most > 0 else np.inf


@dataclass(frozen=True)
class _PreparedRound:
    params: RoundParams
    candidates: PreparedCentres
    new: PreparedCentres
    earlier: tuple[tuple[int, PreparedCentres], ...]


def _prepare_round(params: RoundParams) -> _PreparedRound:
    candidates, k = dense_rows(params.candidates), params.n_clusters
    return _PreparedRound(
        params,
        PreparedCentres(candidates),
        PreparedCentres(candidates[params.known :], k),
        tuple((first, PreparedCentres(candidates[first:last], k)) for first, last in params.rounds),
    )


def _zero_round(prepared: _PreparedRound) -> RoundStatistics:
    params = prepared.params
    m, d = params.candidates.shape
    return RoundStatistics(
        params.most,
        ExactScalar(),
        np.zeros(m),
        np.empty(0),
        np.empty(0, np.int64),
        np.empty((0, d), params.candidates.dtype),
    )


def _no_candidate(n_rows: int, prepared: _PreparedRound) -> np.ndarray:
    return np.zeros(n_rows, np.int32)


def _rebuild_candidates(chunk: Chunk, prepared: _PreparedRound, labels: np.ndarray) -> None:
    # Replay round by round: if several candidates are equally near up to rounding, a single search of all
    # of them may choose another one.
    for block in chunk.cache_blocks():
        part = labels[block.start - chunk.start : block.stop - chunk.start]
        for first, new in prepared.earlier:
            _join(block, prepared.candidates, new, first, part)


def _round_chunk(
    chunk: Chunk, prepared: _PreparedRound, into: RoundStatistics, labels: np.ndarray
) -> None:
    params = prepared.params
    for block in chunk.cache_blocks():
        part = labels[block.start - chunk.start : block.stop - chunk.start]
        masses = _join(block, prepared.candidates, prepared.new, params.known, part)
        weights = block.weights
        if weights is not None:
            masses = masses * weights
        into.cost.add(*sum_on_grid(masses, params.grid))
        on_grid = None if weights is None else round_to_grid(weights, params.weight_shift)
        into.weights += np.bincount(part, weights=on_grid, minlength=len(params.candidates))
        if params.most:
            _sample(block, masses, params, into)


def _join(
    block: Chunk,
    candidates: PreparedCentres,
    new: PreparedCentres,
    first: int,
    labels: np.ndarray,
) -> np.ndarray:
    """Relabel rows that are nearer to new candidates (from `first` on); return squared distances."""
    found = np.empty(block.n_rows, np.int32)
    new.nearest(block.rows, found)
    found += np.int32(first)
    distances = np.empty(block.n_rows)
    candidates.sqdist_to_assigned(block.rows, found, distances)
    if first == 0:
        labels[:] = found
        return distances
    old = np.empty(block.n_rows)
    candidates.sqdist_to_assigned(block.rows, labels, old)
    nearer = distances < old
    np.copyto(labels, found, where=nearer)
    return np.where(nearer, distances, old)


def _sample(block: Chunk, masses: np.ndarray, params: RoundParams, into: RoundStatistics) -> None:
    uniforms = params.key.uniforms(block.start, block.stop)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratios = np.where(masses > 0.0, uniforms / masses, np.inf)
    kept = np.flatnonzero(ratios < into.worst)
    if len(kept) > params.most:
        kept = kept[np.argsort(ratios[kept], kind="stable")[: params.most]]
    into.keep(ratios[kept], block.start + kept, block.rows[kept])


ROUND = StatefulReduction(
    name="k-means||",
    row_bytes=4,
    prepare=_prepare_round,
    zero=_zero_round,
    fresh=_no_candidate,
    rebuild=_rebuild_candidates,
    chunk=_round_chunk,
    combine=RoundStatistics.combine,
)
"""`RoundParams` -> `RoundStatistics`; the state is the index of each row's nearest candidate."""


def _first_round_chunk(chunk: Chunk, prepared: _PreparedRound, into: RoundStatistics) -> None:
    _round_chunk(chunk, prepared, into, np.zeros(chunk.n_rows, np.int32))


FIRST_ROUND = Reduction(
    name="k-means||",
    prepare=_prepare_round,
    zero=_zero_round,
    chunk=_first_round_chunk,
    combine=RoundStatistics.combine,
)
"""`ROUND` for the first candidate. Without state, its pass can also gather data statistics."""
