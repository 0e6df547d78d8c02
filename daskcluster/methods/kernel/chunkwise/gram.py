"""Gram functions (Mercer kernels), points to evaluate them at, and weighted sums of their values.

A centre of kernel k-means is a weighted sum of images of points. So the only operation on a Gram function
is ``sum over y of a(y) K(x, y)``, for all rows x of a chunk and groups of points y.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import csr
from daskcluster.errors import InvalidDataError
from daskcluster.methods.kernel import kernels
from daskcluster.sparse_rows import Rows, SparseRows, join_rows

_TERMS = {
    "rbf": kernels.SQUARE,
    "laplacian": kernels.ABSOLUTE,
    "polynomial": kernels.PRODUCT,
    "linear": kernels.PRODUCT,
    "cosine": kernels.PRODUCT,
}
VECTOR_GRAMS = tuple(_TERMS)
"""Names of the Gram functions that compiled kernels compute."""
FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""Registered Gram functions, by name; see `daskcluster.methods.kernel.initial.register_gram`."""
PRECOMPUTED = "precomputed"
CALLABLE = "callable"

_VALUES_BYTES = 8 << 20
"""Bytes of Gram values that a callable returns at a time, or of CSR rows that are made dense."""
_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class GramFunction:
    """A Mercer kernel K.

    Attributes
    ----------
    name : str
        rbf: exp(-gamma |x - y|^2); laplacian: exp(-gamma |x - y|_1); polynomial:
        (gamma x.y + coef0)^degree; linear: x.y; cosine: x.y of rows scaled to length one;
        precomputed: the rows are those of the matrix K; callable.
    gamma, degree, coef0
    function : callable (X, Y, **parameters) -> ndarray of shape (len(X), len(Y))
        The function of ``"callable"`` or of a registered name.
    parameters : mapping
        Further arguments of `function`.
    """

    name: str = "rbf"
    gamma: float = 1.0
    degree: int = 1
    coef0: float = 0.0
    function: Callable[..., Any] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def normalize(self) -> bool:
        """Whether rows are scaled to length one first."""
        return self.name == "cosine"

    def chunk(self, chunk: Chunk) -> Chunk:
        """Return a chunk whose rows are normalized if the function needs it."""
        return replace(chunk, normalize=self.normalize)

    @property
    def is_precomputed(self) -> bool:
        return self.name == PRECOMPUTED

    @property
    def is_function(self) -> bool:
        """Whether values come from `function`."""
        return self.name == CALLABLE or self.function is not None

    @property
    def term(self) -> int:
        """The kind of term that the kernels sum over features."""
        return _TERMS[self.name]

    @property
    def numbers(self) -> tuple[float, float, int]:
        """Scale, shift and degree, the arguments of the kernels."""
        if self.name == "polynomial":
            return self.gamma, self.coef0, self.degree
        return (1.0, 0.0, 1) if self.term == kernels.PRODUCT else (-self.gamma, 0.0, 1)

    def diagonal(self, rows: Rows | None, indices: np.ndarray) -> np.ndarray:
        """Return K(x, x) of rows that are ready for the kernels, float64 (n,).

        Parameters
        ----------
        rows : Rows, shape (n, d), or None
            None for kernels of a graph, which need row numbers only.
        indices : ndarray of shape (n,)
            Their global row numbers: the columns of the diagonal in precomputed rows.
        """
        assert rows is not None
        if self.name in ("rbf", "laplacian"):
            return np.ones(len(rows))
        if self.is_precomputed:
            return np.array([float(rows[i][at]) for i, at in enumerate(indices)])
        if self.is_function:
            ones = (self.values(rows[i : i + 1], rows[i : i + 1]) for i in range(len(rows)))
            return np.array([float(one[0, 0]) for one in ones])
        squares = squared_lengths(rows)
        if self.name == "polynomial":
            return _power(self.gamma * squares + self.coef0, self.degree)
        return squares

    def values(self, rows: Rows, points: Rows) -> np.ndarray:
        """Return the checked values of the callable on rows and points, float64 (n, m)."""
        assert self.function is not None
        found = self.function(rows_for_callers(rows), rows_for_callers(points), **self.parameters)
        values = np.ascontiguousarray(found, np.float64)
        if values.shape != (len(rows), len(points)) or not np.isfinite(values).all():
            raise InvalidDataError(
                f"kernel(X, Y) returned shape {values.shape}, or values that are not finite, for "
                f"{len(rows)} and {len(points)} rows; it should return a finite array of shape "
                "(len(X), len(Y))."
            )
        return values


