"""Parameters of a Gaussian mixture as costs of rows, and the statistics that a pass of EM returns."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from daskcluster.chunkwise.exact_sum import Scale
from daskcluster.chunkwise.statistics import ExactScalar
from daskcluster.elementary import LN2, LOG_2PI, log
from daskcluster.kernels.arrays import aligned_zeros, read_only
from daskcluster.kernels.sum_grid import SumGrid, grid_shift
from daskcluster.methods.mixture.kernels.candidates import Costs
from daskcluster.methods.mixture.kernels.neighbours import (
    list_pairs,
    merge_pairs,
    new_table,
    with_room,
)
from daskcluster.methods.mixture.kernels.sums import MomentGrids, Moments
from daskcluster.methods.mixture.kernels.truncated import NeighbourSums

_LEAST_WEIGHT = 1e-30


@dataclass(frozen=True)
class Gaussians:
    """Means, variances and mixing weights.

    Attributes
    ----------
    means : ndarray of shape (k, d)
        In the compute dtype of the rows.
    variances : ndarray of shape (), (k,) or (k, d), float64
        Shared by all clusters, each cluster's own, or each cluster's by feature.
    weights : ndarray of shape (k,), float64, or None
        None: all the same, and no part of the costs.

    Notes
    -----
    With a shared variance and equal weights a cluster costs its squared distance; else its cost is
    ``-2 log`` of the joint density, less what all clusters have in common. Posteriors are proportional to
    ``exp(-sharpness * cost)``, and the log-density of a row is `log_constant` more than its log-sum. What
    all have in common is a power of two near the variances of each feature: a mixture of rows times a
    power of two has the same costs, to the bit.
    """

    means: np.ndarray
    variances: np.ndarray
    weights: np.ndarray | None = None

    @property
    def k(self) -> int:
        return int(self.means.shape[0])

    @property
    def d(self) -> int:
        return int(self.means.shape[1])

    @property
    def shared(self) -> bool:
        """Costs are squared distances."""
        return self.variances.ndim == 0

    @property
    def by_feature(self) -> bool:
        return self.variances.ndim == 2

    @property
    def sharpness(self) -> float:
        return 0.5 / float(self.variances) if self.shared else 0.5

    @property
    def log_constant(self) -> float:
        if self.shared:
            logs = LOG_2PI + float(log(self.variances))
            return -0.5 * self.d * logs - float(log(self.k))
        common = int(self._exponents.sum()) * (1 if self.by_feature else self.d)
        return -0.5 * (self.d * LOG_2PI + common * LN2)

    @cached_property
    def _exponents(self) -> np.ndarray:
        """Powers of two that costs leave out, for each feature or for all alike."""
        return np.frexp(self.variances.max(axis=0))[1]

    @cached_property
    def costs(self) -> Costs:
        """Arguments of the kernels."""
        kind, flat = self.means.dtype, read_only(self.means.reshape(-1))
        if self.shared:
            return Costs(flat, flat, np.ones(self.k, kind), np.zeros(self.k, kind))
        assert self.weights is not None
        add = -2.0 * log(np.maximum(self.weights, _LEAST_WEIGHT))
        if self.by_feature:
            inverse = (1.0 / np.sqrt(self.variances)).astype(kind).reshape(-1)
            add += log(np.ldexp(self.variances, -self._exponents)).sum(axis=1)
            return Costs(flat, read_only(inverse), np.ones(self.k, kind), add.astype(kind))
        add += self.d * log(np.ldexp(self.variances, -self._exponents))
        return Costs(flat, flat, (1.0 / self.variances).astype(kind), add.astype(kind))

    @cached_property
    def steepest(self) -> np.ndarray:
        """The largest cost of a squared distance of one along each feature, (d,)."""
        if self.shared:
            return np.ones(self.d)
        return np.broadcast_to(1.0 / self.variances.min(axis=0), (self.d,))

    @property
    def least_posterior(self) -> float:
        """Posteriors below this are none: far less than the rounding of costs makes of them."""
        return float(np.finfo(self.means.dtype).eps) / 8


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
        """Return grids that hold all sums of rows within `scale`."""
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
    neighbour_sums : ndarray of shape (k, width), neighbour_counts : ndarray of shape (k,)
        Of keys, over rows that stayed with their cluster; empty where neighbours are not updated.
    pairs : PairSums
        Of keys, over rows that came to a cluster.
    key_shift : float
        M of the grid of keys.
    n_distances, n_moved, n_saved : int
        Distances; rows with another nearest cluster than before; rows whose sets were saved.
    """

    moments: Moments
    bound: ExactScalar
    neighbour_sums: np.ndarray
    neighbour_counts: np.ndarray
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
        neighbour_sums_of = gaussians.k if tells else 0
        return cls(
            moments,
            ExactScalar(),
            np.zeros((neighbour_sums_of, width)),
            np.zeros(neighbour_sums_of, np.int64),
            PairSums.with_room(room if tells else 0),
            key_shift,
        )

    def neighbour_sums_of(self, *, rooted: bool, kept: bool) -> NeighbourSums:
        """Return where the kernel adds keys."""
        how = np.array([rooted]), np.array([kept])
        return NeighbourSums(
            self.neighbour_sums, self.neighbour_counts, np.array([self.key_shift]), *how
        )

    def combine(self, other: MixtureStatistics) -> MixtureStatistics:
        for mine, theirs in zip(self.moments, other.moments, strict=True):
            mine += theirs
        self.bound.combine(other.bound)
        self.neighbour_sums += other.neighbour_sums
        self.neighbour_counts += other.neighbour_counts
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
