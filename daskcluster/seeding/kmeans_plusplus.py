"""Greedy k-means++ (Arthur and Vassilvitskii 2007), weighted, on any engine.

Several candidates are drawn by D^2 sampling at every step and the one that lowers the potential most
is kept. Masses are rounded to a grid, so that prefix sums over rows are exact and the draw
depends on the seed alone: not on chunks, threads or workers.
"""

from __future__ import annotations

import numpy as np

from daskcluster.chunkwise.seeding import POTENTIALS, Pick, PotentialParams, Potentials
from daskcluster.elementary import log
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.randomness import Key
from daskcluster.seeding.uniform import draw_rows, fill_centres, take_centres


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
        Candidates a step; default 2 + floor(log k), scikit-learn's.

    Returns
    -------
    centres : ndarray of shape (k, d)
    indices : ndarray of shape (k,)
        Where every row is a centre already, further ones are drawn at random.

    Notes
    -----
    Cost: one pass per centre with (1 + n_local_trials) distances a row, and a survey if no pass
    has been made yet; 8 bytes of state a row. Out of core, k-means|| needs six passes instead.
    """
    trials = n_local_trials or 2 + int(log(max(1, n_clusters)))
    rows.placement.drop_state(POTENTIALS.name)  # which is of a restart before this one
    rows.known()
    shift = float(rows.scale.spread)
    dataset = rows.placement.dataset
    indices = [int(draw_rows(dataset, 1, Key(seed, "first centre"))[0])]
    centres = take_centres(rows, np.array(indices))
    masses = _potentials(rows, PotentialParams(centres, centres[:1], shift, rows.unit))
    chosen = 0
    for step in range(1, n_clusters):
        starts, parts = masses.ordered()
        drawn = _draw(
            rows, centres, shift, starts, parts[:, chosen], trials, Key(seed, "D^2", step)
        )
        if not drawn:
            return fill_centres(rows, centres, np.array(indices), n_clusters, seed)
        candidates = np.array([row for _, row in drawn])
        masses = _potentials(rows, PotentialParams(centres, candidates, shift, rows.unit))
        _, parts = masses.ordered()
        chosen = int(np.argmin(parts.sum(axis=0)))
        indices.append(drawn[chosen][0])
        centres = np.concatenate([centres, candidates[chosen : chosen + 1]])
    return centres, np.array(indices)


def _potentials(rows: ScaledPlacement, params: PotentialParams) -> Potentials:
    found: Potentials = rows.placement.map_state(POTENTIALS, params)
    return found


def _draw(
    rows: ScaledPlacement,
    centres: np.ndarray,
    shift: float,
    starts: np.ndarray,
    masses: np.ndarray,
    trials: int,
    key: Key,
) -> list[tuple[int, np.ndarray]]:
    """Draw rows in proportion to their masses: inverse CDF over exact prefix sums."""
    edges = np.cumsum(masses)
    if edges[-1] <= 0.0:
        return []
    params = PotentialParams(centres, centres[:0], shift, rows.unit)
    stops = np.append(starts[1:], rows.placement.dataset.n_rows)
    targets = key.generator().random(trials) * edges[-1]
    homes = np.searchsorted(edges, targets, side="right").clip(0, np.flatnonzero(masses > 0.0)[-1])
    found: dict[int, tuple[int, np.ndarray]] = {}
    for home in np.unique(homes):
        which = np.flatnonzero(homes == home)
        before = edges[home] - masses[home]
        inside = tuple(float(target) for target in targets[which] - before)
        pick = Pick(int(starts[home]), int(stops[home]), inside)
        picks = rows.placement.state_of(POTENTIALS, params, int(starts[home]), pick)
        found.update(zip(which.tolist(), picks, strict=True))
    return [found[trial] for trial in range(trials)]
