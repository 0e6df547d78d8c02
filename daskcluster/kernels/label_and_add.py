"""One visit of the rows: label a block, and add it to the sums while it is still in the cache.

Where the sums of the labels before are known, only rows that moved touch them: after the first iterations
that is a small part of the rows, and adding up a wide row takes a quarter of the time of labelling it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from daskcluster.kernels.jit import kernel
from daskcluster.kernels.panels import Tile
from daskcluster.kernels.place_in_panel import place_in_panel
from daskcluster.kernels.register_tile import score_tile
from daskcluster.kernels.row_block import aligned, first_row, pack_block, pack_few
from daskcluster.kernels.row_ops import add_on_grid, move_on_grid
from daskcluster.kernels.search import FETCHING


@cache
def fused_kernel(tile: Tile, lanes: int, *, late: bool = False) -> Any:
    """Build the loop for a tile; `lanes` elements fill 128 bits; `late` as in `search_kernel`."""
    return _build(tile.height, tile.vectors, tile.width, lanes, late)


def _build(height: int, vectors: int, width: int, lanes: int, late: bool) -> Any:
    block = vectors * width
    kept = 0 if late else 1

    def label_and_add(rows, panels, offset, labels, shift, sums, counts, moving):  # type: ignore[no-untyped-def]
        # OUT: labels (n,). IN/OUT: sums (k, d), counts (k,). With `moving` labels are IN/OUT, and only rows
        # whose label changes are moved, from the cluster that they were in.
        n, d = rows.shape
        flat, panel, s = rows.reshape(n * d), panels.reshape(panels.size), sums.reshape(sums.size)
        packed, best = aligned(d * block, offset), aligned(block, offset)
        index = aligned(block, labels)
        fetching = min(panels.shape[0], FETCHING)
        ahead_step = -(-block // fetching)
        for start in range(0, n, block):
            first = first_row(start, block, n)
            if d < lanes or n < block:
                pack_few(rows, first, offset, packed, block)
            else:
                pack_block(flat, first, d, offset, packed, 0, vectors, width)
            best[:] = -np.inf
            index[:] = 0
            for p in range(panels.shape[0]):
                at, number = p * (d + 1) * height, np.int32(p * height)
                if fetching > 1 and p < fetching:
                    soon = (start + block + p * ahead_step) * d
                    score_tile(
                        packed, 0, panel, at, d, number, best, index, 0,
                        height, vectors, width, kept, flat, soon, ahead_step,
                    )  # fmt: skip
                else:
                    score_tile(
                        packed, 0, panel, at, d, number, best, index, 0,
                        height, vectors, width, kept, flat, 0, 0,
                    )  # fmt: skip
            for r in range(start - first, min(block, n)):
                j, i = index[r], first + r
                if late and best[r] > -np.inf:  # NaN rows have no winner: centre 0
                    j += place_in_panel(
                        packed, r, panel, j * (d + 1), d, best, r, height, block
                    )  # fmt: skip
                old = labels[i]
                if moving and old == j:
                    continue
                labels[i] = j
                counts[j] += 1
                if moving:
                    counts[old] -= 1
                    move_on_grid(flat, i * d, shift, s, old * d, j * d, d)
                else:
                    add_on_grid(flat, i * d, shift, s, j * d, d)

    return kernel(label_and_add)
