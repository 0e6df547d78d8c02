"""Measures of compactness and separation, from cluster sums and distances to means."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from daskcluster.chunkwise.labelled import (
    LABELLED_SUMS,
    SPREADS,
    RenumberedLabels,
    RowLabels,
    SpreadParams,
    Spreads,
    SumsParams,
)
from daskcluster.chunkwise.statistics import KMeansStatistics
from daskcluster.data.label_files import mask_of_source
from daskcluster.data.open import open_source
from daskcluster.data.recipes import for_metric
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidParameterError
from daskcluster.events import Callback
from daskcluster.kernels.distance import sqdist_all
from daskcluster.metrics.labelling import open_labelling

DISTANCES = ("euclidean", "cosine")
_CELLS = 1 << 22
"""Distances between means held at a time."""
_ZERO = 1e-8
"""Distances below this count as zero, as in scikit-learn."""
_LEAST_SHARE = 1e-6
"""Share of the total scatter below which the scatter within clusters is not computed as a difference."""


def calinski_harabasz(X: Any, labels: Any, *, engine: Any = None) -> float:
    """Return the ratio of scatter between and within clusters, each divided by its degrees of freedom.

    Parameters
    ----------
    X : anything `open_dataset` takes, of shape (n, d)
        With row weights, a row of weight w counts as w rows.
    labels : labels of shape (n,)
        In memory, a Labels handle, a dask array, a zarr.Array, or the URL of a 1-D Zarr array. A noise
        label such as -1 is a cluster like any other.
    engine : see `daskcluster.KMeans`

    Returns
    -------
    float
        Larger is better; 1 if all rows equal the mean of their cluster.

    Raises
    ------
    InvalidParameterError
        There are fewer than 2 distinct labels, or as many labels as rows.
    InvalidDataError
        The number of labels differs from that of the rows, or a row is not finite.

    Notes
    -----
    Calinski and Harabasz 1974; `sklearn.metrics.calinski_harabasz_score`, whose result it equals up to
    rounding. Sums are exact, so the bits do not depend on engine, chunks or workers. The scatter within
    clusters is the total scatter minus that between clusters; if this difference loses digits, the rows are
    read once more.

    Cost: one pass over rows and labels; two if the scatter within clusters is below a millionth of the
    total. Each thread holds, and each worker returns, two sums of k x d numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster import metrics
    >>> rows = np.array([[0.0], [1.0], [8.0], [9.0]])
    >>> metrics.calinski_harabasz(rows, [0, 0, 1, 1])
    128.0
    """
    return _measured(X, labels, engine, lambda clusters: clusters.calinski_harabasz())


def davies_bouldin(X: Any, labels: Any, *, engine: Any = None) -> float:
    """Return the mean over clusters of the largest ratio of the radii of two clusters to their distance.

    Parameters
    ----------
    X, labels, engine
        As in `calinski_harabasz`.

    Returns
    -------
    float
        At least 0; smaller is better.

    Raises
    ------
    InvalidParameterError, InvalidDataError
        As in `calinski_harabasz`.

    Notes
    -----
    Davies and Bouldin 1979; `sklearn.metrics.davies_bouldin_score`, whose result it equals up to rounding.
    The radius of a cluster is the mean Euclidean distance of its rows to their mean.

    Cost: two passes over rows and labels, one for the means and one for the distances to them; k^2
    distances between means.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster import metrics
    >>> rows = np.array([[0.0], [1.0], [8.0], [9.0]])
    >>> metrics.davies_bouldin(rows, [0, 0, 1, 1])
    0.125
    """
    return _measured(X, labels, engine, lambda clusters: clusters.davies_bouldin())


def simplified_silhouette(
    X: Any, labels: Any, *, metric: str = "euclidean", engine: Any = None
) -> float:
    """Return the mean silhouette of all rows, with distances to cluster means instead of mean distances.

    For a row, let a be its distance to the mean of its cluster and b that to the nearest other mean. Its
    silhouette is (b - a) / max(a, b), and 0 in a cluster of one row.

    Parameters
    ----------
    X, labels, engine
        As in `calinski_harabasz`.
    metric : {"euclidean", "cosine"}
        With ``"cosine"``, rows are scaled to length one, and distances are half of squared ones.

    Returns
    -------
    float
        In [-1, 1]; larger is better.

    Raises
    ------
    InvalidParameterError, InvalidDataError
        As in `calinski_harabasz`.

    Notes
    -----
    Hruschka, Campello and de Castro, "Evolving clusters in gene-expression data", Information Sciences
    176 (2006). It needs n k distances, while `silhouette` needs n^2.

    Cost: two passes over rows and labels, and k distances per row.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster import metrics
    >>> rows = np.array([[0.0], [2.0], [9.0], [11.0]])
    >>> round(metrics.simplified_silhouette(rows, [0, 0, 1, 1]), 4)
    0.8875
    """
    check_distance(metric)
    return _measured(X, labels, engine, lambda clusters: clusters.simplified_silhouette(), metric)


def check_distance(metric: str) -> str:
    """Return `metric` if it is one of `DISTANCES`."""
    if metric not in DISTANCES:
        raise InvalidParameterError(f"metric={metric!r} should be one of {', '.join(DISTANCES)}.")
    return metric


def check_labels(n_labels: int, n_rows: int) -> None:
    """Raise for a single label, or as many labels as rows, as scikit-learn does."""
    if not 1 < n_labels < n_rows:
        raise InvalidParameterError(
            f"Number of labels is {n_labels}. Valid values are 2 to n_samples - 1 (inclusive): with "
            f"{n_rows} rows, one cluster or as many as rows have no separation to measure."
        )


def _measured(
    X: Any,
    labels: Any,
    engine: Any,
    measure: Callable[[Clusters], float],
    metric: str = "euclidean",
    callbacks: Sequence[Callback] = (),
) -> float:
    dataset = for_metric(open_source(X), metric)
    labelling = open_labelling(labels, dataset.n_rows, mask_of_source(dataset))
    check_labels(len(labelling.classes), dataset.n_rows)
    with choose_engine(engine, dataset).place(dataset, callbacks=callbacks) as placement:
        rows = ScaledPlacement(placement)
        return measure(Clusters(rows, labelling.row_labels(placement), len(labelling.classes)))


@dataclass(frozen=True)
class Found:
    """Sums of the non-empty clusters; `labels` number only these."""

    labels: RowLabels
    statistics: KMeansStatistics
    means: np.ndarray
    weights: np.ndarray


class Clusters:
    """Labelled rows and their statistics; each pass runs when its result is first needed.

    Parameters
    ----------
    rows : ScaledPlacement
    labels : RowLabels
    n_clusters : int
        Labels are less than this; clusters without rows or without weight are ignored.
    compare : bool
        Also compute distances to the means of other clusters, in the same pass.
    """

    def __init__(
        self, rows: ScaledPlacement, labels: RowLabels, n_clusters: int, *, compare: bool = True
    ) -> None:
        self._rows, self._labels, self._n_clusters = rows, labels, n_clusters
        self._compare = compare

    @cached_property
    def sums(self) -> Found:
        """Sums, means and weights of the clusters. One pass."""
        labels, k = self._labels, self._n_clusters
        found: KMeansStatistics = self._rows.reduce(
            LABELLED_SUMS, lambda scale: SumsParams(labels, k, scale)
        )
        there = found.weights > 0.0
        check_labels(int(there.sum()), self._rows.placement.dataset.n_rows)
        means = found.means(np.zeros((k, len(self._rows.origin))))[there]
        if not there.all():
            # Rows without weight go to cluster 0, to which they add nothing.
            labels = RenumberedLabels(labels, np.maximum(np.cumsum(there) - 1, 0))
        return Found(labels, found, means, found.weights[there])

    @cached_property
    def spreads(self) -> Spreads:
        """Distances of rows to the means. One pass, after that of `sums`."""
        found, compare = self.sums, self._compare
        alone = found.weights == 1.0
        spreads: Spreads = self._rows.reduce(
            SPREADS,
            lambda scale: SpreadParams(found.labels, found.means, alone, scale, compare),
        )
        return spreads

    def calinski_harabasz(self) -> float:
        """See `calinski_harabasz`."""
        weights, means = self.sums.weights, self.sums.means
        total = float(weights.sum())
        centre = self.sums.statistics.totals.sum(axis=0) / total
        gaps = means - centre
        between = float((weights * (gaps * gaps).sum(axis=1)).sum())
        within = self._scatter_about(centre, total) - between
        if within < _LEAST_SHARE * between:
            within = float(self.spreads.squares.sum())
        if within == 0.0:
            return 1.0
        return float(between * (total - len(means)) / (within * (len(means) - 1.0)))

    def _scatter_about(self, centre: np.ndarray, total: float) -> float:
        data_statistics = self._rows.data_statistics
        assert data_statistics is not None
        offset = centre - data_statistics.origin
        return float(data_statistics.total_spread - total * float((offset * offset).sum()))

    def davies_bouldin(self) -> float:
        """See `davies_bouldin`."""
        sizes = self.spreads.lengths.sum(axis=0) / self.sums.weights
        worst = np.zeros(len(sizes))
        apart = False
        for rows, gaps in _gaps(self.sums.means):
            apart = apart or bool((gaps > _ZERO).any())
            gaps[gaps == 0.0] = np.inf
            worst[rows] = ((sizes[rows, None] + sizes) / gaps).max(axis=1)
        return float(worst.mean()) if apart and (sizes > _ZERO).any() else 0.0

    def simplified_silhouette(self) -> float:
        """See `simplified_silhouette`."""
        return self.spreads.silhouettes.value / float(self.sums.weights.sum())


def _gaps(means: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield the distances of a block of means to all means."""
    step = max(1, _CELLS // len(means))
    for first in range(0, len(means), step):
        rows = slice(first, min(first + step, len(means)))
        gaps = np.empty((rows.stop - first, len(means)))
        sqdist_all(means[rows], means, gaps)
        yield rows, np.sqrt(gaps, out=gaps)
