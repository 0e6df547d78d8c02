"""Chunkwise steps of seeding: D^2 potentials, oversampling rounds of k-means||, and draws in one pass.

A sample with replacement is drawn in one pass with one random number per row. Row i is drawn at rate
r_i = w_i (a + b |x_i - p|^2). Give every row a Poisson process of that rate. The first m arrivals of all
rows together are m independent draws in proportion to the rates, and except with negligible probability
they occur before a time T known in advance. A row is drawn if its first arrival -log(1 - u) / r is before
T, where u is the row's random number. Since -log(1 - u) >= u, no row with u >= r T is drawn. So a pass
checks only the first 16 bits of u, the rank of the row. This leaves about m rows (and one in 65,536 of
all), whatever the chunks and workers. The driver computes the other bits and all logarithms afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.chunkwise.exact_sum import Scale
from daskcluster.chunkwise.statistics import (
    Additive,
    ExactScalar,
    LeastRows,
    Reduction,
    StatefulReduction,
)
from daskcluster.kernels.accumulate import sum_on_grid
from daskcluster.kernels.sampling import cumulative_picks
from daskcluster.kernels.sum_grid import SumGrid, round_to_grid
from daskcluster.randomness import Key
from daskcluster.sparse_rows import Rows, dense_rows, join_rows, take_rows
from daskcluster.typing import Range

RANKS = 1 << 16
"""Number of ranks: u is in [rank, rank + 1) / RANKS."""
_RANKS_PER_WORD = 4


@dataclass(frozen=True)
class DrawParams:
    """The rates of the rows, and the time limit T.

    Attributes
    ----------
    point : ndarray of shape (d,)
        p, in the compute dtype.
    offset, slope : float
        a and b.
    horizon : float
        T.
    key : Key
        Stream of the rows' random numbers.
    scale : Scale
    """

    point: np.ndarray
    offset: float
    slope: float
    horizon: float
    key: Key
    scale: Scale


@dataclass
class Candidates(Additive):
    """Rows that may be drawn, and the exact sum of w |x - p|^2 over all rows.

    Attributes
    ----------
    spread : ExactScalar
    parts : list of (indices, ranks, sqdist, weights, rows)
        Unordered parts; `joined` sorts them by row.
    """

    spread: ExactScalar = field(default_factory=ExactScalar)
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Rows]] = field(
        default_factory=list
    )

    def joined(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Rows]:
        """Return indices (c,) ascending, ranks, sqdist, weights, and the rows (c, d) as stored."""
        indices, ranks, sqdist, weights = (
            np.concatenate([part[field] for part in self.parts]) for field in range(4)
        )
        order = np.argsort(indices, kind="stable")
        rows = join_rows([part[4] for part in self.parts])[order]
        return indices[order], ranks[order], sqdist[order], weights[order], rows


class _PreparedDraws:
    def __init__(self, params: DrawParams) -> None:
        point = np.ascontiguousarray(params.point)[None, :]
        self.params, self.point = params, PreparedCentres(point)
        self.grid = params.scale.distances(point)

    def zero(self) -> Candidates:
        return Candidates()

    def add(self, chunk: Chunk, into: Candidates) -> None:
        params = self.params
        limits = RANKS * params.horizon * params.offset, RANKS * params.horizon * params.slope
        ranks = row_ranks(params.key, chunk.start, chunk.stop)
        for block in chunk.blocks():
            first = block.start - chunk.start
            own = ranks[first : first + block.n_rows]
            found, sqdist, high, low = self.point.filter_candidates(
                block.rows, block.weights, own, limits, self.grid
            )
            into.spread.add(high, low)
            if len(found):
                weights = np.ones(len(found)) if block.weights is None else block.weights[found]
                # Keep rows as stored, neither converted nor scaled.
                rows = take_rows(chunk.rows, first + found)
                into.parts.append((block.start + found, own[found], sqdist, weights, rows))


def row_ranks(key: Key, start: int, stop: int) -> np.ndarray:
    """Return the ranks of rows `start` to `stop`, uint16; each word of the generator gives four.

    Examples
    --------
    >>> key = Key(seed=0, stage="example")
    >>> bool((row_ranks(key, 0, 50)[13:37] == row_ranks(key, 13, 37)).all())
    True
    """
    first, last = start // _RANKS_PER_WORD, -(-stop // _RANKS_PER_WORD)
    ranks = key.words(first, last).astype("<u8", copy=False).view("<u2")
    return ranks[start - first * _RANKS_PER_WORD :][: stop - start].astype(np.uint16, copy=False)


DRAWS = Reduction("draws", prepare=_PreparedDraws)
"""`DrawParams` -> `Candidates`."""


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
class Potentials(Additive):
    """Potential of every candidate by block, from which prefix sums over rows follow.

    Attributes
    ----------
    parts : list of (starts, masses)
        First rows (c,) and masses (c, t) of the blocks of a chunk, exact on one grid.
    """

    parts: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)

    def ordered(self) -> tuple[np.ndarray, np.ndarray]:
        """Return first rows (c,) in order, and masses (c, t)."""
        starts, masses = map(np.concatenate, zip(*self.parts, strict=True))
        order = np.argsort(starts, kind="stable")
        return starts[order], masses[order]


class _PreparedStep:
    def __init__(self, params: PotentialParams) -> None:
        self.params, self.centres = params, PreparedCentres(params.centres)
        self.candidates = PreparedCentres(params.candidates)

    def zero(self) -> Potentials:
        return Potentials()

    def fresh(self, n_rows: int) -> np.ndarray:
        return np.full(n_rows, np.inf)

    def rebuild(self, chunk: Chunk, mind2: np.ndarray) -> None:
        for block in chunk.cache_blocks():
            part = mind2[block.place_in(chunk)]
            for number in range(len(self.centres) - 1):
                self.centres.lower(block.rows, number, part)

    def add(self, chunk: Chunk, into: Potentials, mind2: np.ndarray) -> None:
        starts, masses = [], []
        grid = SumGrid(self.params.shift, self.params.shift)  # the low part is not used
        for block in chunk.cache_blocks():
            part = mind2[block.place_in(chunk)]
            high, low = np.zeros((2, len(self.candidates)))
            self.centres.lower(block.rows, -1, part)
            self.candidates.potentials(block.rows, part, block.weights, grid, high, low)
            starts.append(block.start)
            masses.append(high)
        into.parts.append((np.array(starts, np.int64), np.array(masses)))


POTENTIALS = StatefulReduction("k-means++", 8, prepare=_PreparedStep)
"""`PotentialParams` -> `Potentials`; the state is each row's squared distance to its nearest centre."""


