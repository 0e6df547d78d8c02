"""Candidates of a sample with replacement, found in one pass with one random number per row.

Row i is drawn at rate r_i = w_i (a + b |x_i - p|^2). Give every row a Poisson process of that rate. The
first m arrivals of all rows together are m independent draws in proportion to the rates, and except with
negligible probability they occur before a time T known in advance. A row is drawn if its first arrival
-log(1 - u) / r is before T, where u is the row's random number. Since -log(1 - u) >= u, no row with u >= r
T is drawn. So a pass checks only the first 16 bits of u, the rank of the row. This leaves about m rows (and
one in 65,536 of all), whatever the chunks and workers. The driver computes the other bits and all
logarithms afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.chunkwise.exact_sum import Scale
from daskcluster.chunkwise.statistics import ExactScalar, Reduction
from daskcluster.kernels.sum_grid import SumGrid
from daskcluster.randomness import Key
from daskcluster.sparse_rows import Rows, join_rows, take_rows

RANKS = 1 << 16
"""Number of ranks: u is in [rank, rank + 1) / RANKS."""
_RANKS_PER_WORD = 4


@dataclass(frozen=True)
class DrawParams:
    """The rates of the rows, and the time limit T.

    Attributes
    ----------
    point : ndarray of shape (d,)
        p, in the compute dtype.
    offset, slope : float
        a and b.
    horizon : float
        T.
    key : Key
        Stream of the rows' random numbers.
    scale : Scale
    """

    point: np.ndarray
    offset: float
    slope: float
    horizon: float
    key: Key
    scale: Scale


@dataclass
class Candidates:
    """Rows that may be drawn, and the exact sum of w |x - p|^2 over all rows.

    Attributes
    ----------
    spread : ExactScalar
    parts : list of (indices, ranks, sqdist, weights, rows)
        Unordered parts; `joined` sorts them by row.
    """

    spread: ExactScalar = field(default_factory=ExactScalar)
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Rows]] = field(
        default_factory=list
    )

    def combine(self, other: Candidates) -> Candidates:
        self.spread.combine(other.spread)
        self.parts.extend(other.parts)
        return self

    def joined(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Rows]:
        """Return indices (c,) ascending, ranks, sqdist, weights, and the rows (c, d) as stored."""
        parts = sorted(self.parts, key=lambda part: int(part[0][0]))
        indices, ranks, sqdist, weights = (
            np.concatenate([part[field] for part in parts]) for field in range(4)
        )
        rows = join_rows([part[4] for part in parts])
        if (np.diff(indices) > 0).all():
            return indices, ranks, sqdist, weights, rows
        # Merged parts may interleave, so sort single rows.
        order = np.argsort(indices, kind="stable")
        return indices[order], ranks[order], sqdist[order], weights[order], rows[order]


@dataclass(frozen=True)
class _Prepared:
    params: DrawParams
    point: PreparedCentres
    grid: SumGrid


def _prepare(params: DrawParams) -> _Prepared:
    point = np.ascontiguousarray(params.point)[None, :]
    return _Prepared(params, PreparedCentres(point), params.scale.distances(point))


def _zero(prepared: _Prepared) -> Candidates:
    return Candidates()


def _draw_chunk(chunk: Chunk, prepared: _Prepared, into: Candidates) -> None:
    params = prepared.params
    limits = RANKS * params.horizon * params.offset, RANKS * params.horizon * params.slope
    ranks = row_ranks(params.key, chunk.start, chunk.stop)
    for block in chunk.blocks():
        first = block.start - chunk.start
        own = ranks[first : first + block.n_rows]
        found, sqdist, high, low = prepared.point.filter_candidates(
            block.rows, block.weights, own, limits, prepared.grid
        )
        into.spread.add(high, low)
        if len(found):
            weights = np.ones(len(found)) if block.weights is None else block.weights[found]
            # Keep rows as stored, neither converted nor scaled.
            rows = take_rows(chunk.rows, first + found)
            into.parts.append((block.start + found, own[found], sqdist, weights, rows))


def row_ranks(key: Key, start: int, stop: int) -> np.ndarray:
    """Return the ranks of rows `start` to `stop`, uint16; each word of the generator gives four.

    Examples
    --------
    >>> key = Key(seed=0, stage="example")
    >>> bool((row_ranks(key, 0, 50)[13:37] == row_ranks(key, 13, 37)).all())
    True
    """
    first, last = start // _RANKS_PER_WORD, -(-stop // _RANKS_PER_WORD)
    ranks = key.words(first, last).astype("<u8", copy=False).view("<u2")
    return ranks[start - first * _RANKS_PER_WORD :][: stop - start].astype(np.uint16, copy=False)


DRAWS = Reduction(
    name="draws",
    prepare=_prepare,
    zero=_zero,
    chunk=_draw_chunk,
    combine=Candidates.combine,
)
"""`DrawParams` -> `Candidates`."""
