"""Greedy k-means++ (Arthur and Vassilvitskii 2007), weighted, on any engine.

Every step draws several candidates by D^2 sampling and keeps the one that lowers the potential most. Masses
are rounded to a grid, so that prefix sums over rows are exact, and the draw depends only on the seed, not
on chunks, threads or workers. The grid becomes finer as the potential falls, so that a row far from all
others does not make their distances round to zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskcluster.chunkwise.seeding import POTENTIALS, Pick, PotentialParams, Potentials
from daskcluster.elementary import log
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.kernels.sum_grid import grid_shift
from daskcluster.randomness import Key
from daskcluster.seeding.uniform import draw_rows, fill_centres, take_centres

_OVER = 1.01
_MANY, _MOST_REFINED = 2.0**10, 2
"""A potential below `_MANY` times its rounding error is recomputed on a finer grid, at most `_MOST_REFINED`
times."""


def kmeans_plusplus(
    rows: ScaledPlacement, n_clusters: int, seed: int, *, n_local_trials: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Choose `n_clusters` rows by greedy D^2 sampling.

    Parameters
    ----------
    rows : ScaledPlacement
    n_clusters : int
    seed : int
    n_local_trials : int, optional
        Candidates per step; default 2 + floor(log k), as in scikit-learn.

    Returns
    -------
    centres : ndarray of shape (k, d)
    indices : ndarray of shape (k,)
        If every row is already a centre, further ones are drawn at random.

    Notes
    -----
    Cost: one pass per centre with 1 + n_local_trials distances per row, and data statistics if no pass has
    gathered them yet; at most two more passes after a step that leaves almost no potential, as with
    duplicate rows. 8 bytes of state per row. Out of core, prefer k-means||, which takes six passes.
    """
    trials = n_local_trials or 2 + int(log(max(1, n_clusters)))
    rows.placement.drop_state(POTENTIALS.name)  # left by an earlier restart
    rows.known()
    indices = [int(draw_rows(rows.placement.dataset, 1, Key(seed, "first centre"))[0])]
    centres = take_centres(rows, np.array(indices))
    masses, chosen = _measured(rows, centres, centres, rows.scale.squares(centres)), 0
    for step in range(1, n_clusters):
        for _ in range(_MOST_REFINED):
            if masses.total(chosen) > _MANY * masses.lost:
                break
            masses, chosen = _measured(rows, centres, centres[-1:], masses.lost), 0
        drawn = _draw(rows, centres, masses, chosen, trials, Key(seed, "D^2", step))
        if not drawn:
            return fill_centres(rows, centres, np.array(indices), n_clusters, seed)
        candidates = np.array([row for _, row in drawn])
        bound = _OVER * masses.total(chosen) + masses.lost
        masses = _measured(rows, centres, candidates, bound)
        chosen = int(np.argmin(masses.parts.sum(axis=0)))
        indices.append(drawn[chosen][0])
        centres = np.concatenate([centres, candidates[chosen : chosen + 1]])
    return centres, np.array(indices)


@dataclass(frozen=True)
class _Masses:
    """The potentials of the rows after adding each of several candidates to the centres.

    Attributes
    ----------
    shift : float
        M of the grid of the masses.
    lost : float
        Bound on the total rounding error of all masses.
    starts : ndarray of shape (c,), int64
        First rows of blocks.
    parts : ndarray of shape (c, t)
        Potential of every candidate over the rows from each start to the next.
    """

    shift: float
    lost: float
    starts: np.ndarray
    parts: np.ndarray

    def total(self, chosen: int) -> float:
        return float(self.parts[:, chosen].sum())


def _measured(
    rows: ScaledPlacement, centres: np.ndarray, candidates: np.ndarray, bound: float
) -> _Masses:
    """Return the masses of all rows; `bound` must not be less than their sum."""
    shift = grid_shift(bound, 1)
    params = PotentialParams(centres, candidates, shift)
    found: Potentials = rows.placement.map_state(POTENTIALS, params)
    lost = rows.placement.dataset.n_rows * shift * 2.0**-53
    return _Masses(shift, lost, *found.ordered())


def _draw(
    rows: ScaledPlacement,
    centres: np.ndarray,
    found: _Masses,
    chosen: int,
    trials: int,
    key: Key,
) -> list[tuple[int, np.ndarray]]:
    """Draw rows in proportion to their masses: inverse CDF over exact prefix sums."""
    starts, masses = found.starts, found.parts[:, chosen]
    edges = np.cumsum(masses)
    if edges[-1] <= 0.0:
        return []
    params = PotentialParams(centres, centres[:0], found.shift)
    stops = np.append(starts[1:], rows.placement.dataset.n_rows)
    targets = key.generator().random(trials) * edges[-1]
    blocks = np.searchsorted(edges, targets, side="right").clip(0, np.flatnonzero(masses > 0.0)[-1])
    inside = targets - (edges[blocks] - masses[blocks])
    items = np.array([rows.placement.item_of(int(start)) for start in starts[blocks]])
    picked: dict[int, tuple[int, np.ndarray]] = {}
    for item in np.unique(items):
        which = np.flatnonzero(items == item)
        pick = Pick(
            tuple(
                (int(starts[b]), int(stops[b]), float(inside[i]))
                for i, b in zip(which, blocks[which], strict=True)
            )
        )
        picks = rows.placement.state_of(POTENTIALS, params, pick.blocks[0][0], pick)
        picked.update(zip(which.tolist(), picks, strict=True))
    return [picked[trial] for trial in range(trials)]
