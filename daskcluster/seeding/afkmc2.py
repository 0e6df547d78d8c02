"""AFK-MC2 (Bachem, Lucic, Hassani, Krause, "Fast and Provably Good Seedings for k-Means", NIPS 2016).

D^2 sampling by Markov chains: each further centre is the last state of a chain whose proposals come
from q(n) = w_n / 2W + w_n |x_n - c_1|^2 / 2 phi, fixed once c_1 is drawn. As in the paper; what
differs: rows have weights; all proposals are drawn beforehand in one pass, with their rows; there are some
chains more than centres, because one that ends at a centre that there is already gives none.
"""

from __future__ import annotations

import numpy as np

from daskcluster.chunkwise.afkmc2 import Proposals, choose_by_chains
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.randomness import Key
from daskcluster.sampling.draws import draw_about
from daskcluster.sampling.moments import measure
from daskcluster.seeding.uniform import draw_rows, fill_centres, take_centres

_MOST_ROUNDS = 10
_LEAST_SPARE, _SPARE_SHARE = 8, 16


def afk_mc2(
    rows: ScaledPlacement, n_clusters: int, seed: int, *, chain_length: int = 10
) -> tuple[np.ndarray, np.ndarray]:
    """Choose `n_clusters` rows by chains of `chain_length` proposals.

    Parameters
    ----------
    rows : ScaledPlacement
    n_clusters : int
    seed : int
    chain_length : int
        m >= 1: proposals for each centre. The longer, the closer to k-means++ without candidates.

    Returns
    -------
    centres : ndarray of shape (k, d)
    indices : ndarray of shape (k,)
        Where there are fewer distinct rows than centres, some are the same.

    Notes
    -----
    Cost: one pass, n distances, and a survey (with weights: a pass for the mean) before it; a pass
    more only if many chains end at centres, as where few rows are distinct. m k^2 / 2 distances of the
    k m rows (and a sixteenth to spare) that were proposed, which are kept in memory. No state for rows.
    """
    moments = measure(rows)
    indices = draw_rows(rows.placement.dataset, 1, Key(seed, "first centre"))
    centres = take_centres(rows, indices)
    for attempt in range(_MOST_ROUNDS):
        missing = n_clusters - len(centres)
        if missing == 0:
            break
        n_chains = _n_chains(missing)
        key = Key(seed, f"proposals {attempt}")
        draws = draw_about(rows, centres[0], moments, n_chains * chain_length, key)
        proposals = Proposals(
            draws.picked,
            rows.chunk(draws.rows).computed(),
            draws.rates,
            np.isin(draws.indices, indices),
        )
        uniforms = Key(seed, "chains", attempt).generator().random((n_chains, chain_length))
        centres, chosen = choose_by_chains(centres, proposals, uniforms, missing)
        if len(chosen) == 0:
            break
        indices = np.concatenate([indices, draws.indices[chosen]])
    return fill_centres(rows, centres, indices, n_clusters, seed)


def n_proposals(n_clusters: int, chain_length: int) -> int:
    """Return how many rows are proposed, and held, for so many centres."""
    return _n_chains(n_clusters) * chain_length


def _n_chains(missing: int) -> int:
    return missing + _LEAST_SPARE + missing // _SPARE_SHARE
