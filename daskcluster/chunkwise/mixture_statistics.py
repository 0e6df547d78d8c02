"""What a pass of EM brings back: moments, the free energy, and what clusters learnt of each other."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from daskcluster.chunkwise.exact_sum import Scale, grid_shift, residual_shift
from daskcluster.chunkwise.mixture_parameters import Gaussians
from daskcluster.chunkwise.statistics import ExactScalar
from daskcluster.kernels.arrays import aligned_zeros
from daskcluster.kernels.truncated import Told
from daskcluster.kernels.truncated_pairs import merge_pairs, with_room
from daskcluster.kernels.truncated_sums import MomentGrids, Moments

_FIRST_ROOM = 1 << 10
_SLACK = 1.05  # squared distances that are had back from costs are a little off


@dataclass(frozen=True)
class MixtureGrids:
    """The grids of all sums of a pass."""

    moments: MomentGrids
    bounds: tuple[float, float]
    keys: float

    @classmethod
    def of(cls, scale: Scale, gaussians: Gaussians, *, rooted: bool) -> MixtureGrids:
        """Return grids that hold whatever rows within `scale` may add."""
        n, weight = scale.n_rows, scale.max_weight
        reach = scale.max_abs + np.abs(gaussians.means.astype(np.float64)).max(axis=0)
        by_feature = reach * reach * _SLACK
        farthest = float(by_feature.sum())
        seconds = by_feature if gaussians.by_feature else np.array([farthest])
        cost = farthest * gaussians.steepest + float(np.abs(gaussians.costs.add).max())
        bound = cost * max(1.0, gaussians.sharpness) + np.log(gaussians.k + 1.0) + 1.0
        moments = MomentGrids(
            _both(scale.sums, n), _both(grid_shift(seconds * weight, n), n), _both(scale.weights, n)
        )
        shift = grid_shift(bound * weight, n)
        return cls(
            moments,
            (float(shift), float(residual_shift(shift, n))),
            float(grid_shift(np.sqrt(cost) if rooted else cost, n)),
        )


def _both(shift: np.ndarray, n_rows: int) -> np.ndarray:
    return np.concatenate([np.atleast_1d(shift), np.atleast_1d(residual_shift(shift, n_rows))])


@dataclass
class PairSums:
    """Sums of keys over pairs of clusters (c, other), sparse; see `truncated_pairs`."""

    keys: np.ndarray = field(default_factory=lambda: np.full(_FIRST_ROOM, -1, np.int64))
    sums: np.ndarray = field(default_factory=lambda: np.zeros(_FIRST_ROOM))
    counts: np.ndarray = field(default_factory=lambda: np.zeros(_FIRST_ROOM, np.int64))
    used: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))

    @property
    def table(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.keys, self.sums, self.counts

    def combine(self, other: PairSums) -> PairSums:
        self.keys, self.sums, self.counts = with_room(*self.table, self.used, int(other.used[0]))
        merge_pairs(*self.table, self.used, *other.table)
        return self

    def __getstate__(self) -> dict[str, np.ndarray]:
        there = self.keys >= 0  # free slots do not travel
        return {name: getattr(self, name)[there] for name in ("keys", "sums", "counts")}

    def __setstate__(self, state: dict[str, np.ndarray]) -> None:
        self.__init__()  # type: ignore[misc]
        count = len(state["keys"])
        self.keys, self.sums, self.counts = with_room(*self.table, self.used, count)
        merge_pairs(*self.table, self.used, state["keys"], state["sums"], state["counts"])


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
    n_distances, n_moved : int
    """

    moments: Moments
    bound: ExactScalar
    told_sums: np.ndarray
    told_counts: np.ndarray
    pairs: PairSums
    n_distances: int = 0
    n_moved: int = 0

    @classmethod
    def zero(
        cls, gaussians: Gaussians, *, two_grids: bool, learns: bool, tells: bool, width: int
    ) -> MixtureStatistics:
        k, d = (gaussians.k if learns else 0), gaussians.d
        n_seconds = k * d if gaussians.by_feature else k
        moments = Moments(
            aligned_zeros(k * d),
            aligned_zeros(k * d if two_grids else 0),
            aligned_zeros(n_seconds),
            aligned_zeros(n_seconds),
            np.zeros(k),
            np.zeros(k),
        )
        told = gaussians.k if tells else 0
        return cls(
            moments,
            ExactScalar(),
            np.zeros((told, width)),
            np.zeros(told, np.int64),
            PairSums(),
        )

    def told(self, shift: float, *, rooted: bool) -> Told:
        """Return where the kernel adds keys."""
        return Told(self.told_sums, self.told_counts, np.array([shift]), np.array([rooted]))

    def combine(self, other: MixtureStatistics) -> MixtureStatistics:
        for mine, theirs in zip(self.moments, other.moments, strict=True):
            mine += theirs
        self.bound.combine(other.bound)
        self.told_sums += other.told_sums
        self.told_counts += other.told_counts
        self.pairs.combine(other.pairs)
        self.n_distances += other.n_distances
        self.n_moved += other.n_moved
        return self

    @property
    def masses(self) -> np.ndarray:
        """Posterior weight of each cluster, (k,)."""
        return self.moments.masses + self.moments.low_masses

    @property
    def firsts(self) -> np.ndarray:
        """Weighted sums of the rows, (k, d)."""
        total, low = self.moments.firsts, self.moments.low_firsts
        return (total + low if len(low) else total).reshape(len(self.moments.masses), -1)

    @property
    def seconds(self) -> np.ndarray:
        """Weighted sums of squared differences from the means, (k,) or (k, d)."""
        total = self.moments.seconds + self.moments.low_seconds
        k = len(self.moments.masses)
        return total if len(total) == k else total.reshape(k, -1)
