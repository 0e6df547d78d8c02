"""Random rows, without replacement, in proportion to their weights."""

from __future__ import annotations

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidParameterError
from daskcluster.randomness import Key
from daskcluster.typing import Dataset

_BLOCK_ROWS = 1 << 17


def draw_rows(dataset: Dataset, m: int, key: Key, *, fewer: bool = False) -> np.ndarray:
    """Return `m` distinct rows, drawn one after the other in proportion to the weights left.

    Row i gets the exponential key -log(1 - u_i) / w_i; the `m` smallest keys are such a draw
    (Efraimidis and Spirakis, 2006). Only the weights are read, no row is. Rows without weight are never
    drawn. The result is in the order of the keys; with `fewer` it may be shorter than `m`.

    Raises
    ------
    InvalidParameterError
        Fewer than `m` rows have a positive weight.
    """
    best, rows = np.empty(0), np.empty(0, np.int64)
    for start in range(0, dataset.n_rows, _BLOCK_ROWS):
        stop = min(start + _BLOCK_ROWS, dataset.n_rows)
        keys = -np.log1p(-key.uniforms(start, stop))
        if dataset.weights is not None:
            weights = np.asarray(dataset.weights[start:stop], dtype=np.float64)
            with np.errstate(divide="ignore", invalid="ignore"):
                keys = np.where(weights > 0.0, keys / weights, np.inf)
        if m < len(keys):
            few = np.sort(np.argpartition(keys, m)[:m])
        else:
            few = np.arange(len(keys))
        best = np.concatenate([best, keys[few]])
        rows = np.concatenate([rows, start + few])
        order = np.lexsort((rows, best))[:m]
        best, rows = best[order], rows[order]
    if fewer:
        return rows[np.isfinite(best)]
    if len(rows) < m or not np.isfinite(best).all():
        raise InvalidParameterError(
            f"rows with a positive weight={int(np.isfinite(best).sum())} should be >= {m}, the number "
            "of rows to draw; lower n_clusters or give more rows a weight."
        )
    return rows


def take_centres(rows: ScaledPlacement, indices: np.ndarray) -> np.ndarray:
    """Return the given rows as centres: in the compute dtype, of length one for cosine."""
    taken = rows.placement.take(np.asarray(indices, dtype=np.int64))
    parts = [block.rows for block in Chunk(taken).blocks(unit=rows.unit)]
    return np.array(np.concatenate(parts), order="C")


def random_rows(rows: ScaledPlacement, n_clusters: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Choose `n_clusters` random rows as centres.

    Returns
    -------
    centres : ndarray of shape (k, d)
    indices : ndarray of shape (k,)

    Notes
    -----
    Cost: no pass; `n_clusters` rows are fetched.
    """
    indices = draw_rows(rows.placement.dataset, n_clusters, Key(seed, "random rows"))
    return take_centres(rows, indices), indices


def fill_centres(
    rows: ScaledPlacement, centres: np.ndarray, indices: np.ndarray, n_clusters: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Complete centres with random rows: every row is one already, so these are duplicates.

    Parameters
    ----------
    rows : ScaledPlacement
    centres : ndarray of shape (c, d)
    indices : ndarray of shape (c,), int64
    n_clusters : int
    seed : int

    Returns
    -------
    centres : ndarray of shape (k, d)
    indices : ndarray of shape (k,)
    """
    missing = n_clusters - len(indices)
    if missing == 0:
        return centres, indices
    drawn = draw_rows(rows.placement.dataset, n_clusters, Key(seed, "fill"), fewer=True)
    spare = drawn[~np.isin(drawn, indices)][:missing]
    spare = np.concatenate([spare, np.full(missing - len(spare), indices[0])])
    return np.concatenate([centres, take_centres(rows, spare)]), np.concatenate([indices, spare])
