"""What a pass of EM brings back: moments, the free energy, and what clusters learnt of each other."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from daskcluster.chunkwise.exact_sum import Scale
from daskcluster.chunkwise.statistics import ExactScalar
from daskcluster.elementary import log
from daskcluster.kernels.arrays import aligned_zeros
from daskcluster.kernels.sum_grid import SumGrid, grid_shift
from daskcluster.methods.mixture.chunkwise.parameters import Gaussians
from daskcluster.methods.mixture.kernels.pairs import list_pairs, merge_pairs, new_table, with_room
from daskcluster.methods.mixture.kernels.sums import MomentGrids, Moments
from daskcluster.methods.mixture.kernels.truncated import Told

_FIRST_ROOM = 1 << 10
_SLACK = 1.05  # squared distances that are had back from costs are a little off


@dataclass(frozen=True)
class MixtureGrids:
    """The grids of all sums of a pass."""

    moments: MomentGrids
    bounds: SumGrid
    keys: float

    @classmethod
    def of(cls, scale: Scale, gaussians: Gaussians, *, rooted: bool) -> MixtureGrids:
        """Return grids that hold whatever rows within `scale` may add."""
        n, weight = scale.n_rows, scale.max_weight * scale.n_rows
        means, steepest = gaussians.means, gaussians.steepest
        most = float(np.abs(gaussians.costs.add).max())
        by_feature = _SLACK * scale.squares_by_feature(means)
        cost = float((by_feature * steepest).sum()) + weight * most
        # Of log-sums; or of costs, where a pass learns nothing: its variance is one.
        bound = cost * 2.0 * gaussians.sharpness + weight * (float(log(gaussians.k + 1.0)) + 1.0)
        seconds = SumGrid.of_total(by_feature if gaussians.by_feature else np.empty(0), n)
        totals = scale.weights, SumGrid.of_total(_SLACK * scale.squares(means), n)
        moments = MomentGrids(
            scale.sums, seconds, SumGrid(*map(np.array, zip(*totals, strict=True)))
        )
        plain = _SLACK * scale.squares_by_feature(means, weighted=False)
        keys = float((plain * steepest).sum()) + n * most
        return cls(
            moments,
            SumGrid.of_total(bound, n),
            grid_shift(math.sqrt(n * keys) if rooted else keys, 1),
        )


@dataclass
class PairSums:
    """Sums of keys over pairs of clusters (c, other), sparse; see `truncated_pairs`.

    Attributes
    ----------
    table : ndarray, used : ndarray of shape (1,)
        What the kernel adds to.
    others : list of (table, used)
        Of other threads. They are merged where they travel; who reads them here adds them up on the way.
    """

    table: np.ndarray = field(default_factory=lambda: new_table(_FIRST_ROOM))
    used: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))
    others: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)

    @classmethod
    def with_room(cls, n_pairs: int) -> PairSums:
        """Return none, with room for so many."""
        used = np.zeros(1, np.int64)
        return cls(with_room(new_table(_FIRST_ROOM), used, n_pairs), used)

    @property
    def most_used(self) -> int:
        """Pairs of the fullest table."""
        return max(int(used[0]) for _, used in self._tables)

    @property
    def _tables(self) -> list[tuple[np.ndarray, np.ndarray]]:
        return [(self.table, self.used), *self.others]

    def combine(self, other: PairSums) -> PairSums:
        self.others += other._tables
        return self

    def listed(self) -> np.ndarray:
        """Return keys, sums and counts, (n, 3) int64; a pair may be there once for each table."""
        tables = self._tables
        ends = np.cumsum([0, *(int(used[0]) for _, used in tables)])
        pairs = np.empty((ends[-1] + 1, 3), np.int64)
        for (table, _), start in zip(tables, ends[:-1], strict=True):
            list_pairs(table, start, pairs)
        return pairs[:-1]

    def __getstate__(self) -> dict[str, np.ndarray]:
        table, used = self.table, self.used
        if self.others:
            table, used = new_table(_FIRST_ROOM), np.zeros(1, np.int64)
            for more, n_more in self._tables:
                table = with_room(table, used, int(n_more[0]))
                merge_pairs(table, used, more)
        return {"pairs": table[table[:, 0] >= 0]}  # free slots do not travel

    def __setstate__(self, state: dict[str, np.ndarray]) -> None:
        used, pairs = np.zeros(1, np.int64), state["pairs"]
        self.table, self.used, self.others = with_room(new_table(1), used, len(pairs)), used, []
        merge_pairs(self.table, self.used, pairs)


@dataclass
class MixtureStatistics:
    """Sums of one pass, exact on grids.

    Attributes
    ----------
    moments : Moments
        Empty where the pass learns no parameters.
    bound : ExactScalar
        Weighted sum of the rows' log-sums, or of their least costs.
    told_sums : ndarray of shape (k, width), told_counts : ndarray of shape (k,)
        Of keys, over rows that stayed with their cluster; empty where nothing is told.
    pairs : PairSums
        Of keys, over rows that came to a cluster.
    key_shift : float
        M of the grid of keys.
    n_distances, n_moved, n_saved : int
        Distances; rows with another nearest cluster than before; rows whose sets were saved.
    """

    moments: Moments
    bound: ExactScalar
    told_sums: np.ndarray
    told_counts: np.ndarray
    pairs: PairSums
    key_shift: float
    n_distances: int = 0
    n_moved: int = 0
    n_saved: int = 0

    @classmethod
    def zero(
        cls,
        gaussians: Gaussians,
        *,
        two_grids: bool,
        learns: bool,
        tells: bool,
        width: int,
        room: int = 0,
        key_shift: float = 0.0,
    ) -> MixtureStatistics:
        k, d = (gaussians.k if learns else 0), gaussians.d
        moments = Moments(
            aligned_zeros(k * d),
            aligned_zeros(k * d if two_grids else 0),
            np.zeros((2, k * d if gaussians.by_feature else 0)),
            aligned_zeros(4 * k),
        )
        told = gaussians.k if tells else 0
        return cls(
            moments,
            ExactScalar(),
            np.zeros((told, width)),
            np.zeros(told, np.int64),
            PairSums.with_room(room if tells else 0),
            key_shift,
        )

    def told(self, *, rooted: bool, kept: bool) -> Told:
        """Return where the kernel adds keys."""
        how = np.array([rooted]), np.array([kept])
        return Told(self.told_sums, self.told_counts, np.array([self.key_shift]), *how)

    def combine(self, other: MixtureStatistics) -> MixtureStatistics:
        for mine, theirs in zip(self.moments, other.moments, strict=True):
            mine += theirs
        self.bound.combine(other.bound)
        self.told_sums += other.told_sums
        self.told_counts += other.told_counts
        self.pairs.combine(other.pairs)
        self.n_distances += other.n_distances
        self.n_moved += other.n_moved
        self.n_saved += other.n_saved
        return self

    @property
    def _totals(self) -> np.ndarray:
        parts = self.moments.totals.reshape(-1, 4)
        return parts[:, :2] + parts[:, 2:]

    @property
    def masses(self) -> np.ndarray:
        """Posterior weight of each cluster, (k,)."""
        return self._totals[:, 0]

    @property
    def firsts(self) -> np.ndarray:
        """Weighted sums of the rows, (k, d)."""
        total, low = self.moments.firsts, self.moments.low_firsts
        return (total + low if len(low) else total).reshape(len(self.masses), -1)

    @property
    def seconds(self) -> np.ndarray:
        """Weighted sums of squared differences from the means, (k,) or (k, d)."""
        by_feature = self.moments.seconds.sum(axis=0)
        return by_feature.reshape(len(self.masses), -1) if len(by_feature) else self._totals[:, 1]
