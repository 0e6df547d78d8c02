"""The M-step: the parameters that maximise the free energy at the posteriors of a pass."""

from __future__ import annotations

import numpy as np

from daskcluster.methods.mixture.chunkwise.covariances import diagonals, raised
from daskcluster.methods.mixture.chunkwise.statistics import Gaussians, MixtureStatistics
from daskcluster.methods.mixture.settings import MATRICES


def updated(
    statistics: MixtureStatistics, old: Gaussians, *, kind: str, floor: float | np.ndarray
) -> Gaussians:
    """Return the parameters that maximise the free energy at the posteriors of a pass (eq. 6).

    Parameters
    ----------
    statistics : MixtureStatistics
    old : Gaussians
        Parameters of the pass.
    kind : {"isotropic", "spherical", "diag", "tied", "full"}
        Covariance type of the result. Except with ``"isotropic"``, weights are learnt too.
    floor : float, or ndarray of shape (d,) with ``kind="diag"``, ``"tied"`` and ``"full"``
        Minimum variance, for all features or for each. Of a matrix, it is that of every direction; see
        `daskcluster.methods.mixture.chunkwise.covariances.raised`.

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
    if kind in MATRICES:
        covariances = _covariances(statistics, old, step, divisor)
        return Gaussians(means, raised(covariances, np.asarray(floor)), masses / masses.sum())
    # The sums of w (x - c)^2 by feature, moved from the old c to the new one.
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


def _covariances(
    statistics: MixtureStatistics, old: Gaussians, step: np.ndarray, divisor: np.ndarray
) -> np.ndarray:
    """Return the covariances about means that moved by `step` from the old ones, (k, d, d) or (1, d, d)."""
    masses, found = statistics.masses, statistics.seconds
    away = statistics.firsts - masses[:, None] * old.means.astype(np.float64)
    tied = len(found) < old.k or len(old.variances) < old.k
    for s in range(old.d):
        for t in range(s, old.d):
            change = masses * step[:, s] * step[:, t] - (
                step[:, s] * away[:, t] + step[:, t] * away[:, s]
            )
            found[:, s, t] += change.sum() if tied else change
            found[:, t, s] = found[:, s, t]
    if tied:
        total = float(masses.sum())
        return found / total if total > 0.0 else old.variances
    filled = (masses > 0.0)[:, None, None]
    return np.where(filled, found / divisor[:, :, None], old.variances)


def variances_by_feature(statistics: MixtureStatistics, old: Gaussians) -> np.ndarray:
    """Return the weighted variance of each feature over all rows, regardless of clusters, (d,).

    Parameters
    ----------
    statistics : MixtureStatistics
        With second moments by feature, or with matrices of them.
    old : Gaussians
        Parameters of the pass.
    """
    masses, firsts = statistics.masses[:, None], statistics.firsts
    before, total = old.means.astype(np.float64), float(statistics.masses.sum())
    if not total > 0.0:
        return np.zeros(old.d)
    # The sums of w (x - a)^2 about the mean a of all rows, from sums about the cluster means.
    offset = before - firsts.sum(axis=0) / total
    seconds, change = (
        statistics.seconds,
        offset * (2.0 * (firsts - masses * before) + masses * offset),
    )
    if seconds.ndim == 3:
        whole = diagonals(seconds).sum(axis=0) + change.sum(axis=0)
    else:
        whole = (seconds + change).sum(axis=0)
    return np.maximum(whole / total, 0.0)


def _column(old: Gaussians, ndim: int) -> np.ndarray:
    return old.variances[:, None] if ndim == 2 and old.variances.ndim == 1 else old.variances


def as_kind(gaussians: Gaussians, kind: str, weights: np.ndarray | None = None) -> Gaussians:
    """Return the same mixture with variances in the shape of `kind`, and with weights if `kind` has them.

    Parameters
    ----------
    gaussians : Gaussians
    kind : {"isotropic", "spherical", "diag", "tied", "full"}
    weights : ndarray of shape (k,), optional
        None: equal weights. Ignored if the mixture has weights.
    """
    k, d = gaussians.k, gaussians.d
    if kind == "isotropic" or gaussians.weights is not None:
        return gaussians
    if kind in MATRICES:
        shape: tuple[int, ...] = (1 if kind == "tied" else k, d, d)
        shared = gaussians.variances
        own = shared if gaussians.has_matrices else shared * np.eye(d)
    else:
        shape, own = ((k, d) if kind == "diag" else (k,)), gaussians.variances
    variances = np.broadcast_to(own, shape).copy()
    return Gaussians(
        gaussians.means, variances, np.full(k, 1.0 / k) if weights is None else weights
    )
