"""A placement that gathers data statistics in its first pass, to scale exact sums.

Exact sums need a bound on the addends before a pass. The first pass guesses it from the first rows, with
headroom, and gathers data statistics: true bounds, moments, NaN and infinity. If the guess was too small
(rare), the pass is repeated. Later passes use the true bounds. So data statistics cost no extra pass, and
results do not depend on how the rows are chunked.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk, compute_dtype
from daskcluster.chunkwise.assign import SCORE, AssignParams, ScoreStatistics
from daskcluster.chunkwise.data_statistics import (
    DATA_STATISTICS,
    DataStatisticsParams,
    bad_row_error,
    refuse_large,
    refuse_small,
)
from daskcluster.chunkwise.exact_sum import PROBE_ROWS, Scale
from daskcluster.chunkwise.pruned import FixedSearch
from daskcluster.chunkwise.statistics import DataStatistics, Reduction, joined
from daskcluster.engine.engine import Placement
from daskcluster.sparse_rows import Rows, SparseRows, join_rows

EXACT_INTEGERS = 2.0**53
"""From here on float64 rounds integers."""


class ScaledPlacement:
    """Runs reductions whose parameters need a `Scale`.

    Parameters
    ----------
    placement : Placement

    Attributes
    ----------
    scale : Scale
        A guess before the first pass, the true scale afterwards.
    used : Scale
        Scale that the last pass used.
    data_statistics : DataStatistics or None
        Data statistics of the first pass; None before it.
    """

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.data_statistics: DataStatistics | None = None
        dataset = placement.dataset
        first = [(0, min(PROBE_ROWS, dataset.n_rows))]
        # These are views if the rows are in memory, so that scanning every batch of a stream is cheap.
        probe = [block for chunk in dataset.chunks(first) for block in chunk.blocks()]
        rows = join_rows([block.rows for block in probe])
        self.origin = _origin(rows)
        heaviest = None if dataset.weights is None else float(dataset.weights.max())
        self.scale = Scale.probe(rows, dataset.n_rows, heaviest, self.origin)
        self.used = self.scale

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype in which rows and centres are computed."""
        return compute_dtype(self.placement.dataset.dtype)

    @property
    def normalize(self) -> bool:
        """Whether rows are scaled to length one first (cosine metric)."""
        return self.placement.dataset.normalize

    def chunk(self, rows: Rows, weights: np.ndarray | None = None) -> Chunk:
        """Return rows taken from the dataset as a chunk, in the form in which passes get them."""
        return Chunk(rows, 0, weights, self.normalize)

    def known(self) -> DataStatistics:
        """Return the data statistics; runs a pass if none has gathered them yet."""
        if self.data_statistics is None:
            self._statistics_with(None, lambda scale: None)
        assert self.data_statistics is not None
        return self.data_statistics

    def remember(self, data_statistics: DataStatistics) -> None:
        """Use the data statistics of an earlier first pass over the same rows."""
        self.origin = data_statistics.origin
        self.data_statistics, self.scale = data_statistics, self.scale.after(data_statistics)
        self.used = self.scale

    def reduce(self, reduction: Reduction, params: Callable[[Scale], Any]) -> Any:
        """Run one pass of `reduction` with ``params(scale)``; the first also gathers data statistics."""
        self.used = self.scale
        if self.data_statistics is not None:
            return self.placement.reduce(reduction, params(self.scale))
        return self._statistics_with(reduction, params)

    def _statistics_with(self, reduction: Reduction | None, params: Callable[[Scale], Any]) -> Any:
        """Run the first pass, with or without a reduction that needs it."""
        while True:
            wanted = DataStatisticsParams(self.origin, self.scale)
            if reduction is None:
                data_statistics = self.placement.reduce(DATA_STATISTICS, wanted)
                statistics = None
            else:
                both = joined(reduction.name, DATA_STATISTICS, reduction)
                both_params = wanted, params(self.scale)
                data_statistics, statistics = self.placement.reduce(both, both_params)
            self.used = self.scale
            self._refuse_bad(data_statistics)
            refuse_large(data_statistics.max_abs, self.dtype)
            refuse_small(data_statistics.max_abs, self.dtype)
            self._warn_of_rounding(data_statistics.max_abs)
            if self.scale.covers(data_statistics):
                self.data_statistics = data_statistics
                self.scale = self.scale.after(data_statistics)
                return statistics
            self.scale = self.scale.wider(data_statistics)

    def _warn_of_rounding(self, max_abs: np.ndarray) -> None:
        """Warn of integers that float64, in which they are computed, rounds."""
        dataset, at = self.placement.dataset, int(max_abs.argmax())
        if dataset.dtype.kind in "iu" and max_abs[at] >= EXACT_INTEGERS:
            names = getattr(dataset, "feature_names", None)
            name = at if names is None else repr(names[at])
            warnings.warn(
                f"Feature {name} has integers of magnitude {max_abs[at]:.4g}, and float64, in which rows "
                "are computed, cannot tell integers above 2**53 from their neighbours. Leave the feature "
                "out if it is an id; else subtract its minimum first.",
                UserWarning,
                stacklevel=2,
            )

    def _refuse_bad(self, data_statistics: DataStatistics) -> None:
        if data_statistics.bad_row < 0:
            return
        row, edges = data_statistics.bad_row, np.cumsum(self.placement.dataset.chunk_sizes)
        chunk = int(np.searchsorted(edges, row, side="right"))
        where = f"{self._columns_of(row)} (chunk {chunk})"
        raise bad_row_error(self._number_of(row), data_statistics.bad_is_nan, where)

    def _number_of(self, row: int) -> int:
        """Return the number that a row has in its source, of which other rows may have been left out."""
        cells: Any = getattr(self.placement.dataset, "grid", None)
        if cells is None or cells.source is None or cells.mask is None:
            return row
        return int(np.flatnonzero(cells.mask)[row])

    def _columns_of(self, row: int) -> str:
        """Return which named features of a row are not finite, for an error."""
        names = getattr(self.placement.dataset, "feature_names", None)
        if names is None:
            return ""
        values = np.asarray(self.placement.dataset.take(np.array([row])), np.float64)[0]
        bad = [
            repr(name) for name, value in zip(names, values, strict=True) if not np.isfinite(value)
        ]
        shown = ", ".join(bad[:5]) + (" ..." if len(bad) > 5 else "")
        return f", column {shown}" if bad else ""


