"""Where rows in memory are cut for the threads of this process."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from daskcluster.data.array import ArrayDataset
from daskcluster.engine.local_pass import local_spans

_WIDTH = 1024
_ROW_BYTES = 4 * _WIDTH
_MEGABYTE = (1 << 20) // _ROW_BYTES


def _spans(megabytes: float, n_threads: int) -> list[tuple[int, int]]:
    # No page of it is touched: it takes no memory.
    rows = np.empty((int(megabytes * _MEGABYTE), _WIDTH), np.float32)
    return list(local_spans(ArrayDataset(rows), n_threads))


@pytest.mark.parametrize(
    ("megabytes", "n_threads", "n_units"),
    [
        (16, 2, 8),  # small: few units for each thread
        (64, 2, 8),
        (192, 2, 12),  # as many as there are small ones
        (512, 2, 16),  # large: more for each thread
        (16, 64, 64),  # never finer than is worth a unit
        (0.125, 2, 1),
    ],
)
def test_units_are_few_while_they_are_small(megabytes: float, n_threads: int, n_units: int) -> None:
    spans = _spans(megabytes, n_threads)
    assert len(spans) == n_units
    assert spans[0][0] == 0
    assert spans[-1][1] == megabytes * _MEGABYTE
    assert all(one[1] == other[0] for one, other in pairwise(spans))