def _power(base: np.ndarray, degree: int) -> np.ndarray:
    """Return `base` to an integer power, with the same multiplications as in the kernels."""
    found = base.copy()
    for _ in range(1, degree):
        found *= base
    return found


def squared_lengths(rows: Rows) -> np.ndarray:
    """Return squared Euclidean lengths, float64 (n,)."""
    if isinstance(rows, SparseRows):
        found, filled = np.zeros(len(rows)), np.diff(rows.indptr) > 0
        if filled.any():
            squares = rows.data.astype(np.float64) ** 2
            found[filled] = np.add.reduceat(squares, rows.offsets[:-1][filled])
        return found
    wide = rows.astype(np.float64, copy=False)
    return np.asarray((wide * wide).sum(axis=1))


def rows_for_callers(rows: Rows) -> Any:
    """Return rows in the form that functions of users take: an array, or a SciPy CSR array."""
    if not isinstance(rows, SparseRows):
        return rows
    from scipy.sparse import csr_array

    return csr_array((rows.data, rows.indices, rows.offsets), shape=rows.shape)


@dataclass(frozen=True, eq=False)
class Points:
    """Rows that a Gram function is evaluated at.

    Attributes
    ----------
    rows : Rows, shape (m, d), or None
        Ready for the kernels (`daskcluster.chunk.Chunk.blocks`); None for precomputed values.
    indices : ndarray of shape (m,), int64
        Their global row numbers: columns of precomputed values.
    """

    rows: Rows | None
    indices: np.ndarray

    def __len__(self) -> int:
        return len(self.indices)

    def take(self, which: np.ndarray) -> Points:
        """Return a copy of some of the points."""
        rows = None if self.rows is None else self.rows[which]
        return Points(rows, self.indices[which])

    def between(self, first: int, last: int) -> Points:
        """Return a view of consecutive points."""
        rows = None if self.rows is None else self.rows[first:last]
        return Points(rows, self.indices[first:last])


def join_points(parts: Sequence[Points]) -> Points:
    """Return the concatenation of points."""
    indices = np.concatenate([part.indices for part in parts])
    rows = [part.rows for part in parts if part.rows is not None]
    return Points(join_rows(rows) if rows else None, indices)


