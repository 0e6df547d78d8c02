"""Rows and centres projected onto axes, for the search by bounds, and the errors in the worst case.

See `daskcluster.kernels.quantized_centres`. Coordinates are sums of products in any order: the errors cover
all orders, and labels are those of any axes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from daskcluster.kernels.candidates import SECOND_ORDER
from daskcluster.kernels.jit import kernel
from daskcluster.kernels.panels import panels_of
from daskcluster.kernels.register_tile import all_scores_tile
from daskcluster.kernels.row_block import aligned

SEGMENT = 64
"""Features whose products are summed in one chain when points are projected; more would round more."""

_BLOCK_BYTES = 1 << 20
"""Bytes of centres that are projected at once."""


class Slack(NamedTuple):
    """Worst-case errors of projections.

    Attributes
    ----------
    square : float
        Of the squared length that a projection leaves, over that of the row or centre.
    bound : float
        Of a bound, over (X + C)^2 / 2; see `daskcluster.kernels.candidates.Errors`.
    """

    square: float
    bound: float


@dataclass(frozen=True)
class Projection:
    """Axes, and the centres projected onto them.

    Attributes
    ----------
    axes : ndarray of shape (d, m)
        Nearly orthonormal columns, in the dtype of the centres.
    heads : ndarray of shape (k, m)
        Coordinates of the shifted centres on the axes, from `project_points`.
    squares : ndarray of shape (k,), float64
        Squared lengths of the shifted centres, see `squared_lengths`.
    """

    axes: np.ndarray
    heads: np.ndarray
    squares: np.ndarray

    def slack(self) -> Slack:
        """Return the errors of the axes.

        With u the unit of rounding, X = |x'| and C the largest |c'|:

        - the axes A are not quite orthonormal, by D = |A'A - I|, and the projection of a row or a centre
          errs by e = (segment + n_segments + 2) u |A|, as a share of its length. What is left of them is
          then not quite orthogonal to the axes, by (3 D + 2 e) X C in all;
        - the squared length of the rest errs by (D + 2 e + 4 (d + m) u64) X^2, and is raised by as much.

        Examples
        --------
        >>> axes = np.eye(768, 64, dtype=np.float32)
        >>> slack = Projection(axes, axes[:5], np.ones(5)).slack()
        >>> f"{slack.square:.0e} {slack.bound:.0e}"
        '8e-05 4e-04'
        """
        d, m = self.axes.shape
        unit, wide = float(np.finfo(self.axes.dtype).eps) / 2, self.axes.astype(np.float64)
        gaps = wide.T @ wide - np.eye(m)
        gram = math.sqrt(float(np.sum(gaps * gaps))) + m * d * 2.0**-52
        head = (SEGMENT + -(-d // SEGMENT) + 2) * unit * math.sqrt(m) * (1.0 + gram)
        square = SECOND_ORDER * (gram + 2.0 * head + 4 * (d + m) * 2.0**-53)
        return Slack(square, SECOND_ORDER * (3.0 * gram + 2.0 * head) + 4.0 * square)

    def rests(self, slack: float) -> np.ndarray:
        """Return the lengths that the projection leaves of the centres, never too small, (k,) float64.

        `slack` is that of squared lengths, from `slack`.
        """
        kept = np.square(self.heads, dtype=np.float64).sum(axis=1)
        found = np.maximum(self.squares - kept, 0.0) + slack * self.squares
        return np.asarray(np.sqrt(found))

    def pack(self, height: int) -> np.ndarray:
        """Return panels of the axes for each segment, (n_segments, n_panels, (SEGMENT + 1) * height)."""
        (d, m), kind = self.axes.shape, self.axes.dtype
        n_segments = -(-d // SEGMENT)
        packed = np.zeros((n_segments, -(-m // height), (SEGMENT + 1) * height), kind)
        for number in range(n_segments):
            part = self.axes[number * SEGMENT : (number + 1) * SEGMENT].T
            size = (part.shape[1] + 1) * height
            packed[number, :, :size] = panels_of(part, np.zeros(m, kind), height, 0.0)
        return packed


def shifted_blocks(points: np.ndarray, offset: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield runs of points less the offset, c' = fl(c - o), that stay in the cache, and where they are."""
    step = max(1, _BLOCK_BYTES // (points.shape[1] * points.itemsize))
    room = np.empty((min(step, len(points)), points.shape[1]), points.dtype)
    for first in range(0, len(points), step):
        part = slice(first, min(first + step, len(points)))
        yield part, np.subtract(points[part], offset, out=room[: part.stop - first])


@kernel
def squared_lengths(points, squares):  # type: ignore[no-untyped-def]
    """OUT: squares: |c'|^2 in the order of `daskcluster.kernels.panels.fill_panels`."""
    k, d = points.shape
    for j in range(k):
        total = 0.0
        for t in range(d):
            wide = np.float64(points[j, t])
            total += wide * wide
        squares[j] = total


def project_points(points: np.ndarray, axes: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """Return the coordinates of points (k, d), less an offset, on axes (d, m), summed as for rows."""
    found = np.empty((len(points), axes.shape[1]), axes.dtype)
    for where, block in shifted_blocks(points, offset):
        total = block[:, :SEGMENT] @ axes[:SEGMENT]
        for first in range(SEGMENT, len(axes), SEGMENT):
            part = slice(first, first + SEGMENT)
            total += block[:, part] @ axes[part]
        found[where] = total
    return found


@kernel
def project_block(packed, d, axes, m, heads, rests, slack, shape):  # type: ignore[no-untyped-def]
    """Project a packed block of rows; OUT: heads (m * block,) and rests (block,), never too small."""
    vectors, width, _, height, _ = shape
    block, (_, n_panels, size) = vectors * width, axes.shape
    flat, places = axes.reshape(axes.size), np.zeros(SEGMENT, np.int64)
    part, squares = aligned(n_panels * height * block, packed), np.zeros(block)
    heads[: m * block] = 0.0
    for s in range(axes.shape[0]):
        count = min(SEGMENT, d - s * SEGMENT)
        rows = packed[s * SEGMENT * block :]
        for p in range(n_panels):
            all_scores_tile(
                rows, flat, (s * n_panels + p) * size, count, part, p * height * block,
                height, vectors, width, packed, places, 0,
            )  # fmt: skip
        for i in range(m * block):
            heads[i] += part[i]
        for t in range(count):
            for r in range(block):
                value = np.float64(rows[t * block + r])
                squares[r] += value * value
    rests[:] = squares
    for t in range(m):
        for r in range(block):
            value = np.float64(heads[t * block + r])
            rests[r] -= value * value
    for r in range(block):
        rests[r] = math.sqrt(max(rests[r], 0.0) + slack * squares[r])
