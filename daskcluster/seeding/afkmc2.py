"""AFK-MC2 (Bachem, Lucic, Hassani, Krause, "Fast and Provably Good Seedings for k-Means", NIPS 2016).

D^2 sampling by Markov chains: each further centre is the last state of a chain whose proposals come from
q(n) = w_n / 2W + w_n |x_n - c_1|^2 / 2 phi, fixed once c_1 is drawn. Differences from the paper: rows have
weights; all proposals are drawn in one pass before the chains run, with their rows; there are a few more
chains than centres, because a chain that ends at an existing centre adds none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.kernels.distance import run_chains
from daskcluster.randomness import Key
from daskcluster.sampling import draw_about, measure
from daskcluster.seeding.uniform import draw_rows, fill_centres, take_centres
from daskcluster.sparse_rows import Rows, dense_rows

_TILE_ROWS = 1024
_LEAST_CHAINS, _MOST_CHAINS = 16, 64


@dataclass(frozen=True)
class Proposals:
    """The proposals of all chains.

    Attributes
    ----------
    picked : ndarray of shape (c * m,), int64
        Index into `rows` of each proposal, chain by chain.
    rows : Rows, shape (n, d)
        In the compute dtype.
    rates : ndarray of shape (n,), float64
        q / w of each row.
    taken : ndarray of shape (n,), bool
        Whether a row is already a centre.
    """

    picked: np.ndarray
    rows: Rows
    rates: np.ndarray
    taken: np.ndarray


def choose_by_chains(
    centres: np.ndarray, proposals: Proposals, uniforms: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Run chains one after the other until there are enough centres.

    Parameters
    ----------
    centres : ndarray of shape (k0, d)
        Existing centres, at least one, in the compute dtype.
    proposals : Proposals
    uniforms : ndarray of shape (c, m), float64
    most : int
        Number of new centres; further chains are not used.

    Returns
    -------
    centres : ndarray of shape (k0 + new, d)
        The given centres, and one for every chain that did not end at a centre.
    chosen : ndarray of shape (new,), int64
        Indices into `proposals.rows` of the new centres.
    """
    n_chains, length = uniforms.shape
    first, taken = len(centres), proposals.taken.copy()
    grown = np.empty((first + n_chains, centres.shape[1]), centres.dtype)
    grown[:first] = centres
    found: list[int] = []
    step = min(max(_TILE_ROWS // length, _LEAST_CHAINS), _MOST_CHAINS)
    for start in range(0, n_chains, step):
        few = slice(start, min(start + step, n_chains))
        picked = proposals.picked[few.start * length : few.stop * length]
        block = proposals.rows[picked]
        mind2 = _nearest(block, grown[: first + len(found)])
        mind2[taken[picked]] = 0.0
        ends = np.empty(few.stop - few.start, np.int64)
        rows, rates = dense_rows(block), proposals.rates[picked]
        run_chains(rows, rates, uniforms[few].ravel(), length, mind2, ends)
        ends = ends[ends >= 0]
        at = first + len(found)
        grown[at : at + len(ends)] = rows[ends]
        found += picked[ends].tolist()
        taken[picked[ends]] = True
        if len(found) >= most:
            break
    return grown[: first + most][: first + len(found)], np.array(found[:most], np.int64)


def _nearest(rows: Rows, centres: np.ndarray) -> np.ndarray:
    """Return squared distances to the nearest centre, float64 (n,)."""
    prepared = PreparedCentres(centres)
    labels, distances = np.empty(len(rows), np.int32), np.empty(len(rows))
    prepared.nearest(rows, labels)
    prepared.sqdist_to_assigned(rows, labels, distances)
    return distances


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
        m >= 1, the number of proposals per centre. Longer chains approximate k-means++ with a single
        candidate better.

    Returns
    -------
    centres : ndarray of shape (k, d)
    indices : ndarray of shape (k,)
        If there are fewer distinct rows than centres, some centres are equal.

    Notes
    -----
    Cost: one pass with n distances, after data statistics (with weights, after a pass for the mean);
    another pass only if many chains end at existing centres, as when few rows are distinct. The k m
    proposed rows (and a sixteenth more) are held in memory; the chains compute m k^2 / 2 distances. No
    per-row state.
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
    """Return the number of rows that are proposed and held in memory."""
    return _n_chains(n_clusters) * chain_length


def _n_chains(missing: int) -> int:
    return missing + _LEAST_SPARE + missing // _SPARE_SHARE
