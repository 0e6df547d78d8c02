"""Cells and blocks: what is known of each row, and rows of a cell, quantized about its centre."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.chunkwise.data_statistics import refuse_bad
from daskcluster.methods.duplicates.kernels import (
    hash_rows,
    most_level,
    padded,
    quantize,
    whole_lines,
)

DESCRIBED = np.dtype([("cell", np.int32), ("distance", np.float64), ("hash", np.uint64)])
"""The description of a row by which rows are sorted: its cell, the distance to its centre, and a hash."""

ROUNDING = 1.0 + 1e-6
"""Covers the rounding of lengths and of bounds that are computed from them in float64."""
_SLICE_ROWS = 512
_LEAST_STEP = 2.0**-20
_CLIPPED = 128
"""One row of so many may have larger coordinates than the largest level."""


class Rule(NamedTuple):
    """The rule by which two rows are near-duplicates.

    Attributes
    ----------
    cosine : bool
    threshold : float
        Least cosine similarity, or largest Euclidean distance.
    """

    cosine: bool
    threshold: float

    @property
    def radius(self) -> float:
        """Largest distance of such rows as they are clustered: for cosine, of rows of length one."""
        if not self.cosine:
            return self.threshold * ROUNDING
        # Rows of length one are rounded to float32.
        return math.sqrt(max(0.0, 2.0 - 2.0 * self.threshold)) * ROUNDING + 2e-6


# -- the pass over all rows ---------------------------------------------------------------------------


def describe_rows(chunk: Chunk, centres: PreparedCentres) -> np.ndarray:
    """Return the cell of every row, the distance to its centre, and a hash of its values, (n,)."""
    found = np.empty(chunk.n_rows, DESCRIBED)
    for piece in chunk.pieces():
        values = np.ascontiguousarray(piece.rows, piece.rows.dtype.newbyteorder("="))
        hashes = np.empty(piece.n_rows, np.uint64)
        hash_rows(values, hashes)
        found["hash"][piece.start - chunk.start : piece.stop - chunk.start] = hashes
    for block in chunk.cache_blocks(least=centres.array.dtype):
        refuse_bad(block)
        labels, squares = np.empty(block.n_rows, np.int32), np.empty(block.n_rows)
        centres.nearest(block.rows, labels)
        centres.sqdist_to_assigned(block.rows, labels, squares)
        out = found[block.start - chunk.start : block.stop - chunk.start]
        out["cell"], out["distance"] = labels, np.sqrt(squares)
    return found


# -- blocks of the rows of a cell ---------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """Rows of one cell, quantized about its centre, and which of them reach which cells.

    Attributes
    ----------
    heads : ndarray of shape (n, 4 p), int8
        Coordinates on axes.
    levels : ndarray of shape (n, 4 q), int8
        All features.
    described : ndarray of shape (9, n), float64
        For heads, then for all features: lengths, lengths after quantizing, and lengths of what it takes;
        half of the squared length that the axes leave; sums of the levels of heads, and of `levels` in
        whole lines.
    starts : ndarray of shape (k + 1,), int64
        Where the rows that reach each cell begin in `members`. All rows reach their own cell.
    members : ndarray of shape (m,), int32
        By the distance to the bisector with the cell; those of the own cell by that to its centre.
    squares : ndarray of shape (m,), float32 or float64
        Squared distances of these rows to the centre of the cell.
    numbers : ndarray of shape (5,), float64
        The steps of heads and of levels, what a squared distance may be off by, and the least and the
        largest distance to the own centre.
    """

    heads: np.ndarray
    levels: np.ndarray
    described: np.ndarray
    starts: np.ndarray
    members: np.ndarray
    squares: np.ndarray
    numbers: np.ndarray

    @property
    def n_rows(self) -> int:
        return len(self.levels)

    @property
    def reach(self) -> np.ndarray:
        """Whether any of the rows reaches each cell, bool (k,)."""
        return np.diff(self.starts) > 0

    def reaching(self, cell: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows that reach a cell, and their squared distances to its centre."""
        first, last = self.starts[cell], self.starts[cell + 1]
        return self.members[first:last], self.squares[first:last]


