"""Random rows, without replacement, in proportion to their weights."""

from __future__ import annotations

import numpy as np

from daskcluster.elementary import log1p
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidParameterError
from daskcluster.randomness import Key
from daskcluster.typing import Dataset

_BLOCK_ROWS = 1 << 17
_ROUNDING = 1.0 + 2.0**-40


def draw_rows(dataset: Dataset, m: int, key: Key, *, fewer: bool = False) -> np.ndarray:
    """Return `m` distinct rows, drawn one after the other in proportion to the remaining weights.

    Row i gets the exponential key -log(1 - u_i) / w_i; the rows with the `m` smallest keys are such a draw
    (Efraimidis and Spirakis, 2006). Only weights are read, no rows. Rows without weight are never drawn.
    The result is in the order of the keys; with `fewer` it may be shorter than `m`.

    Raises
    ------
    InvalidParameterError
        Fewer than `m` rows have a positive weight.
    """
    best, rows = np.empty(0), np.empty(0, np.int64)
    for start in range(0, dataset.n_rows, _BLOCK_ROWS):
        stop = min(start + _BLOCK_ROWS, dataset.n_rows)
        weights = None if dataset.weights is None else np.asarray(dataset.weights[start:stop])
        enough = best[-1] if len(best) == m else np.inf
        few, keys = _least_keys(key.uniforms(start, stop), weights, m, enough)
        best = np.concatenate([best, keys])
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


def _least_keys(
    uniforms: np.ndarray, weights: np.ndarray | None, m: int, enough: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows that may have the `m` smallest keys of all, and their keys; none far above `enough`."""
    # u <= -log(1 - u), so if u is already too large, no logarithm is needed.
    least = _per_weight(uniforms, weights)
    few = np.flatnonzero(least <= enough * _ROUNDING)
    keys = _per_weight(-log1p(-uniforms[few]), None if weights is None else weights[few])
    if m < len(few):
        # Keep all ties at the threshold, since partition breaks ties differently on different machines.
        inside = keys <= np.partition(keys, m - 1)[m - 1]
        few, keys = few[inside], keys[inside]
    return few, keys


def _per_weight(keys: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Return keys divided by the weights; infinite for zero weights."""
    if weights is None:
        return keys
    wide = weights.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(wide > 0.0, keys / wide, np.inf)


def take_centres(rows: ScaledPlacement, indices: np.ndarray) -> np.ndarray:
    """Return the given rows as centres: in the compute dtype, of length one for cosine."""
    taken = rows.placement.take(np.asarray(indices, dtype=np.int64))
    return np.array(rows.chunk(taken).computed(), order="C")


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
    """Complete the centres with random rows, which are duplicates, since every row is already a centre.

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
