"""AFK-MC2 in memory: from proposals, all drawn beforehand, to centres.

The proposals do not depend on the centres. So the distances of the proposals of several chains to all
centres that are finished are one dense tile; only the distances to centres of the same few
chains are computed one by one. Together that is m k^2 / 2 distances for k chains of length m.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.kernels.chains import run_chains
from daskcluster.sparse_rows import Rows, dense_rows

_TILE_ROWS = 1024
_LEAST_CHAINS, _MOST_CHAINS = 16, 64


@dataclass(frozen=True)
class Proposals:
    """What chains choose from.

    Attributes
    ----------
    picked : ndarray of shape (c * m,), int64
        Which of the rows each proposal is, chain after chain.
    rows : Rows, shape (n, d)
        In the compute dtype.
    rates : ndarray of shape (n,), float64
        q / w of each row.
    taken : ndarray of shape (n,), bool
        Rows that are centres already.
    """

    picked: np.ndarray
    rows: Rows
    rates: np.ndarray
    taken: np.ndarray


def choose_by_chains(
    centres: np.ndarray, proposals: Proposals, uniforms: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Run one chain after the other, until there are enough centres.

    Parameters
    ----------
    centres : ndarray of shape (k0, d)
        Finished ones, at least one, in the compute dtype.
    proposals : Proposals
    uniforms : ndarray of shape (c, m), float64
    most : int
        How many new centres are wanted; those of further chains are left out.

    Returns
    -------
    centres : ndarray of shape (k0 + new, d)
        Those that were given, and one of every chain that did not end at a centre.
    chosen : ndarray of shape (new,), int64
        Which rows the new ones are.
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
