"""Centres prepared for dense or CSR rows, packed on first use, and the kernels for these rows."""

from __future__ import annotations

import threading
from functools import cached_property, partial
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.pruned import (
    LEAST_PACKED,
    FixedSearch,
    PrunedSearch,
    may_pay,
    repays_sample,
    sampled_search,
)
from daskcluster.kernels import (
    data_statistics,
    distance,
    sampling,
    sparse,
    tile,
)
from daskcluster.kernels.accumulate import sum_on_grid, sum_relabelled
from daskcluster.kernels.jit import read_only
from daskcluster.kernels.panels import Panels
from daskcluster.kernels.sparse import CsrRows, SparsePanels, squared_norms
from daskcluster.kernels.sum_grid import SumGrid
from daskcluster.sparse_rows import Rows, SparseRows


def csr(rows: SparseRows) -> CsrRows:
    """Return the arrays that CSR kernels take as rows."""
    return CsrRows(*map(read_only, (rows.data, rows.indices, rows.indptr)))


def row_arrays(rows: Rows) -> np.ndarray | CsrRows:
    """Return rows as kernels of both forms take them."""
    return csr(rows) if isinstance(rows, SparseRows) else rows


def raise_max_abs(rows: Rows, max_abs: np.ndarray) -> tuple[int, bool]:
    """Update `max_abs` (d,), IN/OUT, with the largest |x| of each feature, if no row is bad.

    Returns
    -------
    bad_row : int
        The first row with NaN or infinity; -1 if there is none.
    is_nan : bool
        Whether it has a NaN.
    """
    if isinstance(rows, SparseRows):
        return sparse.raise_max_abs(csr(rows), max_abs)
    return data_statistics.data_statistics(rows, max_abs)


