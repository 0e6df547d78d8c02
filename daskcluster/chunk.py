"""A chunk: contiguous rows in memory, their weights, and their position in the dataset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from daskcluster.sparse_rows import Rows, SparseRows, join_rows, owned_rows

BLOCK_BYTES = 1 << 20
"""Rows that must be converted are converted in blocks of about this many bytes (they stay in L2)."""

CACHE_BYTES = 1 << 20
"""Several kernels in a row see the same block of about this many bytes while it is in the L2 cache."""
_LEAST_BLOCK_ROWS = 256

_EXACT_IN_FLOAT32 = frozenset("float32 float16 bfloat16 int8 uint8 int16 uint16 bool".split())

_NO_HALF = 2.0**16
"""Infinity and NaN of float16 have the exponent of this number, which float16 does not reach."""


@cache
def compute_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the floating dtype in which rows of `dtype` are computed.

    Types whose every value is exact in float32 are computed in float32, all others in float64.
    """
    name = np.dtype(dtype).name
    return np.dtype(np.float32 if name in _EXACT_IN_FLOAT32 else np.float64)


def row_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the dtype in which rows of `dtype` are stored in files: their own if all programs have it.

    Examples
    --------
    >>> from daskcluster.chunk import row_dtype
    >>> row_dtype(">f2"), row_dtype("int16")
    (dtype('float16'), dtype('int16'))
    """
    own = np.dtype(dtype).newbyteorder("=")
    return own if own.kind in "biuf" else compute_dtype(dtype)


def for_rows(centres: np.ndarray, dtype: Any) -> np.ndarray:
    """Return fitted centres as rows of `dtype` meet them: never rounded, the rows are widened instead.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster.chunk import for_rows
    >>> for_rows(np.ones((2, 3)), "float32").dtype, for_rows(np.ones((2, 3), "f4"), "int64").dtype
    (dtype('float64'), dtype('float64'))
    """
    return np.ascontiguousarray(centres, np.result_type(compute_dtype(dtype), centres.dtype))


@dataclass(frozen=True)
class Chunk:
    """Contiguous rows of a dataset, in memory.

    Attributes
    ----------
    rows : ndarray of shape (n, d), or SparseRows
        In the dtype of the source; `blocks` yields them ready for the kernels. Which kernel takes which
        kind of rows is known to `daskcluster.chunkwise.centres` and `daskcluster.chunkwise.centres`.
    start : int
        Global index of the first row.
    weights : ndarray of shape (n,), float64, or None
        Row weights; None stands for ones.
    normalize : bool
        `blocks` scale every row to Euclidean length one (cosine metric); a zero row stays zero.
    lengths : ndarray of shape (n,), float64, or None
        The lengths of rows that are scaled in pass after pass; `blocks` fill in those that are 0.
    """

    rows: Any
    start: int = 0
    weights: np.ndarray | None = None
    normalize: bool = False
    lengths: np.ndarray | None = None

    @property
    def n_rows(self) -> int:
        return int(self.rows.shape[0])

    @property
    def masses(self) -> np.ndarray:
        """The weights of the rows, float64 (n,): one each where they have none."""
        return np.ones(self.n_rows) if self.weights is None else self.weights

    @property
    def stop(self) -> int:
        return self.start + self.n_rows

    def place_in(self, whole: Chunk) -> slice:
        """Return the positions of these rows in a chunk that contains them."""
        return slice(self.start - whole.start, self.stop - whole.start)

    def slice(self, first: int, last: int) -> Chunk:
        """Return rows `first` to `last` of this chunk, without a copy."""
        if first == 0 and last >= self.n_rows:
            return self
        weights = None if self.weights is None else self.weights[first:last]
        lengths = None if self.lengths is None else self.lengths[first:last]
        return Chunk(self.rows[first:last], self.start + first, weights, self.normalize, lengths)

    def choose(self, places: np.ndarray) -> Chunk:
        """Return a copy of the rows at some places, without weights."""
        lengths = None if self.lengths is None else self.lengths[places]
        return Chunk(self.rows[places], 0, None, self.normalize, lengths)

    def owned(self) -> Chunk:
        """Return the chunk with rows that keep no larger buffer alive than their own."""
        rows = owned_rows(self.rows)
        return self if rows is self.rows else replace(self, rows=rows)

    def blocks(self, *, least: Any = np.float32) -> Iterator[Chunk]:
        """Yield the chunk as C-contiguous float32 or float64 rows.

        The chunk itself when nothing has to change; otherwise converted copies of about
        ``BLOCK_BYTES``, so that an 8-bit chunk is never blown up as a whole. CSR rows stay CSR, come in
        blocks of that size in any case, and have int32 columns.

        Parameters
        ----------
        least : dtype
            float64 widens float32 rows, as centres in float64 want it: rounded, they would be others.
        """
        dtype = np.result_type(compute_dtype(self.rows.dtype), least)
        if isinstance(self.rows, SparseRows):
            for first, last in self.rows.cuts(BLOCK_BYTES):
                part = self.rows[first:last].astype(dtype)
                yield self._block(first, last, part.normalized() if self.normalize else part)
            return
        if not self.normalize and self.rows.dtype == dtype and self.rows.flags.c_contiguous:
            yield self
            return
        if self.normalize:
            from daskcluster.kernels.data_statistics import scaled_to_unit_length
        step = max(1, BLOCK_BYTES // max(1, dtype.itemsize * self.rows.shape[1]))
        for first in range(0, self.n_rows, step):
            piece = self.slice(first, first + step)
            rows = widened(piece.rows, dtype)
            if self.normalize:
                rows = scaled_to_unit_length(rows, piece.lengths)
            yield replace(piece, rows=rows, normalize=False, lengths=None)

    def _block(self, first: int, last: int, rows: Rows) -> Chunk:
        return replace(self.slice(first, last), rows=rows, normalize=False)

    def computed(self) -> Rows:
        """Return the rows as `blocks` yields them, in one piece."""
        return join_rows([block.rows for block in self.blocks()])

    def split(self, n_rows: int, n_bytes: int) -> Iterator[Chunk]:
        """Yield the chunk as it is, in parts of `n_rows` dense rows, or of about `n_bytes` of CSR rows."""
        cuts: Iterable[tuple[int, int]] = (
            (at, at + n_rows) for at in range(0, self.n_rows, n_rows)
        )
        if isinstance(self.rows, SparseRows):
            cuts = self.rows.cuts(n_bytes)
        for first, last in cuts:
            yield self.slice(first, last)

    def pieces(self) -> Iterator[Chunk]:
        """Yield the chunk as it is, cut into pieces that stay in the cache."""
        row_bytes = max(1, self.rows.shape[1] * self.rows.dtype.itemsize)
        step = max(_LEAST_BLOCK_ROWS, CACHE_BYTES // row_bytes // 32 * 32)
        return self.split(step, CACHE_BYTES)

    def cache_blocks(self, *, least: Any = np.float32) -> Iterator[Chunk]:
        """Yield `blocks` cut further, so that rows stay in the cache from one kernel to the next."""
        for block in self.blocks(least=least):
            if isinstance(block.rows, SparseRows):
                yield block
                continue
            step = max(_LEAST_BLOCK_ROWS, CACHE_BYTES // max(1, block.rows.strides[0]) // 32 * 32)
            yield from block.split(step, CACHE_BYTES)


def widened(rows: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Return rows as a C-contiguous array of float32 or float64, without a change of any value.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster.chunk import widened
    >>> widened(np.array([[0.1, -np.inf]], np.float16), np.dtype(np.float32))
    array([[0.09997559,       -inf]], dtype=float32)
    """
    if rows.dtype == np.float16 and rows.size:
        # The bits are moved to their places in float32, several times as fast as numpy's conversion.
        bits = np.ascontiguousarray(rows.view(np.int16), np.int32)
        bits <<= 13
        bits &= -0x70002000  # the sign, and 15 bits of exponent and fraction
        found = bits.view(np.float32)
        found *= np.float32(2.0**112)  # the biases of exponents differ by 112
        if found.min() > -_NO_HALF and found.max() < _NO_HALF:
            return np.ascontiguousarray(found, dtype)
    return np.ascontiguousarray(rows, dtype=dtype)
