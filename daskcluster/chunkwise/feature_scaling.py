"""Feature scaling of rows as they are read: learn, apply and undo it."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.chunk import BLOCK_BYTES, Chunk, compute_dtype
from daskcluster.chunkwise.exact_sum import Grids, Scale
from daskcluster.chunkwise.statistics import KMeansStatistics, Reduction
from daskcluster.errors import InvalidParameterError
from daskcluster.kernels.distance import nearest_present
from daskcluster.kernels.sum_grid import SumGrid
from daskcluster.sparse_rows import Rows, SparseRows

SCALES = ("standard", "minmax")
UNSCALED = "none"
"""Kind of a scaling that only fills in missing values."""
PARTIAL = "partial"
"""Kind of a scaling that fills in missing values by cluster: k-means then counts no missing value."""


@dataclass(frozen=True, eq=False)
class FeatureScaling:
    """Scaled rows are ``(x - shift) / width``, feature by feature; missing values may be filled in first.

    Attributes
    ----------
    kind : {"standard", "minmax", "none", "partial"}
        ``"none"`` and ``"partial"``: missing values are filled in, and nothing is scaled.
    shift : ndarray of shape (d,), float64
        Mean or minimum of every feature. Zero for sparse rows, so that they stay sparse; distances do not
        depend on it.
    width : ndarray of shape (d,), float64
        Standard deviation or range; 1 for constant features.
    fill : ndarray of shape (d,) or (k, d), float64, optional
        Values that replace NaN, in the units of the data; of k clusters, those of the cluster that is
        nearest by the features that a row has.

    Examples
    --------
    >>> import numpy as np
    >>> scaling = FeatureScaling("minmax", np.array([10.0]), np.array([4.0]))
    >>> scaling.apply(np.array([[10.0], [12.0], [14.0]])).ravel()
    array([0. , 0.5, 1. ])
    >>> scaling.undo(np.array([[0.5]]))
    array([[12.]])
    """

    kind: str
    shift: np.ndarray
    width: np.ndarray
    fill: np.ndarray | None = None

    @classmethod
    def filling(cls, fill: np.ndarray) -> FeatureScaling:
        """Return what replaces NaN by `fill`, shape (d,), and scales nothing."""
        return cls(UNSCALED, np.zeros(len(fill)), np.ones(len(fill)), fill)

    @classmethod
    def of_clusters(cls, fill: np.ndarray) -> FeatureScaling:
        """Return what replaces NaN by values of clusters, (k, d), or of all rows, (d,); see `PARTIAL`."""
        width = np.ones(fill.shape[-1])
        return cls(PARTIAL, np.zeros_like(width), width, fill.astype(np.float64))

    @property
    def scales(self) -> bool:
        """Whether features are scaled, and not only filled in."""
        return self.kind in SCALES

    def dtype_of(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype of the rows that `apply` makes of rows of `dtype`."""
        return compute_dtype(dtype) if self.scales else dtype

    def apply(self, rows: Rows) -> Rows:
        """Return scaled rows in their compute dtype; rows that are only filled in keep their dtype.

        Every value is computed separately in float64, so the result does not depend on the chunks.
        """
        if self.fill is not None and not isinstance(rows, SparseRows):
            rows = _filled(rows, self.fill)
        if not self.scales:
            return rows
        dtype = compute_dtype(rows.dtype)
        if isinstance(rows, SparseRows):
            data = (rows.data.astype(np.float64) / self.width[rows.indices]).astype(dtype)
            return SparseRows(data, rows.indices, rows.indptr, rows.n_features)
        scaled = np.empty(rows.shape, dtype)
        step = max(1, BLOCK_BYTES // max(1, 8 * rows.shape[1]))
        for first in range(0, len(rows), step):
            part = slice(first, first + step)
            scaled[part] = (rows[part].astype(np.float64) - self.shift) / self.width
        return scaled

    def undo(self, centres: np.ndarray) -> np.ndarray:
        """Return scaled centres (k, d) in the units of the data, in their own dtype."""
        if not self.scales:
            return centres
        return (centres.astype(np.float64) * self.width + self.shift).astype(centres.dtype)

    def same_as(self, other: FeatureScaling | None) -> bool:
        """Return True if `other` scales every row to the same bits."""
        return (
            other is not None
            and np.array_equal(self.shift, other.shift)
            and np.array_equal(self.width, other.width)
            and np.array_equal(_or_nan(self.fill), _or_nan(other.fill), equal_nan=True)
        )

    def plain(self) -> dict[str, Any]:
        """Return the scaling as plain JSON values; `of` restores it bit for bit."""
        found = {"kind": self.kind, "shift": self.shift.tolist(), "width": self.width.tolist()}
        # The clusters of a model are its centres.
        if self.fill is None or self.fill.ndim == 2:
            return found
        return {**found, "fill": self.fill.tolist()}

    @classmethod
    def of(cls, values: Mapping[str, Any], centres: np.ndarray) -> FeatureScaling:
        """Return the scaling from the values of `plain`, and the centres (k, d) of the model.

        Raises
        ------
        InvalidParameterError
            The values are not a scaling of d features.
        """
        kind, n_features = values.get("kind"), centres.shape[-1]
        shift, width, fill = (
            _numbers(values.get(name), n_features) for name in ("shift", "width", "fill")
        )
        kinds = (*SCALES, PARTIAL) if fill is None else (*SCALES, PARTIAL, UNSCALED)
        is_known = kind in kinds and (fill is not None or "fill" not in values)
        if not is_known or shift is None or width is None or not (width > 0.0).all():
            raise InvalidParameterError(
                f"a scaling should have a kind among {', '.join(SCALES)}, and finite shifts and positive "
                f"widths of {n_features} features."
            )
        if kind == PARTIAL and fill is None:
            return cls.of_clusters(centres)
        return cls(str(kind), shift, width, fill)


def undone(scaling: FeatureScaling | None, centres: np.ndarray) -> np.ndarray:
    """Return centres (k, d) in the units of the data; unchanged if `scaling` is None."""
    return centres if scaling is None else scaling.undo(centres)


def _filled(rows: np.ndarray, fill: np.ndarray) -> np.ndarray:
    """Return rows with `fill` in place of NaN; the same array if there is none."""
    if rows.dtype.kind in "biu":
        return rows
    missing = np.isnan(rows)
    if not missing.any():
        return rows
    if fill.ndim == 2:
        found = rows.copy()
        at = np.flatnonzero(missing.any(axis=1))
        nearest = fill[nearest_present(rows[at], fill)]
        found[at] = np.where(missing[at], nearest, rows[at])
        return found
    return np.where(missing, fill, rows).astype(rows.dtype)


def _or_nan(fill: np.ndarray | None) -> Any:
    return np.nan if fill is None else fill


def _numbers(values: Any, n_features: int) -> np.ndarray | None:
    numbers = isinstance(values, list) and all(type(value) in (int, float) for value in values)
    if not numbers or len(values) != n_features:
        return None
    found = np.array(values, np.float64)
    return found if np.isfinite(found).all() else None


# -- learning a scaling
# ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FeatureParams:
    """The origin of the squares, shape (d,), and the scale of the rows."""

    origin: np.ndarray
    scale: Scale


@dataclass
class FeatureStatistics:
    """Sums, squares about the origin and extremes of every feature.

    Attributes
    ----------
    sums, squares : KMeansStatistics
        Statistics of one cluster that contains all rows.
    least, most : ndarray of shape (d,)
    stored : ndarray of shape (d,), int64
        Number of stored values; in sparse rows, the others are zero.
    n_rows : int
    """

    sums: KMeansStatistics
    squares: KMeansStatistics
    least: np.ndarray
    most: np.ndarray
    stored: np.ndarray
    n_rows: int = 0

    def combine(self, other: FeatureStatistics) -> FeatureStatistics:
        self.sums.combine(other.sums)
        self.squares.combine(other.squares)
        np.minimum(self.least, other.least, out=self.least)
        np.maximum(self.most, other.most, out=self.most)
        self.stored += other.stored
        self.n_rows += other.n_rows
        return self

    def extremes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the smallest and largest value of every feature, including zeros that are not stored."""
        hidden = self.stored < self.n_rows
        least = np.where(hidden, np.minimum(self.least, 0.0), self.least)
        return least, np.where(hidden, np.maximum(self.most, 0.0), self.most)

    def scaling(self, kind: str, origin: np.ndarray, *, centred: bool) -> FeatureScaling:
        """Return the scaling of all rows added so far."""
        least, most = self.extremes()
        if kind == "standard":
            weight = float(self.sums.weights[0])
            mean = self.sums.totals[0] / weight
            offset = mean - origin
            variance = self.squares.totals[0] / weight - offset * offset
            shift, width = mean, np.sqrt(np.maximum(variance, 0.0))
        else:
            shift, width = least, most - least
        width = np.where((most > least) & (width > 0.0), width, 1.0)
        return FeatureScaling(kind, shift if centred else np.zeros_like(shift), width)


class _PreparedFeatures:
    def __init__(self, params: FeatureParams) -> None:
        scale, self.origin = params.scale, params.origin
        squares = scale.squares_by_feature(params.origin[None, :])
        self.scale, self.grids = scale, Grids.of(scale)
        self.square_grids = Grids(SumGrid.of_total(squares, scale.n_rows), scale.weights)

    def zero(self) -> FeatureStatistics:
        d, weighted = len(self.origin), self.scale.weighted
        sums, squares = (
            KMeansStatistics.zero(1, d, weighted=weighted, two_grids=True) for _ in range(2)
        )
        extremes = np.full(d, np.inf), np.full(d, -np.inf)
        return FeatureStatistics(sums, squares, *extremes, np.zeros(d, np.int64))

    def add(self, chunk: Chunk, into: FeatureStatistics) -> None:
        for block in chunk.cache_blocks():
            labels, squares = np.zeros(block.n_rows, np.int32), _squares(block.rows, self.origin)
            self.grids.add(block.rows, labels, block.weights, into.sums)
            self.square_grids.add(squares, labels, block.weights, into.squares)
            _look(block.rows, into)
            into.n_rows += block.n_rows


def _squares(rows: Rows, origin: np.ndarray) -> Rows:
    """Return (x - origin)^2 of every value, float64; x^2 for sparse rows, whose origin is zero."""
    if isinstance(rows, SparseRows):
        wide = rows.data.astype(np.float64)
        return SparseRows(wide * wide, rows.indices, rows.indptr, rows.n_features)
    gaps = rows.astype(np.float64) - origin
    return np.asarray(gaps * gaps)


def _look(rows: Rows, into: FeatureStatistics) -> None:
    if isinstance(rows, SparseRows):
        np.minimum.at(into.least, rows.indices, rows.data)
        np.maximum.at(into.most, rows.indices, rows.data)
        into.stored += np.bincount(rows.indices, minlength=rows.n_features)
        return
    if len(rows):
        np.minimum(into.least, rows.min(axis=0), out=into.least)
        np.maximum(into.most, rows.max(axis=0), out=into.most)
    into.stored += len(rows)


FEATURES = Reduction("features", prepare=_PreparedFeatures)
"""`FeatureParams` -> `FeatureStatistics`."""


# -- features that have values ------------------------------------------------------------------------


def _zero_present(n_features: int) -> np.ndarray:
    return np.zeros(n_features, np.int64)


def _count_present(chunk: Chunk, n_features: int, counts: np.ndarray) -> None:
    counts += np.count_nonzero(~np.isnan(np.asarray(chunk.rows)), axis=0)


PRESENT = Reduction(
    name="present values", zero=_zero_present, chunk=_count_present, combine=operator.iadd
)
"""Number of rows that have each feature, int64 (d,); its parameter is the number of features."""
