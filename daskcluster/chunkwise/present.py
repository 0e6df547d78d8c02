"""Number of rows that have a value, feature by feature."""

from __future__ import annotations

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.statistics import Reduction


def _zero(n_features: int) -> np.ndarray:
    return np.zeros(n_features, np.int64)


def _count(chunk: Chunk, n_features: int, counts: np.ndarray) -> None:
    counts += np.count_nonzero(~np.isnan(np.asarray(chunk.rows)), axis=0)


def _combine(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    first += second
    return first


PRESENT = Reduction(name="present values", zero=_zero, chunk=_count, combine=_combine)
"""Number of rows that have each feature, int64 (d,); its parameter is the number of features."""
