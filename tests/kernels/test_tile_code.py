"""What this machine's compiler makes of a tile: read, not timed."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numba import njit

from daskcluster.kernels.jit import tile_name
from daskcluster.kernels.panels import PORTABLE, choose_tile
from daskcluster.kernels.register_tile import score_tile
from daskcluster.kernels.row_block import aligned

DTYPE = np.dtype(np.float32)
TILE = choose_tile(13, DTYPE, tile_name())
HEIGHT, VECTORS, WIDTH = TILE.height, TILE.vectors, TILE.width


@njit(cache=False)
def call_tile(block, panel, d, best, index):  # type: ignore[no-untyped-def]
    for p in range(panel.shape[0] // (HEIGHT * (d + 1))):
        score_tile(
            block, 0, panel, p * HEIGHT * (d + 1), d, np.int32(p * HEIGHT), best, index, 0,
            HEIGHT, VECTORS, WIDTH, 1, block, 0, 0,
        )  # fmt: skip


def test_sums_of_a_tile_stay_in_registers() -> None:
    if tile_name() == PORTABLE.name:
        pytest.skip("this tile has no registers of its own")
    d = 5
    numbers, places = np.zeros(1, DTYPE), np.zeros(1, np.int32)
    block, best = aligned(d * TILE.rows, numbers), aligned(TILE.rows, numbers)
    panel, index = np.zeros(2 * (d + 1) * HEIGHT, DTYPE), aligned(TILE.rows, places)
    call_tile(block, panel, d, best, index)
    (text,) = call_tile.inspect_asm().values()
    blocks: list[list[str]] = [[]]
    for line in text.splitlines():
        if re.match(r"\s+[a-z]", line):
            blocks[-1].append(line.strip())
        if re.match(r"\S+:|\s+(j|b[.\s])", line):
            blocks.append([])
    multiplied = re.compile(r"v?fmadd|fmla")
    loop = max(blocks, key=lambda lines: sum(bool(multiplied.match(line)) for line in lines))
    assert sum(bool(multiplied.match(line)) for line in loop) == HEIGHT * VECTORS
    assert [line for line in loop if re.search(r"\b(rsp|rbp|sp)\b", line)] == []
    # Loads, one for each centre and vector of rows, and the steps of the loop: no copies.
    assert len(loop) <= HEIGHT * VECTORS + HEIGHT + VECTORS + 6
