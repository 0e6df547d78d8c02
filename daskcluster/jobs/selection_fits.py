"""Single-threaded fits of several numbers of clusters on one coreset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.elementary import log
from daskcluster.engine.local import LocalEngine
from daskcluster.randomness import Key
from daskcluster.typing import Dataset

Try = tuple[int, int]
"""A number of clusters, and the index of a start."""


@dataclass(frozen=True)
class FitParameters:
    """Everything that the fits depend on besides the rows.

    Attributes
    ----------
    mixture : bool
        Mixtures instead of k-means.
    seed : int
        Seed from which the seed of each fit is derived.
    settings : mapping
        Further arguments of the estimator.
    """

    mixture: bool
    seed: int
    settings: Mapping[str, Any]

    def seed_of(self, attempt: Try) -> int:
        """Return the seed of one fit, which does not depend on the other fits."""
        k, number = attempt
        return Key(self.seed, f"k={k}", number).derived_seed() % 2**31


@dataclass(frozen=True)
class KFit:
    """The result of one fit on the coreset.

    Attributes
    ----------
    k, number : int
    centres : ndarray of shape (k, d)
        In the units of the data.
    on_scale : ndarray of shape (k, d)
        The centres on the scale of the fit; the same array where features are not scaled.
    cost : float
        The value that the best start minimises: inertia, or minus the mean log-likelihood.
    silhouette, log_likelihood, bic, true_log_likelihood : float or None
    """

    k: int
    number: int
    centres: np.ndarray
    on_scale: np.ndarray
    cost: float
    silhouette: float | None = None
    log_likelihood: float | None = None
    bic: float | None = None
    model: Any = None


def fit_shares(few: Dataset, parameters: FitParameters, attempts: Sequence[Try]) -> list[KFit]:
    """Run fits one after the other."""
    fit = _fit_mixture if parameters.mixture else _fit_kmeans
    return [fit(few, parameters, attempt) for attempt in attempts]


def _fit_kmeans(few: Dataset, parameters: FitParameters, attempt: Try) -> KFit:
    from daskcluster.methods.kmeans.estimator import KMeans

    k, number = attempt
    model = KMeans(
        k,
        n_init=1,
        random_state=parameters.seed_of(attempt),
        engine=LocalEngine(n_threads=1),
        **parameters.settings,
    ).fit(few)
    silhouette = None
    if k > 1:
        _, distances = model.predict(few, n_nearest=2, return_distance=True)
        silhouette = simplified_silhouette(distances, few.weights)
    centres, on_scale = model.cluster_centers_, model.to_model().centres
    return KFit(k, number, centres, on_scale, float(model.inertia_), silhouette)


def _fit_mixture(few: Dataset, parameters: FitParameters, attempt: Try) -> KFit:
    from daskcluster.methods.mixture.estimator import VariationalGaussianMixture

    k, number = attempt
    model = VariationalGaussianMixture(
        k,
        random_state=parameters.seed_of(attempt),
        engine=LocalEngine(n_threads=1),
        **parameters.settings,
    ).fit(few)
    mean = float(model.score(few))
    rows = effective_rows(few)
    bic = model.n_parameters() * float(log(rows)) - 2.0 * rows * mean
    kept = model.set_params(engine=None, callbacks=())
    on_scale = model.to_model().centres
    return KFit(k, number, model.means_, on_scale, -mean, log_likelihood=mean, bic=bic, model=kept)


def simplified_silhouette(distances: np.ndarray, weights: Any) -> float:
    """Return the mean of (b - a) / b over the rows, weighted where they have weights.

    Parameters
    ----------
    distances : ndarray of shape (n, 2)
        Distances to the nearest (a) and the second nearest centre (b). The simplified silhouette has these
        in place of mean distances to rows (Hruschka, de Castro, Campello, 2004).
    weights : array-like of shape (n,), or None

    Examples
    --------
    >>> import numpy as np
    >>> simplified_silhouette(np.array([[1.0, 4.0], [2.0, 4.0]]), [3.0, 1.0])
    0.6875
    """
    wide = distances.astype(np.float64)
    nearest, second = wide[:, 0], wide[:, 1]
    values = np.where(second > 0.0, 1.0 - nearest / np.where(second > 0.0, second, 1.0), 0.0)
    return float(np.average(values, weights=None if weights is None else np.asarray(weights)))


def effective_rows(few: Dataset) -> float:
    """Return the effective number of rows of a weighted sample, (sum w)^2 / sum w^2 (Kish, 1965).

    A mixture overfits the few rows of a coreset. A criterion that counted all rows that the coreset
    represents would not penalise this enough, and would choose too many components.
    """
    if few.weights is None:
        return float(few.n_rows)
    weights = np.asarray(few.weights, np.float64)
    return float(weights.sum() ** 2 / (weights * weights).sum())


def dealt(attempts: Sequence[Try], shares: int) -> list[list[Try]]:
    """Distribute fits over tasks of about equal length, the largest k first.

    Examples
    --------
    >>> dealt([(2, 0), (4, 0), (8, 0)], 2)
    [[(8, 0), (2, 0)], [(4, 0)]]
    """
    ordered = sorted(attempts, reverse=True)
    return [ordered[first::shares] for first in range(min(shares, len(ordered)))]


def best_fits(fits: Sequence[KFit]) -> dict[int, tuple[KFit, float]]:
    """Return the best start of every k, ascending, and by which share the worst start is worse."""
    found: dict[int, tuple[KFit, float]] = {}
    for k in sorted({fit.k for fit in fits}):
        starts = sorted((fit for fit in fits if fit.k == k), key=lambda fit: (fit.cost, fit.number))
        best, worst = starts[0], starts[-1]
        spread = (worst.cost - best.cost) / abs(best.cost) if best.cost else 0.0
        found[k] = best, spread
    return found
