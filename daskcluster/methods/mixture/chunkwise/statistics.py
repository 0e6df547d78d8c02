"""Parameters of a Gaussian mixture, the costs that they define, and the statistics of a pass of EM.

A covariance matrix stands for each component, or one for all of them: (n, d, d) with n = 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from daskcluster.chunkwise.exact_sum import Scale
from daskcluster.chunkwise.statistics import ExactScalar
from daskcluster.elementary import LN2, LOG_2PI, log
from daskcluster.errors import InvalidParameterError
from daskcluster.kernels.jit import read_only
from daskcluster.kernels.sum_grid import SumGrid, grid_shift
from daskcluster.methods.mixture.kernels import candidates
from daskcluster.methods.mixture.kernels.candidates import (
    Costs,
    list_pairs,
    merge_pairs,
    new_table,
    with_room,
)
from daskcluster.methods.mixture.kernels.mahalanobis import (
    factorise,
    invert_factors,
    multiply_out,
    raise_eigenvalues,
    whiten_means,
)
from daskcluster.methods.mixture.kernels.sums import MomentGrids, Moments

RESOLUTION = 2.0**-40
"""Minimum variance in any direction, relative to a component's own variances: what float64 resolves."""


def packed_size(d: int) -> int:
    """Return the number of elements of a packed triangle."""
    return d * (d + 1) // 2


def diagonals(matrices: np.ndarray) -> np.ndarray:
    """Return the diagonals of matrices (n, d, d), shape (n, d)."""
    return np.diagonal(matrices, axis1=-2, axis2=-1)


def unpacked(packed: np.ndarray, d: int) -> np.ndarray:
    """Return symmetric matrices (n, d, d) from packed triangles (n, m).

    Examples
    --------
    >>> unpacked(np.array([[1.0, 2.0, 3.0]]), 2).tolist()
    [[[1.0, 2.0], [2.0, 3.0]]]
    """
    found = np.empty((len(packed), d, d))
    first, second = np.triu_indices(d)
    found[:, first, second] = packed
    found[:, second, first] = packed
    return found


def is_positive_definite(matrices: np.ndarray) -> bool:
    """Return whether all matrices have a Cholesky factor in float64."""
    wide = read_only(np.ascontiguousarray(matrices, np.float64))
    return bool(factorise(wide, 0.0, np.empty(wide.shape)) == len(wide))


def cholesky(covariances: np.ndarray) -> np.ndarray:
    """Return the Cholesky factors of covariances, (n, d, d)."""
    wide = read_only(np.ascontiguousarray(covariances, np.float64))
    lower = np.empty(wide.shape)
    failed = factorise(wide, 0.0, lower)
    if failed < len(wide):
        raise InvalidParameterError(
            f"the covariance matrix of component {failed} is not positive definite in float64: its "
            f"variances are from {diagonals(wide)[failed].min():.3g} to "
            f"{diagonals(wide)[failed].max():.3g}; raise reg_covar, or use covariance_type='diag'."
        )
    return lower


def whitening(lower: np.ndarray) -> np.ndarray:
    """Return the packed inverses of Cholesky factors, (n, m)."""
    packed = np.empty((len(lower), packed_size(lower.shape[1])))
    invert_factors(read_only(lower), packed)
    return packed


def whitened_means(means: np.ndarray, packed: np.ndarray) -> np.ndarray:
    """Return an origin amid the means and, from it, the whitened means: (k + 1, d), float64.

    Parameters
    ----------
    means : ndarray of shape (k, d)
    packed : ndarray of shape (1, m)
        The whitening matrix that all clusters share.
    """
    wide = means.astype(np.float64)
    found = np.empty((len(wide) + 1, wide.shape[1]))
    found[0] = 0.5 * wide.min(axis=0) + 0.5 * wide.max(axis=0)
    whiten_means(read_only(wide), found[0].copy(), read_only(packed[0]), found[1:])
    return found


def precisions(packed: np.ndarray, d: int) -> np.ndarray:
    """Return the inverses of covariances, (n, d, d), from their packed whitening matrices."""
    found = np.empty((len(packed), d, d))
    multiply_out(read_only(packed), d, found)
    return found


def raised(covariances: np.ndarray, floors: np.ndarray) -> np.ndarray:
    """Return covariances whose variance in every direction is at least that of ``diag(floors)``.

    Parameters
    ----------
    covariances : ndarray of shape (n, d, d)
    floors : ndarray of shape (d,)
        Minimum variance of each feature. At least `RESOLUTION` of a matrix's own variances counts.

    Notes
    -----
    With the features divided by the roots of their floors, the eigenvalues are raised to one. For a
    diagonal matrix, this is the maximum of the diagonal and the floors. A matrix that is above the floor
    is not changed, not even in its last bits.
    """
    least = np.maximum(floors, RESOLUTION * diagonals(covariances))
    root = np.sqrt(least)
    units = root[:, :, None] * root[:, None, :]
    scaled, found = covariances / units, covariances.copy()
    lower = np.empty((1, *scaled.shape[1:]))
    for j in range(len(scaled)):
        if factorise(read_only(scaled[j : j + 1]), 1.0, lower) == 0:
            raise_eigenvalues(scaled[j], 1.0)
            found[j] = scaled[j] * units[j]
    return found


