"""The graph of nearest neighbours of all rows of a fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.neighbors import NearestNeighbors

from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.methods.kernel.chunkwise.gram import rows_for_callers, squared_lengths
from daskcluster.methods.kernel.chunkwise.neighbours import (
    Neighbourhoods,
    Pairs,
    nearest,
    nth_of_each,
    rounding,
    squared_gaps,
)
from daskcluster.methods.minibatch.batches import whole
from daskcluster.sparse_rows import Rows, join_rows
from daskcluster.typing import Dataset

_SPARE = 8
"""Neighbours more than wanted that scikit-learn is asked for: ties, and what its rounding may swap."""
_MOST_TIES = 32
"""Times `n_neighbors`: more neighbours a row, on average, are not a graph of neighbours any more."""


@dataclass(frozen=True)
class NeighbourGraph:
    """Rows, their neighbours, and their twins, which are at no distance at all (each row among them).

    Attributes
    ----------
    neighbourhoods : Neighbourhoods
    adjacency, twins : CSR arrays of shape (n, n), float64
        Ones; symmetric.
    """

    neighbourhoods: Neighbourhoods
    adjacency: Any
    twins: Any


def neighbour_graph(dataset: Dataset, n_neighbors: int) -> NeighbourGraph:
    """Return the graph in which two rows are neighbours if either is among the nearest of the other.

    scikit-learn finds candidates, by trees where there are few features; exact distances decide
    (`daskcluster.methods.kernel.chunkwise.neighbours`), and ties are all in. A row is its own neighbour.

    Parameters
    ----------
    dataset : Dataset
        Its rows are read into memory, twice over while candidates are sought.
    n_neighbors : int
        The row itself among them.

    Raises
    ------
    InvalidParameterError
        There are fewer rows.
    InvalidDataError
        Too many rows are alike.
    """
    if n_neighbors > dataset.n_rows:
        raise InvalidParameterError(
            f"n_neighbors={n_neighbors} should be <= n_samples={dataset.n_rows}: a row is its own "
            "neighbour; pass fewer."
        )
    blocks = [block.rows for block in whole(dataset).blocks()]
    points = join_rows(blocks)[np.arange(dataset.n_rows)]  # of our own, whatever the caller does
    found, radii = _nearest(points, n_neighbors)
    directed = found.matrix(dataset.n_rows)
    both = directed.maximum(directed.T).tocsr()
    both.sort_indices()
    twins = found.take(found.gaps == 0.0).matrix(dataset.n_rows)
    return NeighbourGraph(Neighbourhoods(points, radii, n_neighbors), both, twins)


def _nearest(points: Rows, n_neighbors: int) -> tuple[Pairs, np.ndarray]:
    """Return what `nearest` does of all points, from candidates where these are sure to suffice."""
    n, wanted = len(points), min(n_neighbors + _SPARE, len(points))
    wide = rows_for_callers(points.astype(np.float64))
    candidates = (
        NearestNeighbors(n_neighbors=wanted).fit(wide).kneighbors(wide, return_distance=False)
    )
    i, j = np.repeat(np.arange(n), wanted), np.sort(candidates, axis=1).ravel()
    gaps = squared_gaps(points, i, points, j)
    radii = nth_of_each(i, gaps, n, n_neighbors)
    lengths = squared_lengths(points)
    beyond = radii + rounding(lengths, lengths, points.shape[1])
    sure = (gaps.reshape(n, wanted).max(axis=1) > beyond) | (wanted == n)
    kept = sure[i] & (gaps <= radii[i])
    parts = [Pairs(n, i[kept], j[kept], gaps[kept])]
    unsure, total = np.flatnonzero(~sure), int(kept.sum())
    for which in np.array_split(unsure, -(-len(unsure) // 256)) if len(unsure) else []:
        found, radii[which] = nearest(points[which], points, n_neighbors)
        parts.append(Pairs(n, which[found.rows], found.points, found.gaps))
        total += len(found.rows)
        _refuse_ties(total, n_neighbors, n)
    return _in_order(parts), radii


def _refuse_ties(n_pairs: int, n_neighbors: int, n_rows: int) -> None:
    if n_pairs > _MOST_TIES * n_neighbors * n_rows:
        raise InvalidDataError(
            f"more than {n_pairs:,} pairs of {n_rows:,} rows are as near as the n_neighbors={n_neighbors} "
            f"nearest, {_MOST_TIES} times as many as without ties: rows are alike. Give each distinct "
            "row once, with sample_weight, or a kernel of two rows, such as 'rbf'."
        )


def _in_order(parts: list[Pairs]) -> Pairs:
    rows, points, gaps = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("rows", "points", "gaps")
    )
    order = np.lexsort((points, rows))
    return Pairs(parts[0].n_rows, rows[order], points[order], gaps[order])
