"""The M-step: new means, variances and weights from the sums of a pass.

Sums of squares come back about the *old* means, which rows are close to; moving them to the new means
is then a small correction, and no digits are lost however far the rows lie from the origin.
"""

from __future__ import annotations

import numpy as np

from daskcluster.methods.mixture.chunkwise.parameters import Gaussians
from daskcluster.methods.mixture.chunkwise.statistics import MixtureStatistics


def updated(
    statistics: MixtureStatistics, old: Gaussians, *, kind: str, floor: float | np.ndarray
) -> Gaussians:
    """Return the parameters that maximise the free energy at the posteriors of a pass (eq. 6).

    Parameters
    ----------
    statistics : MixtureStatistics
    old : Gaussians
        Those of the pass.
    kind : {"isotropic", "spherical", "diag"}
        Of the new variances. Weights are learnt with variances of the clusters' own.
    floor : float, or ndarray of shape (d,) with ``kind="diag"``
        Least variance, or that of each feature.

    Notes
    -----
    A cluster without posterior weight keeps its mean and variance.
    """
    masses, firsts = statistics.masses, statistics.firsts
    filled = masses > 0.0
    divisor = np.where(filled, masses, 1.0)[:, None]
    before = old.means.astype(np.float64)
    means = np.where(filled[:, None], firsts / divisor, before).astype(old.means.dtype)
    step = means.astype(np.float64) - before
    # sum w |x - c|^2 about the new c, by feature
    change = masses[:, None] * step * step - 2.0 * step * (firsts - masses[:, None] * before)
    seconds = statistics.seconds
    spread = seconds + (change if seconds.ndim == 2 else change.sum(axis=1))
    d, total = old.d, float(masses.sum())
    if kind == "isotropic":
        variance = float(spread.sum()) / (d * total) if total > 0.0 else float(old.variances)
        return Gaussians(means, np.asarray(max(variance, floor)))
    if kind == "spherical":
        own = spread / (d * divisor[:, 0])
    else:
        own = spread / divisor
        filled = filled[:, None]
    kept = np.broadcast_to(old.variances if old.by_feature else _column(old, own.ndim), own.shape)
    variances = np.maximum(np.where(filled, own, kept), floor)
    return Gaussians(means, variances, masses / total)


def variances_by_feature(statistics: MixtureStatistics, old: Gaussians) -> np.ndarray:
    """Return the weighted variance of all rows, whatever cluster they are in, for each feature (d,).

    Parameters
    ----------
    statistics : MixtureStatistics
        With second moments by feature.
    old : Gaussians
        Those of the pass.
    """
    masses, firsts = statistics.masses[:, None], statistics.firsts
    before, total = old.means.astype(np.float64), float(statistics.masses.sum())
    if not total > 0.0:
        return np.zeros(old.d)
    # sum q |x - a|^2 about the mean a of all rows, from sums about the means of the clusters
    way = before - firsts.sum(axis=0) / total
    spread = statistics.seconds + way * (2.0 * (firsts - masses * before) + masses * way)
    return np.maximum(spread.sum(axis=0) / total, 0.0)


def _column(old: Gaussians, ndim: int) -> np.ndarray:
    return old.variances[:, None] if ndim == 2 and old.variances.ndim == 1 else old.variances


def as_kind(gaussians: Gaussians, kind: str, weights: np.ndarray | None = None) -> Gaussians:
    """Return the same mixture with variances of shape `kind`, and with weights where it has them.

    Parameters
    ----------
    gaussians : Gaussians
    kind : {"isotropic", "spherical", "diag"}
    weights : ndarray of shape (k,), optional
        None: its own, or all the same.
    """
    k, d = gaussians.k, gaussians.d
    if kind == "isotropic" or gaussians.weights is not None:
        return gaussians
    shape = (k, d) if kind == "diag" else (k,)
    variances = np.broadcast_to(gaussians.variances, shape).copy()
    return Gaussians(
        gaussians.means, variances, np.full(k, 1.0 / k) if weights is None else weights
    )