class PreparedCentres:
    """Centres, with the packed forms that kernels need for dense or CSR rows.

    Shared by the threads of a task. Packing waits for the first chunk, which shows whether rows are dense
    or CSR.

    Parameters
    ----------
    centres : ndarray of shape (k, d)
        In the compute dtype of the rows.
    tile_of : int, optional
        Pack for the tile that suits this number of centres. Use this if the number of centres varies
        between calls; otherwise, each number could compile another kernel.
    search : FixedSearch, optional
        The search by bounds to use, if it pays. Default: what a sample of the rows shows.
    """

    def __init__(
        self, centres: np.ndarray, tile_of: int | None = None, search: FixedSearch | None = None
    ) -> None:
        self.array = np.ascontiguousarray(centres)
        self._tile_of, self._fixed = tile_of or len(self.array), search
        self._lock = threading.Lock()
        self._panels: Panels | None = None
        self._sparse_panels: SparsePanels | None = None
        self._search: PrunedSearch | None = None
        # Whether a sample of rows has still to show that the search by bounds pays.
        self._is_open, self._n_seen = may_pay(self.array) and (search is None or search.pays), 0
        self._n_expected: int | None = None

    def __len__(self) -> int:
        return len(self.array)

    def __reduce__(self) -> tuple[Any, ...]:
        # Panels depend on the CPU, so they are packed again.
        return (PreparedCentres, (self.array, self._tile_of, self._fixed))

    def expect(self, n_rows: int) -> None:
        """Note that so many more rows will come; a search by bounds pays for some thousands in all."""
        with self._lock:
            self._n_expected = n_rows + (self._n_expected or 0)

    @property
    def panels(self) -> Panels:
        """The centres packed for dense rows."""
        with self._lock:
            if self._panels is None:
                suited = tile.working_tile(self._tile_of, self.array.dtype)
                self._panels = tile.pack(self.array, tile=suited)
            return self._panels

    @property
    def sparse_panels(self) -> SparsePanels:
        """The centres packed for CSR rows."""
        with self._lock:
            if self._sparse_panels is None:
                self._sparse_panels = sparse.pack_sparse(self.array)
            return self._sparse_panels

    @cached_property
    def norms(self) -> np.ndarray:
        """|c|^2 of every centre, float64 (k,)."""
        return squared_norms(self.array)

    def nearest(
        self,
        rows: Rows,
        labels: np.ndarray,
        second: np.ndarray | None = None,
        scores: np.ndarray | None = None,
    ) -> None:
        """Label every row with its nearest centre, or its nearest two; see `tile.nearest`."""
        if isinstance(rows, SparseRows):
            sparse.nearest_sparse(csr(rows), self.sparse_panels, labels, second, scores)
            return
        search = self._search_for(rows)
        if search is None:
            tile.nearest(rows, self.panels, labels, second, scores)
            return
        left = search.nearest(rows, labels, second, scores)
        if len(left):
            out = [array for array in (labels, second, scores) if array is not None]
            found = [array[left] for array in out]
            tile.nearest(rows[left], self.panels, *found)
            for array, part in zip(out, found, strict=True):
                array[left] = part

    def _search_for(self, rows: np.ndarray) -> PrunedSearch | None:
        """Return the search by bounds if it pays for dense rows; None for that of all centres."""
        if self._is_open:
            panels = self.panels
            with self._lock:
                self._n_seen += len(rows)
                if self._is_open and self._repays():
                    found, projection = self._fixed, None
                    if found is None:
                        found, projection = sampled_search(self.array, rows)
                    packed = found.pack(self.array, panels, projection=projection)
                    self._search = None if packed is None else PrunedSearch(packed)
                    self._is_open = False
        search = self._search
        return search if search is not None and search.pays else None

    def _repays(self) -> bool:
        if self._fixed is not None:
            return self._n_expected is None or self._n_expected >= LEAST_PACKED
        return repays_sample(self.array, self._n_seen, self._n_expected)

    def nearest_and_sum(
        self,
        rows: Rows,
        labels: np.ndarray,
        shift: np.ndarray,
        sums: np.ndarray,
        counts: np.ndarray,
        *,
        moving: bool = False,
    ) -> None:
        """Label rows, and add them to the sums of their clusters, see `tile.nearest_and_sum`."""
        if isinstance(rows, SparseRows) or self._search_for(rows) is not None:
            label = partial(self.nearest, rows)
            sum_relabelled(row_arrays(rows), label, labels, shift, sums, counts, moving=moving)
        else:
            tile.nearest_and_sum(rows, self.panels, labels, shift, sums, counts, moving=moving)

    def sqdist_to_assigned(self, rows: Rows, labels: np.ndarray, out: np.ndarray) -> None:
        """Compute the squared distance of every row to its centre; OUT: out (n,), float64."""
        if isinstance(rows, SparseRows):
            known = read_only(self.array), self.norms
            sparse.sqdist_to_assigned_sparse(*csr(rows), *known, labels, out)
        else:
            distance.sqdist_to_assigned(rows, self.array, labels, out)

    def sqdist_all(self, rows: Rows, out: np.ndarray) -> None:
        """Compute the squared distances of every row to all centres; OUT: out (n, k), float64."""
        if isinstance(rows, SparseRows):
            sparse.sqdist_all_sparse(csr(rows), self.sparse_panels, out)
        else:
            distance.sqdist_all(rows, self.array, out)

    def look(
        self,
        rows: Rows,
        weights: np.ndarray | None,
        shift: np.ndarray,
        grids: tuple[SumGrid, SumGrid, SumGrid],
        sums: np.ndarray,
        max_abs: np.ndarray,
    ) -> tuple[int, bool, np.ndarray]:
        """Gather data statistics about the first centre in one sweep; see `data_statistics.look`."""
        centre = self.array[0]
        if not isinstance(rows, SparseRows):
            return data_statistics.look(rows, centre, weights, shift, grids, sums, max_abs)
        masses = np.zeros((3, 2))
        bad, is_nan = raise_max_abs(rows, max_abs)
        if bad < 0:
            spread, norm = np.empty(rows.shape[0]), float(self.norms[0])
            about = read_only(centre), norm, read_only(shift)
            sparse.measure_sparse(*csr(rows), *about, sums, spread)
            masses[0] = sum_on_grid(spread, grids[0])
            if weights is not None:
                masses[1] = sum_on_grid(spread * weights, grids[1])
                masses[2] = sum_on_grid(weights, grids[2])
        return bad, is_nan, masses

    def filter_candidates(
        self,
        rows: Rows,
        weights: np.ndarray | None,
        ranks: np.ndarray,
        limits: tuple[float, float],
        grid: SumGrid,
    ) -> tuple[np.ndarray, np.ndarray, float, float]:
        """Find rows that may be drawn at a rate given by the first centre (`filter_candidate_rows`)."""
        if not isinstance(rows, SparseRows):
            return sampling.filter_candidate_rows(
                rows, self.array[0], weights, ranks, *limits, grid
            )
        sqdist = np.empty(rows.shape[0])
        self.sqdist_all(rows, sqdist.reshape(-1, 1))
        rates, masses = limits[0] + limits[1] * sqdist, sqdist
        if weights is not None:
            rates, masses = weights * rates, weights * sqdist
        found = np.flatnonzero(ranks < rates)
        return found, sqdist[found], *sum_on_grid(masses, grid)

    def lower(self, rows: Rows, number: int, mind2: np.ndarray) -> None:
        """Lower squared minimum distances, IN/OUT, by those to centre `number`."""
        centre = self.array[number]
        if isinstance(rows, SparseRows):
            norm = float(self.norms[number])
            sparse.lower_sparse(*csr(rows), read_only(centre), norm, mind2)
        else:
            sampling.lower(rows, centre, mind2)

    def potentials(
        self,
        rows: Rows,
        mind2: np.ndarray,
        weights: np.ndarray | None,
        grid: SumGrid,
        high: np.ndarray,
        low: np.ndarray,
    ) -> None:
        """Add the potential after adding each centre as a candidate, see `sampling.potentials`."""
        if isinstance(rows, SparseRows):
            distances = np.empty((len(mind2), len(self)))
            self.sqdist_all(rows, distances)
            for j, column in enumerate(distances.T):
                masses = np.minimum(mind2, column)
                part = sum_on_grid(masses if weights is None else weights * masses, grid)
                high[j], low[j] = high[j] + part[0], low[j] + part[1]
        else:
            sampling.potentials(rows, self.array, mind2, weights, grid, high, low)


def nearest_with_distances(chunk: Chunk, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the label (n,), int32, and the squared distance (n,), float64, of every row."""
    prepared, n_rows = PreparedCentres(centres), chunk.n_rows
    labels, distances = np.empty(n_rows, np.int32), np.empty(n_rows)
    for block in chunk.blocks():
        place = block.place_in(chunk)
        prepared.nearest(block.rows, labels[place])
        prepared.sqdist_to_assigned(block.rows, labels[place], distances[place])
    return labels, distances


def normalized_rows(centres: np.ndarray) -> np.ndarray:
    """Return `centres` scaled to length one; a zero row stays zero."""
    length = np.sqrt((centres.astype(np.float64) ** 2).sum(axis=1, keepdims=True))
    return (centres / np.where(length > 0.0, length, 1.0)).astype(centres.dtype)
