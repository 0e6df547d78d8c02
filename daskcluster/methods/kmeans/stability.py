"""Whether k-means from other seeds finds the clusters of a model again, on a sample of its rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from daskcluster.chunkwise.examples import Sample
from daskcluster.metrics.agreement import Stability
from daskcluster.sparse_rows import Rows, SparseRows

N_FITS = 5
_MAX_ITER = 50
_LEAST_ROWS = 20
"""Rows per cluster below which a sample says little about its clusters."""
_MOST_TERMS = 2e9
"""Most distances times features of an iteration, so that all fits take a few seconds."""


def stability(sample: Sample, n_clusters: int) -> Stability | None:
    """Compare the clusters of a sample with those that k-means finds there from five other seeds.

    Parameters
    ----------
    sample : Sample
    n_clusters : int

    Returns
    -------
    Stability, or None
        None if there is a single cluster, if the sample has fewer than 20 rows per cluster, and for rows
        with weights or missing values.

    Notes
    -----
    Cost: five fits of at most 50 iterations on at most 10,000 rows, in this process.
    """
    most = min(len(sample.rows), int(_MOST_TERMS / (n_clusters * sample.rows.shape[1])))
    if n_clusters < 2 or sample.weighted or most < _LEAST_ROWS * n_clusters:
        return None
    at = np.arange(most) * len(sample.rows) // most
    rows, labels = sample.rows[at], sample.labels[at]
    if not np.isfinite(rows.data if isinstance(rows, SparseRows) else rows).all():
        return None
    return Stability.of(labels, _refits(rows, n_clusters, sample.metric), n_clusters)


def _refits(rows: Rows, n_clusters: int, metric: str) -> Iterator[Any]:
    from daskcluster.methods.kmeans.estimator import KMeans  # which imports the jobs on its models

    data: Any = rows
    if isinstance(rows, SparseRows):
        data = sparse.csr_array((rows.data, rows.indices, rows.offsets), shape=rows.shape)
    for seed in range(N_FITS):
        model = KMeans(
            n_clusters,
            n_init=1,
            max_iter=_MAX_ITER,
            metric=metric,
            random_state=seed,
            engine="local",
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of few iterations, of duplicates
            yield model.fit(data).labels_