@dataclass(frozen=True)
class Cells:
    """The centres of all cells, about their mean, in the compute dtype.

    Attributes
    ----------
    centres, about : ndarray of shape (k, d)
    axes : ndarray of shape (d, m)
        Orthonormal; none if m is 0.
    offset : ndarray of shape (d,)
    squares : ndarray of shape (k,), float64
        Squared lengths of `about`.
    """

    centres: np.ndarray
    about: np.ndarray
    axes: np.ndarray
    offset: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, centres: np.ndarray, axes: np.ndarray) -> Cells:
        """Return the cells of centres (k, d), with axes (d, m)."""
        offset = centres.mean(axis=0, dtype=np.float64).astype(centres.dtype)
        about = centres - offset
        return cls(centres, about, axes, offset, np.square(about, dtype=np.float64).sum(axis=1))

    def between(self, cell: int) -> np.ndarray:
        """Return the distances between the centre of a cell and all others, float64 (k,)."""
        gaps = self.centres.astype(np.float64) - self.centres[cell]
        return np.asarray(np.sqrt((gaps * gaps).sum(axis=1)))


def computed_rows(rows: np.ndarray, *, normalize: bool) -> np.ndarray:
    """Return rows as kernels take them: float32 or float64, of length one if `normalize`."""
    return np.ascontiguousarray(Chunk(rows, normalize=normalize).computed())


