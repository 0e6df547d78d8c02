"""What the tests of shuffles share: the permutation as it is defined."""

from __future__ import annotations

import numpy as np

from daskcluster.randomness import Key

SEED = 3


def order_of(n: int, seed: int = SEED) -> np.ndarray:
    """Return the source row of every output row, as the definition has it."""
    keys = Key(seed, "shuffle", 0).philox().random_raw(n)
    return np.lexsort((np.arange(n), keys))
