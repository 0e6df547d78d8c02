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
from daskcluster.kernels.row_block import aligned, first_row, pack_rows
from daskcluster.kernels.row_ops import add_on_grid, move_on_grid
from daskcluster.kernels.search import FETCHING, Shape, place_winners, score_block, tile_shape


@cache
def fused_kernel(tile: Tile, lanes: int, *, late: bool = False) -> Any:
    """Build the loop for a tile; `lanes` elements fill 128 bits; `late` as in `search_kernel`."""
    return _build(tile_shape(tile, lanes, 0 if late else 1))


def _build(shape: Shape) -> Any:
    vectors, width, _, _, keep = shape
    block, late = vectors * width, keep == 0

    def label_and_add(rows, panels, offset, labels, shift, sums, counts, moving):  # type: ignore[no-untyped-def]
        # OUT: labels (n,). IN/OUT: sums (k, d), counts (k,). With `moving` labels are IN/OUT, and only rows
        # whose label changes are moved, from the cluster that they were in.
        n, d = rows.shape
        flat, panel, s = rows.reshape(n * d), panels.reshape(panels.size), sums.reshape(sums.size)
        packed, best = aligned(d * block, offset), aligned(block, offset)
        index = aligned(block, labels)
        fetching = min(panels.shape[0], FETCHING)
        share, part = -(-block // fetching), (0, panels.shape[0])
        for start in range(0, n, block):
            first = first_row(start, block, n)
            pack_rows(flat, n, d, first, offset, packed, 0, shape)
            best[:] = -np.inf
            index[:] = 0  # NaN rows have no winner: centre 0
            ahead = (start + block) * d, share, fetching
            score_block(packed, 0, panel, part, d, best, index, flat, ahead, shape)
            if late:
                place_winners(packed, 0, panel, d, best, index, shape)
            for r in range(start - first, min(block, n)):
                j, i = index[r], first + r
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
