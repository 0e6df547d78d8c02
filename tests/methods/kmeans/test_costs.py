"""What passes cost by their counts: only the order of the ways counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daskcluster.kernels.jit import TILES
from daskcluster.methods.kmeans.chunkwise.kind import Counts, Shape, tile_slowness

SHAPE = Shape(d=32, k=100, row_bytes=128, group=10)


@pytest.mark.parametrize("tile", TILES)
def test_float64_takes_twice_as_long_in_every_tile(tile: str) -> None:
    single, double = (tile_slowness(np.dtype(kind), tile) for kind in ("f4", "f8"))
    assert double == 2 * single >= 2.0


def test_bounds_win_sooner_where_products_take_longer() -> None:
    slow = replace(SHAPE, slowness=tile_slowness(np.dtype("f8"), "portable"))
    counts = Counts(touched=0.5, distances=0.5 * (1 + SHAPE.k))
    assert SHAPE.one_bound(counts) / SHAPE.plain() > slow.one_bound(counts) / slow.plain()


def test_bounds_that_never_hold_lose_in_every_tile() -> None:
    for tile in TILES:
        shape = replace(SHAPE, slowness=tile_slowness(np.dtype("f4"), tile))
        assert shape.all_fail() > shape.plain()