def _origin(rows: Rows) -> np.ndarray:
    with np.errstate(invalid="ignore", over="ignore"):
        if isinstance(rows, SparseRows):
            sums = np.bincount(rows.indices, weights=rows.data, minlength=rows.n_features)
            mean = sums / max(1, len(rows))
        else:
            mean = rows.mean(axis=0, dtype=np.float64) if len(rows) else np.zeros(rows.shape[1])
    return np.where(np.isfinite(mean), mean, 0.0).astype(rows.dtype)


def score_rows(
    rows: ScaledPlacement,
    centres: np.ndarray,
    labels: np.ndarray | None = None,
    *,
    labelled: bool = False,
    search: FixedSearch | None = None,
) -> ScoreStatistics:
    """Compute cluster sizes, weights and costs of all rows, by direct differences.

    Parameters
    ----------
    rows : ScaledPlacement
    centres : ndarray of shape (k, d)
        In the compute dtype of the rows.
    labels : ndarray of shape (n,), int32, optional
        OUT. Receives labels by global row index, in this process.
    labelled : bool
        `labels` already hold the nearest of `centres`.
    search : FixedSearch, optional
        As for `PreparedCentres`.

    Notes
    -----
    Cost: one pass; k + 1 distances per row, or one if rows are already labelled. Each worker returns 5 k
    numbers.
    """
    found: ScoreStatistics = rows.reduce(
        SCORE,
        lambda scale: AssignParams(centres, scale, labels, labelled=labelled, search=search),
    )
    return found
