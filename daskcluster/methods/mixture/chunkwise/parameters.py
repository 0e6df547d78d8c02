"""Parameters of a Gaussian mixture, and what they make a cluster cost a row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from daskcluster.elementary import LN2, LOG_2PI, log
from daskcluster.kernels.arrays import read_only
from daskcluster.methods.mixture.kernels.aside import Costs

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
        """Those of the powers of two that costs leave out, for each feature or for all alike."""
        return np.frexp(self.variances.max(axis=0))[1]

    @cached_property
    def costs(self) -> Costs:
        """What the kernels need."""
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
