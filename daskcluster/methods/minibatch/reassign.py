"""Centres that see too few rows start again from random ones: scikit-learn's rule, our random numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from daskcluster.elementary import log1p
from daskcluster.methods.minibatch.chunkwise.batch import Batch, MovingCentres
from daskcluster.randomness import Key
from daskcluster.sparse_rows import dense_rows

_ROWS_A_CENTRE = 10
_MOST_OF_A_BATCH = 0.5


@dataclass
class Reassignment:
    """Sets centres with v_j < ratio * max v to rows of the current batch.

    Looked at in steps in which a cluster has seen nothing at all, and whenever 10 k more rows have been
    seen. At most half of a batch become centres; they are drawn without replacement in proportion to
    their weights. Each then counts as having seen as much as the least of the others, so that it is not
    drawn again at once.

    Parameters
    ----------
    ratio : float
        0 turns it off.
    seed : int
    least_rows : int
        Rows that must have been seen before the first look. Until batches from pools have been through all
        rows, a centre that saw none may be one whose rows are still to come.
    """

    ratio: float
    seed: int
    least_rows: int = 0
    _n_rows: int = 0
    _n_seen: int = 0

    def __call__(self, step: int, batch: Batch, state: MovingCentres) -> int:
        """Reassign centres after step number `step` if it is time; return how many."""
        if self.ratio <= 0.0:
            return 0
        self._n_rows += len(batch)
        self._n_seen += len(batch)
        if self._n_seen < self.least_rows:
            return 0
        seen = state.seen
        if self._n_rows < _ROWS_A_CENTRE * len(seen) and seen.min() > 0.0:
            return 0
        self._n_rows = 0
        low = np.flatnonzero(seen < self.ratio * seen.max())
        if len(low) == 0:
            return 0
        most = int(_MOST_OF_A_BATCH * len(batch))
        low = np.sort(low[np.argsort(seen[low], kind="stable")[:most]])
        drawn = draw_positions(batch, len(low), Key(self.seed, "reassign", step))
        low = low[: len(drawn)]
        kept = np.delete(seen, low)
        rows = replace(batch, listed=batch.listed[drawn]).ready(state.centres.dtype)
        state.put(low, dense_rows(rows.rows[rows.listed]), kept.min() if len(kept) else 0.0)
        return len(low)


def draw_positions(batch: Batch, m: int, key: Key) -> np.ndarray:
    """Return at most `m` distinct positions of a batch, in proportion to weights; ascending.

    The `m` smallest of exponential keys (Efraimidis and Spirakis, 2006). Rows without weight are never
    drawn.
    """
    keys = -log1p(-key.uniforms(0, len(batch)))
    if batch.weights is not None:
        weights = batch.listed_weights()
        with np.errstate(divide="ignore", invalid="ignore"):
            keys = np.where(weights > 0.0, keys / weights, np.inf)
    drawn = np.argsort(keys, kind="stable")[:m]
    return np.sort(drawn[np.isfinite(keys[drawn])])