def steepest(packed: np.ndarray, d: int) -> np.ndarray:
    """Return bounds (d,) with ``(x - c)' P (x - c) <= sum of bound * (x - c)^2``, for all precisions P.

    By ``2 |a b| <= r a^2 + b^2 / r`` for each element of P; r makes the bounds follow the features' units.
    """
    found = precisions(packed, d)
    most = diagonals(found)
    ratio = np.sqrt(most[:, :, None] / most[:, None, :])
    bounds: np.ndarray = (np.abs(found) * ratio).sum(axis=2).max(axis=0)
    return bounds


_LEAST_WEIGHT = 1e-30


@dataclass(frozen=True)
class Gaussians:
    """Means, variances and mixing weights.

    Attributes
    ----------
    means : ndarray of shape (k, d)
        In the compute dtype of the rows.
    variances : ndarray of shape (), (k,), (k, d), (k, d, d) or (1, d, d), float64
        Shared by all clusters, one per cluster, or one per cluster and feature; or a covariance matrix per
        cluster, or one that all of them share.
    weights : ndarray of shape (k,), float64, or None
        None: equal weights, which costs leave out.

    Notes
    -----
    With a shared variance and equal weights, the cost of a cluster for a row is the squared distance.
    Otherwise it is ``-2 log`` of the joint density without terms common to all clusters. Posteriors are
    proportional to ``exp(-sharpness * cost)``; the log-density of a row is its log-sum plus `log_constant`.
    The common term of each feature is the logarithm of a power of two near its variances, so that scaling
    the rows and the mixture by a power of two leaves the costs bit-identical.
    """

    means: np.ndarray
    variances: np.ndarray
    weights: np.ndarray | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Factors of matrices are larger than the matrices, and quickly computed again.
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def k(self) -> int:
        return int(self.means.shape[0])

    @property
    def d(self) -> int:
        return int(self.means.shape[1])

    @property
    def shared(self) -> bool:
        """Whether all clusters share one variance, so that costs are squared distances."""
        return self.variances.ndim == 0

    @property
    def by_feature(self) -> bool:
        return self.variances.ndim == 2

    @property
    def has_matrices(self) -> bool:
        return self.variances.ndim == 3

    @property
    def scaled(self) -> int:
        """The kind of costs, for the kernels; see `Costs`."""
        if self.has_matrices:
            shares = len(self.variances) == 1
            return candidates.WHITENED_ONCE if shares else candidates.WHITENED
        return candidates.BY_FEATURE if self.by_feature else 0

    @property
    def feature_variances(self) -> np.ndarray:
        """The variances; of matrices, those of the features, (n, d)."""
        return diagonals(self.variances) if self.has_matrices else self.variances

    @cached_property
    def factors(self) -> np.ndarray:
        """The Cholesky factors of the covariance matrices, (n, d, d)."""
        return cholesky(self.variances)

    @cached_property
    def whitening(self) -> np.ndarray:
        """The packed inverses of the Cholesky factors, (n, m)."""
        return whitening(self.factors)

    @property
    def seconds_size(self) -> int:
        """Number of sums of squares or products by feature."""
        if self.has_matrices:
            return len(self.variances) * packed_size(self.d)
        return self.k * self.d if self.by_feature else 0

    @property
    def sharpness(self) -> float:
        return 0.5 / float(self.variances) if self.shared else 0.5

    @property
    def log_constant(self) -> float:
        if self.shared:
            logs = LOG_2PI + float(log(self.variances))
            return -0.5 * self.d * logs - float(log(self.k))
        common = int(self._exponents.sum()) * (1 if self.scaled else self.d)
        return -0.5 * (self.d * LOG_2PI + common * LN2)

    @cached_property
    def _exponents(self) -> np.ndarray:
        """Exponents of the powers of two that costs leave out: (d,), or a scalar for all features."""
        return np.frexp(self.feature_variances.max(axis=0))[1]

    @cached_property
    def costs(self) -> Costs:
        """The coefficients of the costs, for the kernels."""
        kind, flat = self.means.dtype, read_only(self.means.reshape(-1))
        if self.shared:
            return Costs(flat, flat, np.ones(self.k, kind), np.zeros(self.k, kind))
        assert self.weights is not None
        add = -2.0 * log(np.maximum(self.weights, _LEAST_WEIGHT))
        if self.has_matrices:
            squares = diagonals(self.factors) ** 2
            add = add + log(np.ldexp(squares, -self._exponents)).sum(axis=1)
            inverse = read_only(self.whitening.reshape(-1))
            costs = Costs(flat, inverse, np.ones(self.k, kind), add.astype(kind))
            once = self.scaled == candidates.WHITENED_ONCE
            if once:
                white = whitened_means(self.means, self.whitening).reshape(-1)
                costs = costs._replace(white=read_only(white))
            return costs
        if self.by_feature:
            inverse = (1.0 / np.sqrt(self.variances)).astype(kind).reshape(-1)
            add += log(np.ldexp(self.variances, -self._exponents)).sum(axis=1)
            return Costs(flat, read_only(inverse), np.ones(self.k, kind), add.astype(kind))
        add += self.d * log(np.ldexp(self.variances, -self._exponents))
        return Costs(flat, flat, (1.0 / self.variances).astype(kind), add.astype(kind))

    @cached_property
    def steepest(self) -> np.ndarray:
        """The largest cost per unit of squared distance along each feature, (d,)."""
        if self.shared:
            return np.ones(self.d)
        if self.has_matrices:
            return steepest(self.whitening, self.d)
        return np.broadcast_to(1.0 / self.variances.min(axis=0), (self.d,))

    @property
    def least_posterior(self) -> float:
        """Posteriors below this count as zero: rounding errors of the costs are far larger."""
        return float(np.finfo(self.means.dtype).eps) / 8