@dataclass(frozen=True)
class Pick:
    """Finds the rows at which prefix sums of masses over blocks exceed targets.

    Called with a work item's chunk, and the next step's prepared parameters and state.

    Attributes
    ----------
    targets : mapping of (start, stop) to ndarray
        By the rows of a block of the work item, the sums from its first row on to exceed.
    """

    targets: Mapping[Range, np.ndarray]

    def __call__(
        self, chunk: Chunk, prepared: _PreparedStep, mind2: np.ndarray
    ) -> list[tuple[int, np.ndarray]]:
        found: list[tuple[int, np.ndarray]] = []
        for (start, stop), targets in self.targets.items():
            here = slice(start - chunk.start, stop - chunk.start)
            part, masses = chunk.slice(here.start, here.stop), mind2[here].copy()
            rows = part.computed()
            prepared.centres.lower(rows, -1, masses)
            indices = cumulative_picks(masses, part.weights, prepared.params.shift, targets)
            picked = dense_rows(take_rows(rows, indices))
            found += zip((start + indices).tolist(), picked, strict=True)
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
        Grid of the masses w * d^2.
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
class RoundStatistics(Additive):
    """Statistics of a round of k-means||.

    Attributes
    ----------
    cost : ExactScalar
        phi, the weighted sum of squared distances to the nearest candidate.
    weights : ndarray of shape (m,)
        Weight of the rows nearest to each candidate, on one grid.
    kept : LeastRows
        Keys are u / (w d^2). A row belongs to the sample of a round with oversampling l if its key is below
        l / phi. CSR rows stay CSR, since many are sent.
    """

    cost: ExactScalar
    weights: np.ndarray
    kept: LeastRows


class _PreparedRound:
    def __init__(self, params: RoundParams) -> None:
        candidates, k = dense_rows(params.candidates), params.n_clusters
        self.params, self.candidates = params, PreparedCentres(candidates)
        self.new = PreparedCentres(candidates[params.known :], k)
        self.earlier = [(a, PreparedCentres(candidates[a:b], k)) for a, b in params.rounds]

    def zero(self) -> RoundStatistics:
        candidates = self.params.candidates
        kept = LeastRows.zero(self.params.most, candidates)
        return RoundStatistics(ExactScalar(), np.zeros(len(candidates)), kept)

    def fresh(self, n_rows: int) -> np.ndarray:
        return np.zeros(n_rows, np.int32)

    def rebuild(self, chunk: Chunk, labels: np.ndarray) -> None:
        # Replay round by round: if several candidates are equally near up to rounding, a single search of
        # all of them may choose another one.
        for block in chunk.cache_blocks():
            part = labels[block.place_in(chunk)]
            for first, new in self.earlier:
                _join(block, self.candidates, new, first, part)

    def add(self, chunk: Chunk, into: RoundStatistics, labels: np.ndarray | None = None) -> None:
        params = self.params
        labels = self.fresh(chunk.n_rows) if labels is None else labels
        for block in chunk.cache_blocks():
            part = labels[block.place_in(chunk)]
            masses = _join(block, self.candidates, self.new, params.known, part)
            weights = block.weights
            if weights is not None:
                masses = masses * weights
            into.cost.add(*sum_on_grid(masses, params.grid))
            on_grid = None if weights is None else round_to_grid(weights, params.weight_shift)
            into.weights += np.bincount(part, weights=on_grid, minlength=len(params.candidates))
            if params.most:
                _sample(block, masses, params.key, into.kept)


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


def _sample(block: Chunk, masses: np.ndarray, key: Key, into: LeastRows) -> None:
    uniforms = key.uniforms(block.start, block.stop)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratios = np.where(masses > 0.0, uniforms / masses, np.inf)
    into.add(ratios, np.flatnonzero(ratios < into.limit), block.start, block.rows)


ROUND = StatefulReduction("k-means||", 4, prepare=_PreparedRound)
"""`RoundParams` -> `RoundStatistics`; the state is the index of each row's nearest candidate."""

FIRST_ROUND = Reduction("k-means||", prepare=_PreparedRound)
"""`ROUND` for the first candidate. Without state, its pass can also gather data statistics."""