def computed_list(rows: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the listed rows as kernels take them, not scaled, each once, and where each entry is."""
    listed, at = np.unique(which, return_inverse=True)
    return computed_rows(rows[listed], normalize=False), at


def prepare_block(rows: np.ndarray, cell: int, cells: Cells, rule: Rule) -> Block:
    """Quantize the rows (n, d) of a cell, and find the cells that they reach.

    Notes
    -----
    Cost: k products a row. Memory: 12 bytes for each pair of a row and a cell that it reaches, and the
    squared distances of 512 rows to all centres.
    """
    X = computed_rows(rows, normalize=rule.cosine)
    d, unit = X.shape[1], float(np.finfo(X.dtype).eps)
    far = X - cells.offset
    lengths = np.square(far, dtype=np.float64).sum(axis=1)
    largest = math.sqrt(float(lengths.max())) + math.sqrt(float(cells.squares.max()))
    # Squared distances are kept in float32.
    error = ((4 * d + 64) * unit + 2.0**-23) * largest * largest
    limits = 2.0 * cells.between(cell) * rule.radius * ROUNDING + 2.0 * error
    # |x - b|^2 - |x - a|^2 <= limit, solved for the product of x and b: one comparison for each centre.
    least = (0.5 * (cells.squares - cells.squares[cell] - limits)).astype(X.dtype)
    parts = []
    for first in range(0, len(X), _SLICE_ROWS):
        part = slice(first, first + _SLICE_ROWS)
        products = far[part] @ cells.about.T
        near = products - products[:, [cell]] >= least
        near[:, cell] = True
        row, column = np.nonzero(near)
        squares = lengths[part][row] + cells.squares[column] - 2.0 * products[row, column]
        parts.append((row + first, column, squares))
    about = X - cells.centres[cell]
    heads = about if not cells.axes.shape[1] else about @ cells.axes
    head_levels, head_step, head_lengths = _quantized(heads, _LEAST_STEP * largest)
    levels, step, own_lengths = _quantized(about, _LEAST_STEP * largest)
    # Projections and the axes themselves are rounded, which `error` covers.
    left = 0.5 * np.maximum(0.0, own_lengths[0] ** 2 - head_lengths[0] ** 2 / ROUNDING**4)
    whole = whole_lines(levels.shape[1])
    sums = [each.sum(axis=1, dtype=np.float64)[None] for each in (head_levels, levels[:, :whole])]
    described = np.concatenate([head_lengths, own_lengths, left[None], *sums])
    lengths = own_lengths[0]
    members, column, squares = (np.concatenate(each) for each in zip(*parts, strict=True))
    squares = squares.astype(X.dtype)
    starts = np.zeros(len(cells.centres) + 1, np.int64)
    np.cumsum(np.bincount(column, minlength=len(cells.centres)), out=starts[1:])
    # 16 bits are sorted in linear time.
    small = column.astype(np.min_scalar_type(len(cells.centres)))
    order = np.argsort(small, kind="stable")
    members, squares = members[order].astype(np.int32), squares[order]
    keys = squares - np.square(lengths)[members]
    own = slice(starts[cell], starts[cell + 1])
    keys[own] = lengths[members[own]]
    spans = pairwise(starts.tolist())
    order = np.concatenate([np.argsort(keys[a:b], kind="stable") + a for a, b in spans])
    numbers = head_step, step, error, float(lengths.min()) / ROUNDING**2, float(lengths.max())
    return Block(
        head_levels, levels, described, starts, members[order], squares[order], np.array(numbers)
    )  # fmt: skip


def least_gaps(block: Block, cell: int, cells: Cells) -> np.ndarray:
    """Return lower bounds of the distances of all rows of a block to the bisectors with all cells, (k,).

    Infinite for cells that no row reaches, and minus infinity for the own cell and those with the same
    centre.
    """
    found = np.full(len(block.starts) - 1, np.inf)
    reached = np.flatnonzero(np.diff(block.starts))
    lengths = block.described[3]
    excess = block.squares - (lengths * lengths)[block.members]
    slack = 2.0 * block.numbers[2] + 1e-5 * block.numbers[4] ** 2
    least = np.minimum.reduceat(excess, block.starts[reached]) - slack
    between = cells.between(cell)[reached]
    apart = between > 0.0
    gaps = np.full(len(reached), -np.inf)
    gaps[apart] = least[apart] / (2.0 * between[apart])
    found[reached] = gaps
    found[cell] = -np.inf
    return found


def _quantized(about: np.ndarray, least_step: float) -> tuple[np.ndarray, float, np.ndarray]:
    """Return levels, their step, and lengths: of rows, of quantized rows, of what quantizing takes."""
    furthest, most = np.abs(about).max(axis=1), most_level()
    # Few rows are clipped, which their losses tell.
    at = len(furthest) - 1 - len(furthest) // _CLIPPED
    step = max(float(np.partition(furthest, at)[at]) / most, least_step) or 1.0
    levels = np.zeros((len(about), padded(about.shape[1])), np.int8)
    lengths = np.empty((3, len(about)))
    quantize(about, step, float(most), levels, lengths)
    lengths *= ROUNDING
    return levels, step, lengths


_LEAST_FEATURES, _STEP = 64, 16
_MOST_SHARE = 0.7
"""With more of the features, the first comparison would not repay the second."""
MOST_ROWS = 8192
_PANEL, _CANDIDATE = 4000.0, 8000.0
"""Products in the time of a lane of a panel that is looked through, and of a pair whose features are all
compared."""


def choose_axes(rows: np.ndarray, centres: np.ndarray, rule: Rule) -> np.ndarray:
    """Return orthonormal axes (d, m), or none (m = 0) if comparing all features is as cheap.

    The axes are the principal ones of a sample of rows (n, d) about the centres of their cells (k, d).
    Pairs do not depend on them.

    Notes
    -----
    Cost: n d^2 products of at most 8,192 rows, and eigenvectors of a matrix of d features. Memory: these
    rows once more, and four matrices of d x d in float64.
    """
    rows = rows[:: max(1, len(rows) // MOST_ROWS)]
    none = np.empty((rows.shape[1], 0), rows.dtype)
    if rows.shape[1] < _LEAST_FEATURES or len(rows) < _LEAST_FEATURES:
        return none
    labels = np.empty(len(rows), np.int32)
    PreparedCentres(centres).nearest(np.ascontiguousarray(rows), labels)
    # By cell, so that neighbours are pairs of one cell.
    order = np.argsort(labels, kind="stable")
    labels, about = labels[order], rows[order]
    about -= centres[labels]
    moments = np.zeros((rows.shape[1], rows.shape[1]))
    for part in _slices(about):
        moments += part.T @ part
    axes = np.linalg.eigh(moments)[1][:, ::-1]  # noqa: TID251 (no result comes from axes)
    pairs = np.flatnonzero(labels[1:] == labels[:-1])
    if not len(pairs):
        return none
    length = math.sqrt(float(np.trace(moments)) / len(about))
    furthest = np.concatenate([np.abs(part @ axes).max(axis=1) for part in _slices(about)])
    loss = float(furthest.mean()) / most_level() / math.sqrt(12.0)
    sizes = np.arange(_STEP, rows.shape[1] + 1, _STEP)
    limits = rule.radius**2 + 4.0 * loss * np.sqrt(sizes) * length
    left = np.zeros(len(sizes))
    for first in range(0, len(pairs), _SLICE_ROWS):
        these = pairs[first : first + _SLICE_ROWS]
        gaps = (about[these + 1] - about[these]).astype(np.float64) @ axes
        left += (np.cumsum(np.square(gaps), axis=1)[:, sizes - 1] <= limits).sum(axis=0)
    left /= len(pairs)
    costs = sizes + _PANEL * np.minimum(1.0, 14.0 * left) + _CANDIDATE * left
    best = int(np.argmin(costs))
    if costs[best] > _MOST_SHARE * rows.shape[1]:
        return none
    return np.ascontiguousarray(axes[:, : sizes[best]].astype(rows.dtype))


def _slices(rows: np.ndarray) -> Iterator[np.ndarray]:
    for first in range(0, len(rows), _SLICE_ROWS):
        yield rows[first : first + _SLICE_ROWS].astype(np.float64)