_FIRST_ROOM = 1 << 10
_SLACK = 1.05  # squared distances recomputed from costs have rounding errors


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
        # A bound of log-sums, and of the least costs that a search returns: its variance is one.
        bound = cost * 2.0 * gaussians.sharpness + weight * (float(log(gaussians.k + 1.0)) + 1.0)
        of_seconds = by_feature if gaussians.by_feature else np.empty(0)
        if gaussians.has_matrices:  # of products, by Cauchy and Schwarz
            root, (first, second) = np.sqrt(by_feature), np.triu_indices(gaussians.d)
            of_seconds = root[first] * root[second]
        seconds = SumGrid.of_total(of_seconds, n)
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


class PairSums:
    """Sparse sums of keys over pairs of clusters (c, other).

    Parameters
    ----------
    room : int
        Number of pairs that it has room for.

    Attributes
    ----------
    table : ndarray
        The hash table that the kernel adds to.
    used : ndarray of shape (1,)
        The number of its keys.
    """

    def __init__(self, room: int = 0) -> None:
        self.used = np.zeros(1, np.int64)
        self.table = with_room(new_table(_FIRST_ROOM), self.used, room)

    @classmethod
    def of(cls, pairs: np.ndarray) -> PairSums:
        """Return the sums of `listed` pairs."""
        self = cls(len(pairs))
        merge_pairs(self.table, self.used, pairs)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return PairSums.of, (self.listed(),)  # without the free slots

    def combine(self, other: PairSums) -> PairSums:
        self.table = with_room(self.table, self.used, int(other.used[0]))
        merge_pairs(self.table, self.used, other.table)
        return self

    def listed(self) -> np.ndarray:
        """Return keys, sums and counts of all pairs, (n, 3) int64."""
        pairs = np.empty((int(self.used[0]) + 1, 3), np.int64)
        list_pairs(self.table, pairs)
        return pairs[:-1]


@dataclass
class MixtureStatistics:
    """Sums of one pass, exact on grids.

    Attributes
    ----------
    moments : Moments
        Empty where the pass learns no parameters.
    bound : ExactScalar
        Weighted sum of the rows' log-sums or, in a search, of their least costs.
    neighbour_sums : ndarray of shape (k, width), neighbour_counts : ndarray of shape (k,)
        Sums of keys over rows that stayed with their cluster, and the numbers of these rows. Empty where
        neighbours are not updated.
    pairs : PairSums
        Sums of keys over rows that moved to another cluster.
    key_shift : float
        M of the grid of keys.
    n_matrices : int
        Number of matrices of products of features in `moments`; 0: it has none.
    n_distances, n_moved, n_saved : int
        Distances computed; rows whose nearest cluster changed; rows whose sets were saved.
    """

    moments: Moments
    bound: ExactScalar
    neighbour_sums: np.ndarray
    neighbour_counts: np.ndarray
    pairs: PairSums
    key_shift: float
    n_matrices: int = 0
    n_distances: int = 0
    n_moved: int = 0
    n_saved: int = 0

    def combine(self, other: MixtureStatistics) -> MixtureStatistics:
        for total, more in zip(self.moments, other.moments, strict=True):
            total += more
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
        """Weighted sums of squared differences from the means, (k,) or (k, d).

        Grids of products of differences, (k, d, d), or (1, d, d) over all clusters.
        """
        by_feature = self.moments.seconds.sum(axis=0)
        if self.n_matrices:
            d = self.moments.firsts.size // len(self.masses)
            return unpacked(by_feature.reshape(self.n_matrices, -1), d)
        return by_feature.reshape(len(self.masses), -1) if len(by_feature) else self._totals[:, 1]

    @property
    def inertia(self) -> float:
        """Weighted sum of squared distances from the means."""
        seconds = self.seconds
        return float((diagonals(seconds) if seconds.ndim == 3 else seconds).sum())
