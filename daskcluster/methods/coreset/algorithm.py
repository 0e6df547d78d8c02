"""Lightweight coresets (Bachem, Lucic, Krause, KDD 2018).

Rows are drawn m times, independently and with replacement, from q(n) = w_n / 2W + w_n |x_n - u|^2 / 2 phi,
with u the weighted mean and phi the weighted spread about it; a draw of row n weighs w_n / (m q(n)). As
in the paper; row weights w and any number of chunks, workers and engines are ours, and the paper's
two passes are what it takes here, too.

The state of an unfinished draw is kept as plain values and arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidParameterError, ModelFormatError
from daskcluster.randomness import Key
from daskcluster.sampling import Moments, draw_about, measure
from daskcluster.sparse_rows import INDEX_DTYPE, Rows, SparseRows, join_rows, take_rows
from daskcluster.storage.document import Document, Shapes


@dataclass(frozen=True)
class Coreset:
    """Weighted rows that represent all rows of a dataset.

    Attributes
    ----------
    rows : Rows, shape (m, d)
        In the dtype of the source; a row drawn twice is included twice.
    weights : ndarray of shape (m,), float64
    indices : ndarray of shape (m,), int64
        Rows of the source, in the order of the draws: the first m' of them are a coreset of that size,
        once their weights are multiplied by m / m'.
    moments : Moments
        Moments of the source.
    """

    rows: Rows
    weights: np.ndarray
    indices: np.ndarray
    moments: Moments


def draw_coreset(
    rows: ScaledPlacement,
    size: int,
    seed: int,
    *,
    moments: Moments | None = None,
    measured: Callable[[Moments], None] = lambda moments: None,
) -> Coreset:
    """Draw a coreset of `size` rows.

    Parameters
    ----------
    rows : ScaledPlacement
    size : int
        m >= 1. With at least as many as there are rows, the rows themselves are the coreset.
    seed : int
    moments : Moments, optional
        Moments of the rows, if an earlier call measured them: the first pass is left out.
    measured : callable (Moments) -> None
        Called with the moments between the passes.

    Notes
    -----
    Cost: two passes, or one if rows have no weights and an earlier pass collected their statistics.
    Two copies of the coreset in memory while it is drawn.
    """
    if moments is None:
        moments = measure(rows)
        measured(moments)
    if size >= rows.placement.dataset.n_rows:
        return _whole(rows, moments)
    draws = draw_about(rows, moments.mean.astype(rows.dtype), moments, size, Key(seed, "coreset"))
    # w / (m q), and q is w times the rate: the weight of a draw depends on its distance alone.
    weights = 1.0 / (len(draws.picked) * draws.rates)
    drawn = take_rows(draws.rows, draws.picked)
    return Coreset(drawn, weights[draws.picked], draws.indices[draws.picked], moments)


def _whole(rows: ScaledPlacement, moments: Moments) -> Coreset:
    dataset = rows.placement.dataset
    chunk = dataset.load((0, dataset.n_rows)).owned()
    kept = np.flatnonzero(chunk.masses > 0.0)
    return Coreset(chunk.rows[kept], chunk.masses[kept], kept, moments)


def united(parts: Sequence[tuple[Rows, np.ndarray]]) -> tuple[Rows, np.ndarray]:
    """Return the rows and weights of coresets of disjoint parts, one after the other.

    Any weighted sum over the union has as its expectation the sum over all parts. Dense rows of
    different dtypes are merged in the wider one; dense and sparse rows are merged as sparse rows.

    Parameters
    ----------
    parts : sequence of (rows, weights)

    Raises
    ------
    InvalidParameterError
        They do not have the same number of features.

    Examples
    --------
    >>> import numpy as np
    >>> rows, weights = united([(np.eye(2), np.ones(2)), (np.zeros((1, 2)), np.array([5.0]))])
    >>> rows.shape, weights
    ((3, 2), array([1., 1., 5.]))
    """
    widths = [rows.shape[1] for rows, _ in parts]
    if len(set(widths)) > 1:
        raise InvalidParameterError(
            f"coresets with {', '.join(map(str, widths))} features should have the same number; merge "
            "those of parts of one dataset."
        )
    sparse = any(isinstance(rows, SparseRows) for rows, _ in parts)
    dtype = np.result_type(*(rows.dtype for rows, _ in parts))
    alike = [_as(rows, dtype, sparse=sparse) for rows, _ in parts]
    return join_rows(alike), np.concatenate([weights for _, weights in parts])


def _as(rows: Rows, dtype: np.dtype, *, sparse: bool) -> Rows:
    if isinstance(rows, SparseRows):
        return rows.astype(dtype)
    rows = rows.astype(dtype, copy=False)
    return SparseRows.of(rows) if sparse else rows


# -- the state of an unfinished draw -------------------------------------------------------------------

_STORED = {"f2": "f4", "f4": "f4", "f8": "f8"}
"""Dtypes in which values are stored that documents have no room for; small whole numbers become int64."""


@dataclass(frozen=True)
class RowsCheckpoint:
    """Rows of any dtype, dense or sparse, at least one stored value in them.

    Attributes
    ----------
    dtype : str
        Type of the rows.
    values : ndarray of shape (m, d), or (z,) of sparse rows
    columns : ndarray of shape (z,), int64, or None
        Columns of sparse rows.
    starts : ndarray of shape (m + 1,), int64, or None
        Where each of the sparse rows begins.
    """

    dtype: str
    values: np.ndarray
    columns: np.ndarray | None = None
    starts: np.ndarray | None = None

    @classmethod
    def of(cls, rows: Rows) -> RowsCheckpoint | None:
        """Return the stored form of rows; None if they hold no value."""
        values = rows.data if isinstance(rows, SparseRows) else np.ascontiguousarray(rows)
        if not values.size:
            return None
        name = values.dtype.newbyteorder("=").str[1:]
        kept = values.view(np.int64) if name == "u8" else values.astype(_STORED.get(name, "i8"))
        if not isinstance(rows, SparseRows):
            return cls(name, kept)
        return cls(name, kept, rows.indices.astype(np.int64), np.array(rows.offsets))

    def rows(self, d: int) -> Rows:
        """Return the rows, of d features.

        Raises
        ------
        ModelFormatError
            They are none.
        """
        try:
            dtype = np.dtype(self.dtype)
        except TypeError as error:
            raise ModelFormatError(f"its rows have no dtype {self.dtype[:20]!r}.") from error
        if dtype.kind not in "biuf":
            raise ModelFormatError(f"its rows have no dtype {self.dtype[:20]!r}.")
        values = self.values.view(dtype) if self.dtype == "u8" else self.values.astype(dtype)
        if self.columns is None or self.starts is None:
            return values
        found = SparseRows(values, self.columns.astype(INDEX_DTYPE), self.starts, d)
        if not _is_csr(found):
            raise ModelFormatError("its sparse rows do not fit together.")
        return found


def _is_csr(rows: SparseRows) -> bool:
    starts, columns = rows.indptr, rows.indices
    fit = starts[0] == 0 and starts[-1] == len(columns) and bool((np.diff(starts) >= 0).all())
    return (
        fit
        and len(columns) == len(rows.data)
        and 0 <= columns.min() <= columns.max() < rows.n_features
    )


@dataclass(frozen=True)
class CoresetCheckpoint:
    """A drawn coreset without its moments."""

    rows: RowsCheckpoint
    weights: np.ndarray
    indices: np.ndarray


@dataclass(frozen=True)
class CoresetState:
    """State of a draw: before its first pass, or before or after its second.

    Attributes
    ----------
    moments : Moments or None
        Moments of all rows, once the first pass was made.
    drawn : CoresetCheckpoint or None
        Once the second one was.
    """

    moments: Moments | None = None
    drawn: CoresetCheckpoint | None = None

    @staticmethod
    def upgrade(document: Document) -> Document:
        """Return the document without the place in a pass, which earlier versions kept."""
        arrays = {n: v for n, v in document.arrays.items() if not n.startswith("leg_")}
        return replace(document, arrays=arrays)

    def coreset(self, d: int) -> Coreset | None:
        """Return the coreset of rows with d features, if it was drawn."""
        if self.drawn is None or self.moments is None:
            return None
        drawn = self.drawn
        return Coreset(drawn.rows.rows(d), drawn.weights, drawn.indices, self.moments)


def coreset_shapes(found: Mapping[str, tuple[int, ...]], d: int) -> Shapes:
    """Return the shapes that the arrays of a `CoresetState` should have, by those that they have.

    The number of rows is not stored elsewhere, so all arrays of rows should be as long as the first.
    """
    shapes: dict[str, tuple[int, ...]] = {"moments_mean": (d,)}
    m = next(iter(found.get("drawn_indices", (0,))))
    shapes |= {"drawn_indices": (m,), "drawn_weights": (m,), "drawn_rows_values": (m, d)}
    if "drawn_rows_columns" in found:
        z = found["drawn_rows_columns"]
        shapes |= {"drawn_rows_columns": z, "drawn_rows_values": z, "drawn_rows_starts": (m + 1,)}
    return shapes
