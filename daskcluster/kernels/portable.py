"""The portable tile: a plain loop that runs on any CPU.

The inner loop runs over 256 rows at a time, so that sums, rows and winners stay in L1; four centres by four
features are unrolled. Each step is an explicit FMA, never a multiplication and an addition, so the bits are
those of the intrinsic tiles. If the compilation target has no FMA, each step is a call of the C library,
which also rounds once. That is 13 times slower on a CPU that does have FMA, and more on one that has not,
but labels are the same on every worker.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import intrinsic

from daskcluster.kernels import emit
from daskcluster.kernels.jit import kernel


def build_portable(height: int, width: int, keep: int) -> Any:
    """Build the search of `daskcluster.kernels.search` without intrinsics (height must be 4)."""

    def search(rows, panels, offset, labels, second, scores, blocks, group):  # type: ignore[no-untyped-def]
        n, d = rows.shape
        packed = np.empty((d, width), offset.dtype)
        sums = np.empty((4, width), offset.dtype)
        best = np.empty((2, width), offset.dtype)
        index = np.empty((2, width), np.int32)
        for start in range(0, n, width):
            count = min(width, n - start)
            _pack_rows(rows, start, count, offset, packed)
            best[:] = -np.inf
            index[0] = -1
            index[1] = -1
            for p in range(panels.shape[0]):
                _score(packed, panels[p], sums)
                for r in range(height):
                    _keep(sums[r], np.int32(p * height + r), keep, best, index)
            for r in range(count):
                labels[start + r] = max(index[0, r], 0)
                if keep == 2:
                    second[start + r] = index[1, r]
                if scores.shape[0]:
                    for rank in range(keep):
                        scores[start + r, rank] = best[rank, r]

    return kernel(search)


@kernel
def _pack_rows(rows, start, count, offset, packed):  # type: ignore[no-untyped-def]
    packed[:] = 0.0
    for r in range(count):
        for t in range(offset.shape[0]):
            packed[t, r] = rows[start + r, t] - offset[t]


@intrinsic
def fma(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` of three floats of one type, rounded once."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return emit.fma(builder, *args)

    return a(a, a, a), codegen


@kernel
def _score(packed, panel, sums):  # type: ignore[no-untyped-def]
    d, width = packed.shape
    for r in range(4):
        for i in range(width):
            sums[r, i] = panel[r]
    whole = d - d % 4
    for t in range(0, whole, 4):
        for r in range(4):
            at = 4 * (t + 1) + r
            c0, c1, c2, c3 = panel[at], panel[at + 4], panel[at + 8], panel[at + 12]
            for i in range(width):
                s = fma(packed[t, i], c0, sums[r, i])
                s = fma(packed[t + 1, i], c1, s)
                s = fma(packed[t + 2, i], c2, s)
                sums[r, i] = fma(packed[t + 3, i], c3, s)
    for t in range(whole, d):
        for r in range(4):
            c0 = panel[4 * (t + 1) + r]
            for i in range(width):
                sums[r, i] = fma(packed[t, i], c0, sums[r, i])


@kernel
def _keep(score, number, keep, best, index):  # type: ignore[no-untyped-def]
    for i in range(score.shape[0]):
        s = score[i]
        if s > best[0, i]:
            best[1, i] = best[0, i]
            index[1, i] = index[0, i]
            best[0, i] = s
            index[0, i] = number
        elif keep == 2 and s > best[1, i]:
            best[1, i] = s
            index[1, i] = number
