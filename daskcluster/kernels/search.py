"""The loops around the tile: row blocks are packed once and meet every panel while in cache.

A block's packed rows stay in L1 or L2, the panels stream past them. Where the panels together
outgrow L2, several blocks are packed at once and meet one group of panels after the other, their
winners waiting in scratch.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from daskcluster.kernels.jit import kernel
from daskcluster.kernels.panels import PORTABLE, Tile
from daskcluster.kernels.place_in_panel import place_in_panel
from daskcluster.kernels.portable import build_portable
from daskcluster.kernels.register_tile import score_tile
from daskcluster.kernels.row_block import aligned, first_row, pack_block, pack_few

FETCHING = 8
"""The first panels that a block meets fetch the rows to come, a share each."""


@cache
def search_kernel(tile: Tile, lanes: int, keep: int, *, late: bool = False) -> Any:
    """Build the search for a tile that keeps the `keep` best; `lanes` elements fill 128 bits.

    With `late`, panels compete, and the one best centre is looked for in the panel that has won.
    """
    if tile == PORTABLE:
        return build_portable(tile.height, tile.width, keep)
    return _build(tile.height, tile.vectors, tile.width, lanes, keep, late)


def _build(height: int, vectors: int, width: int, lanes: int, keep: int, late: bool) -> Any:
    block = vectors * width
    kept = 0 if late else keep

    def search(rows, panels, offset, labels, second, scores, blocks, group):  # type: ignore[no-untyped-def]
        # OUT: labels (n,), and with keep = 2 second (n,) and, unless empty, scores (n, 2).
        # `blocks` row blocks are packed at once and meet `group` panels at a time.
        n, d = rows.shape
        flat = rows.reshape(n * d)
        panel = panels.reshape(panels.size)
        packed = aligned(blocks * d * block, offset)
        best = aligned(blocks * keep * block, offset)
        index = aligned(blocks * keep * block, labels)
        fetching = min(panels.shape[0], FETCHING)
        ahead_step = -(-block // fetching)
        for start in range(0, n, blocks * block):
            here = min(blocks, -(-(n - start) // block))
            best[:] = -np.inf
            index[:] = -1
            for b in range(here):
                first = first_row(start + b * block, block, n)
                base = b * d * block
                if d < lanes or n < block:
                    pack_few(rows, first, offset, packed[base:], block)
                    continue
                pack_block(flat, first, d, offset, packed, base, vectors, width)
            for low in range(0, panels.shape[0], group):
                high = min(low + group, panels.shape[0])
                for b in range(here):
                    for p in range(low, high):
                        at = p * (d + 1) * height
                        number, to = np.int32(p * height), b * keep * block
                        if fetching > 1 and p < fetching:
                            soon = (start + (blocks + b) * block + p * ahead_step) * d
                            score_tile(
                                packed, b * d * block, panel, at, d, number, best, index, to,
                                height, vectors, width, kept, flat, soon, ahead_step,
                            )  # fmt: skip
                        else:
                            score_tile(
                                packed, b * d * block, panel, at, d, number, best, index, to,
                                height, vectors, width, kept, flat, 0, 0,
                            )  # fmt: skip
            for b in range(here):
                for r in range(b * block, (b + 1) * block if late else 0):
                    number = index[r]
                    if number >= 0:  # NaN rows have none
                        index[r] = number + place_in_panel(
                            packed, b * d * block + r - b * block, panel, number * (d + 1), d,
                            best, r, height, block,
                        )  # fmt: skip
                _unload(
                    start + b * block,
                    block,
                    b * keep * block,
                    keep,
                    best,
                    index,
                    labels,
                    second,
                    scores,
                )

    return kernel(search)


@kernel
def _unload(first, block, base, keep, best, index, labels, second, scores):  # type: ignore[no-untyped-def]
    """Copy the winners of a packed block to the rows' results."""
    n = labels.shape[0]
    first = first_row(first, block, n)
    count = min(block, n)
    for r in range(count):
        labels[first + r] = max(index[base + r], 0)  # NaN rows have no winner: centre 0
    if keep == 2:
        for r in range(count):
            second[first + r] = index[base + block + r]
    if scores.shape[0]:
        for rank in range(keep):
            for r in range(count):
                scores[first + r, rank] = best[base + rank * block + r]
