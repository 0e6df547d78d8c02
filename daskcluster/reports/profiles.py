"""What sets each cluster apart, by the names of features: for those who asked for the clusters."""

from __future__ import annotations

from typing import Any

import numpy as np

from daskcluster.models.balance import largest
from daskcluster.reports.charts import WIDTH, Chart

MOST_PROFILES = 30
"""Number of largest clusters whose profiles are shown."""
MOST_FEATURES = 24
_SHOWN = 3
_NEAR = 0.25
"""A difference below a quarter of a standard deviation is not worth a word."""


def differences(centres: np.ndarray, weights: np.ndarray, within: float = 0.0) -> np.ndarray:
    """Return how far each centre lies from the mean of all rows, in standard deviations.

    Parameters
    ----------
    centres : ndarray of shape (k, d)
        On the scale of the fit.
    weights : ndarray of shape (k,)
    within : float
        Variance of a feature within clusters, the same for all, as k-means has it. So a feature in which
        centres hardly differ sets no cluster apart.

    Returns
    -------
    ndarray of shape (k, d), float64
        Zero for features that all centres share.

    Examples
    --------
    >>> differences(np.array([[0.0, 7.0], [2.0, 7.0]]), np.ones(2)).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """
    share = np.asarray(weights, np.float64)
    share = share / share.sum() if share.sum() > 0 else np.full(len(centres), 1 / len(centres))
    gaps = np.asarray(centres, np.float64) - share @ np.asarray(centres, np.float64)
    width = np.sqrt(share @ (gaps * gaps) + within)
    return np.divide(gaps, width, out=np.zeros_like(gaps), where=width > 0)


def in_words(row: np.ndarray, names: tuple[str, ...]) -> str:
    """Return the largest differences of one cluster, e.g. ``"income +2.1, age -0.8"``.

    Examples
    --------
    >>> in_words(np.array([0.1, -0.8, 2.06]), ("height", "age", "income"))
    'income +2.1, age -0.8'
    """
    order = np.argsort(-np.abs(row), kind="stable")[:_SHOWN]
    shown = [f"{names[j]} {row[j]:+.1f}" for j in order if abs(row[j]) >= _NEAR]
    return ", ".join(shown) or "like the average row"


def telling(found: np.ndarray, weights: np.ndarray, most: int = MOST_FEATURES) -> np.ndarray:
    """Return the features that differ most between clusters, in their own order."""
    reach = np.abs(found[np.asarray(weights) > 0]).max(axis=0, initial=0.0)
    return np.sort(np.argsort(-reach, kind="stable")[:most])


def profiles(found: np.ndarray, weights: np.ndarray, names: tuple[str, ...]) -> Chart | None:
    """Return a heat map of the `differences` of the largest clusters; None for a single one."""
    shown = sorted(largest(weights, MOST_PROFILES))
    if len(shown) < 2:
        return None
    features = telling(found, weights)
    part = found[shown][:, features]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        limit = max(1.0, float(np.abs(part).max()))
        image = axes.imshow(part, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
        axes.set_xticks(
            range(len(features)), [names[j][:18] for j in features], rotation=60, ha="right"
        )
        axes.set_yticks(range(len(shown)), [str(cluster) for cluster in shown])
        axes.set_ylabel("cluster")
        bar = figure.colorbar(image, ax=axes, shrink=0.8)
        bar.set_label("deviations")

    height = min(WIDTH, 1.8 + 0.22 * len(shown))
    return Chart("heat map of clusters and the features that tell them apart", height, draw)
