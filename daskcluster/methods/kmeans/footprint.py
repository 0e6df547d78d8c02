"""What fits need of memory beyond the rows, for the projection that is made before they start."""

from __future__ import annotations

from daskcluster.chunk import compute_dtype
from daskcluster.data.sparse import SparseDataset
from daskcluster.engine.memory import Footprint
from daskcluster.parameters import shared
from daskcluster.seeding.afkmc2 import n_proposals
from daskcluster.seeding.kmeans_parallel import most_candidates, most_drawn
from daskcluster.typing import Dataset

_COPIES = 2
"""Rows that have been drawn are joined: for a moment they are there twice."""


def fit_footprint(
    dataset: Dataset, n_clusters: int, method: str, chain_length: int = shared.CHAIN_LENGTH.default
) -> Footprint:
    """Return what k-means needs per thread, per row and per process.

    Parameters
    ----------
    dataset : Dataset
    n_clusters : int
    method : str
        Of seeding among all rows, as `method_for` names it; another word where a sample is enough.
    chain_length : int
        Of ``"afk-mc2"``.
    """
    statistics = statistics_bytes(dataset, n_clusters)
    panels = 2 * 4 * (n_clusters + 64) * (dataset.n_features + 1)
    drawn = most_drawn(n_clusters) * _row_bytes(dataset) if method == "k-means||" else 0
    row_bytes = {"k-means++": 8, "k-means||": 4}.get(method, 0)
    held = seeding_bytes(dataset, n_clusters, method, chain_length)
    return Footprint(2 * statistics + panels + drawn, row_bytes, held)


def statistics_bytes(dataset: Dataset, n_clusters: int) -> int:
    """Return the bytes of the sums and weights of clusters: on two grids where one is not exact."""
    grids = 2 if dataset.weights is not None or dataset.dtype.itemsize == 8 else 1
    return 8 * n_clusters * (dataset.n_features + 1) * grids


def seeding_bytes(
    dataset: Dataset, n_clusters: int, method: str, chain_length: int = shared.CHAIN_LENGTH.default
) -> int:
    """Return the bytes of rows that a seeding holds in one process: candidates, or proposals."""
    if method == "k-means||":
        drawn = most_candidates(n_clusters)
    elif method == "afk-mc2":
        drawn = n_proposals(n_clusters, chain_length)
    else:
        return 0
    return _COPIES * min(drawn, dataset.n_rows) * _row_bytes(dataset)


def _row_bytes(dataset: Dataset) -> int:
    """Return the bytes of a row that has been drawn, on average, with its number and its key."""
    size = compute_dtype(dataset.dtype).itemsize * dataset.n_features
    if isinstance(dataset, SparseDataset):
        size = dataset.row_bytes
    return size + 16