@dataclass(eq=False)
class GramSums:
    """Sums over groups of points: ``S_g(x) = sum over y in g of factor(y) K(x, y)``.

    Threads of a task share it. Packed points are not pickled.

    Parameters
    ----------
    gram : GramFunction
    points : Points
    factors : ndarray of shape (m,), float64
    groups : ndarray of shape (m,), int64
    n_groups : int
    """

    gram: GramFunction
    points: Points
    factors: np.ndarray
    groups: np.ndarray
    n_groups: int

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._panels: dict[Any, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return GramSums, (self.gram, self.points, self.factors, self.groups, self.n_groups)

    def __call__(self, rows: Rows, out: np.ndarray | None = None) -> np.ndarray:
        """Return S of rows that are ready for the kernels, float64 (n, n_groups); OUT: out."""
        if out is None:
            out = np.empty((len(rows), self.n_groups))
        if len(self.points) == 0:
            out[:] = 0.0
        elif self.gram.is_precomputed or self.gram.is_function:
            self._sum_values(rows, out)
        elif isinstance(rows, SparseRows):
            points = self._made("csr", rows.dtype)
            kernels.gram_sums_sparse(
                csr(rows), csr(points), self.factors, self.groups, self.gram.term,
                self.gram.numbers, rows.n_features, out,
            )  # fmt: skip
        else:
            panels = self._made("panels", rows.dtype)
            kernels.gram_sums(
                rows, panels, self.factors, self.groups, self.gram.term, self.gram.numbers, out
            )
        return out

    def own(self, which: slice, out: np.ndarray) -> None:
        """Compute S of the points over their own groups; values are not precomputed.

        Parameters
        ----------
        which : slice
            The groups. The points are in the order of their groups, none of which is empty.
        out : ndarray of shape (m, 1), float64
            OUT: elements of the points of these groups.
        """
        rows, ends = self.points.rows, np.arange(which.start, which.stop + 1)
        assert rows is not None
        ends = np.searchsorted(self.groups, ends)
        if self.gram.is_function or isinstance(rows, SparseRows):
            for first, last in pairwise(ends.tolist()):
                points, none = self.points.between(first, last), np.zeros(last - first, np.int64)
                sums = GramSums(self.gram, points, self.factors[first:last], none, 1)
                sums(rows[first:last], out[first:last])
            return
        panels = self._made("panels", rows.dtype)
        height = panels.height
        spans = np.stack([ends[:-1], ends[1:], ends[:-1] // height, -(-ends[1:] // height)], axis=1)
        # A panel has points of at most `height` groups, which follow each other, so each has its column.
        found, columns = np.empty((len(rows), height)), self.groups % height
        kernels.gram_sums(
            rows, panels, self.factors, columns, self.gram.term, self.gram.numbers, found, spans
        )
        here = slice(ends[0], ends[-1])
        out[here] = np.take_along_axis(found[here], columns[here, None], axis=1)

    def _sum_values(self, rows: Rows, out: np.ndarray) -> None:
        columns, width = self.points.indices, rows.shape[1]
        if not self.gram.is_precomputed:
            columns, width = np.arange(len(self.points)), len(self.points)
        elif not isinstance(rows, SparseRows):
            kernels.add_columns(rows, columns, self.factors, self.groups, out)
            return
        step = max(1, _VALUES_BYTES // (8 * width))
        for first in range(0, len(rows), step):
            part = rows[first : first + step]
            values = self._values(part)
            kernels.add_columns(
                values, columns, self.factors, self.groups, out[first : first + step]
            )

    def _values(self, rows: Rows) -> np.ndarray:
        if isinstance(rows, SparseRows) and self.gram.is_precomputed:
            return rows.toarray()
        kind = "csr" if isinstance(rows, SparseRows) else "dense"
        return self.gram.values(rows, self._made(kind, rows.dtype))

    def _made(self, kind: str, dtype: np.dtype[Any]) -> Any:
        """Return the points in the form `kind` ("csr", "panels" or "dense") and dtype. Made once."""
        with self._lock:
            if (kind, dtype) not in self._panels:
                self._panels[kind, dtype] = self._make(kind, dtype)
            return self._panels[kind, dtype]

    def _make(self, kind: str, dtype: np.dtype[Any]) -> Any:
        rows = self.points.rows
        assert rows is not None
        if kind == "csr":
            rows = rows if isinstance(rows, SparseRows) else SparseRows.of(rows)
            return rows.astype(dtype)
        dense = rows.toarray() if isinstance(rows, SparseRows) else rows
        dense = np.ascontiguousarray(dense, dtype)
        return kernels.pack_points(dense) if kind == "panels" else dense


def row_cuts(n_rows: int, n_groups: int) -> Iterator[slice]:
    """Yield slices of rows whose sums take at most a few megabytes."""
    step = max(32, _VALUES_BYTES // (8 * max(1, n_groups)) // 32 * 32)
    for first in range(0, n_rows, step):
        yield slice(first, min(first + step, n_rows))
