"""Comparison of rows with all clusters: exact EM, and densities and labels under a fitted mixture.

Cost: n k d, as nothing is truncated.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from daskcluster.kernels.jit import kernel
from daskcluster.kernels.row_block import aligned, first_row, lanes_of, pack_rows
from daskcluster.methods.mixture.kernels.candidates import (
    BY_FEATURE,
    WHITENED,
    WHITENED_ONCE,
)
from daskcluster.methods.mixture.kernels.mahalanobis import listed_mahalanobis, whiten_block
from daskcluster.methods.mixture.kernels.posteriors import keep_least, weigh
from daskcluster.methods.mixture.kernels.sums import add_block, add_scratch
from daskcluster.methods.mixture.kernels.tile import BLOCK, listed_distances, listed_tile_for


@cache
def all_kernel(dtype: np.dtype[Any], *, scaled: int) -> Any:
    """Build the kernel that compares rows with all clusters; for `scaled`, see `Costs`.

    ``visit((rows, weights), costs, (sharpness, least), every, (grids, moments), index, posteriors,
    bounds)``. With `every`, posteriors are over all clusters, `bounds` (n,) are exact log-sums, and rows
    are added to the sums if `moments` has totals. Otherwise, posteriors are over the ``q =
    index.shape[1]`` clusters of least cost. OUT: index (n, q) int32 and posteriors (n, q), or (n, 0), of
    these q clusters; bounds.
    """
    return _build(*listed_tile_for(dtype), lanes_of(dtype), int(scaled))


def _build(height: int, vectors: int, width: int, lanes: int, scaled: int) -> Any:  # noqa: C901
    # One long loop: numba counts references of arrays at every call of a function that has a loop.
    block, shape = BLOCK, (vectors, width, lanes)
    by_feature, whitened = int(scaled == BY_FEATURE), scaled == WHITENED
    once, (tall, many, narrow) = scaled == WHITENED_ONCE, listed_tile_for(np.dtype(np.float64))

    def visit(data, costs, soft, every, sums, index, posteriors, bounds):  # type: ignore[no-untyped-def]  # noqa: C901
        (rows, weights), (sharpness, least), moments = data, soft, sums[1]
        n, d = rows.shape
        k, q = costs.add.shape[0], index.shape[1]
        means, inverse, scale, add = costs.means, costs.inverse, costs.scale, costs.add
        x, whole = rows.reshape(n * d), -(-k // height) * height
        listed = np.minimum(np.arange(whole), k - 1).astype(np.int32)
        packed, near = aligned(d * block, rows), aligned(whole * block, rows)
        number, taken = np.empty(k * block, np.int32), np.empty(block, np.int64)
        best, held = aligned(q * block, rows), np.zeros(q * block, np.int32)
        n_terms = k if every else q
        gaps, white, origin = np.empty(block * d), costs.white, costs.white[:d]
        lines, far = aligned(d * block, white), aligned((whole if once else 0) * block, white)
        posterior, bound = np.empty(n_terms * block), np.empty(block)
        zero, infinity = np.zeros(d, rows.dtype), near.dtype.type(np.inf)
        learns, scratch = every and moments.totals.shape[0] > 0, add_scratch(block, k)
        for c in range(k):
            number[c * block : (c + 1) * block] = c
        for start in range(0, n, block):
            first, here = first_row(start, block, n), min(block, n - start)
            if not once:
                pack_rows(x, n, d, first, zero, packed, 0, shape)
            if whitened:
                listed_mahalanobis(
                    packed, means, inverse, listed, 0, k, d, gaps, near, vectors, width
                )
            elif once:
                for r in range(block):
                    taken[r] = min(first + r, n - 1)
                whiten_block(x, taken, d, origin, inverse, gaps, lines)
                listed_distances(
                    lines, white[d:], white, listed, 0, k, d, far, tall, many, narrow, 0
                )
                for at in range(k * block):
                    near[at] = far[at]
            else:
                listed_distances(
                    packed,
                    means,
                    inverse,
                    listed,
                    0,
                    k,
                    d,
                    near,
                    height,
                    vectors,
                    width,
                    by_feature,
                )
            best[:] = infinity
            held[:] = 0
            for j in range(k):
                if scale[j] != 1.0 or add[j] != 0.0:
                    for r in range(block):
                        near[j * block + r] = near[j * block + r] * scale[j] + add[j]
            keep_least(near, number, 0, k, best, held, q, vectors, width)
            if every:
                weigh(best, near, k, sharpness, least, posterior, bound, vectors, width)
            else:
                weigh(best, best, q, sharpness, least, posterior, bound, vectors, width)
            skip = start - first if n >= block else 0
            if learns:
                for r in range(here):
                    taken[r] = start + r
                if (
                    skip
                ):  # the last block overlaps the one before; its first rows are already counted
                    _drop_first(near, posterior, k, skip, block)
                add_block(
                    x, d, taken, here, weights, (number, near, posterior), costs, sums, scratch
                )
            for r in range(here):
                bounds[start + r] = bound[skip + r]
                for a in range(q):
                    index[start + r, a] = held[a * block + skip + r]
                for a in range(posteriors.shape[1]):
                    posteriors[start + r, a] = posterior[a * block + skip + r]

    return kernel(visit)


@kernel
def _drop_first(near, posterior, k, skip, block):  # type: ignore[no-untyped-def]
    """Move the lanes from `skip` on to the front."""
    for c in range(k):
        for r in range(skip, block):
            near[c * block + r - skip] = near[c * block + r]
            posterior[c * block + r - skip] = posterior[c * block + r]
