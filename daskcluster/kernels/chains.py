"""Markov chains that choose centres, a few at a time (AFK-MC2)."""

from __future__ import annotations

import numpy as np

from daskcluster.kernels.arrays import read_only
from daskcluster.kernels.jit import kernel
from daskcluster.kernels.row_ops import squared_distance


@kernel
def _run(rows, rates, uniforms, length, mind2, chosen):  # type: ignore[no-untyped-def]
    d = rows.shape[1]
    x = rows.reshape(rows.size)
    for chain in range(chosen.shape[0]):
        state, ratio = -1, 0.0
        for i in range(chain * length, (chain + 1) * length):
            nearest = mind2[i]
            for other in range(chain):
                if chosen[other] >= 0 and nearest > 0.0:
                    distance = squared_distance(x, i * d, x, chosen[other] * d, d)
                    nearest = min(nearest, distance)
            mind2[i] = nearest
            proposed = nearest / rates[i]
            if state < 0 or ratio == 0.0 or proposed > uniforms[i] * ratio:
                state, ratio = i, proposed
        chosen[chain] = state if ratio > 0.0 else -1


def run_chains(
    rows: np.ndarray,
    rates: np.ndarray,
    uniforms: np.ndarray,
    length: int,
    mind2: np.ndarray,
    chosen: np.ndarray,
) -> None:
    """Run chains one after the other: each one's last state is a centre for those that follow.

    A chain starts at its first proposal y, and moves on to a later one if
    ``pi(y) / q(y) > u * pi(state) / q(state)``, or if pi(state) is zero. pi is the squared distance
    to the nearest centre times the row weight, which q has as a factor, too.

    Parameters
    ----------
    rows : ndarray of shape (b * length, d), C-contiguous, float32 or float64
        Proposals, chain after chain.
    rates : ndarray of shape (b * length,), float64
        q / w of the proposals, > 0; a common factor does not matter.
    uniforms : ndarray of shape (b * length,), float64
        Of the decisions to move on; the first of each chain is not used.
    length : int
        Proposals of a chain.
    mind2 : ndarray of shape (b * length,), float64
        IN/OUT. Squared distances to the nearest centre.
    chosen : ndarray of shape (b,), int64
        OUT. The row that each chain ends at; -1 where that is a centre already.

    Examples
    --------
    >>> import numpy as np
    >>> rows, ones, chosen = np.array([[1.0], [9.0], [9.0], [1.0]]), np.ones(4), np.empty(2, int)
    >>> run_chains(rows, ones, 0.5 * ones, 2, rows[:, 0] ** 2, chosen)  # one centre, at zero
    >>> chosen
    array([1, 3])
    """
    _run(read_only(rows), read_only(rates), read_only(uniforms), int(length), mind2, chosen)
