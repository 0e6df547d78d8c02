"""Centres made ready for the rows that come, dense or CSR: packed on first use, once for a task."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from daskcluster.chunkwise.rows import csr
from daskcluster.kernels import (
    distance,
    sampling,
    sparse,
    sparse_distance,
    sparse_search,
    survey,
    tile,
)
from daskcluster.kernels.sparse_search import SparsePanels, squared_norms
from daskcluster.kernels.tile import Panels
from daskcluster.sparse_rows import Rows, SparseRows


class PreparedCentres:
    """Centres, and the packed form that the kernels want for the rows at hand.

    Shared by the threads of a task. What a row's kind is shows only in the first chunk, so nothing is
    packed before.

    Parameters
    ----------
    centres : ndarray of shape (k, d)
        In the compute dtype of the rows.
    """

    def __init__(self, centres: np.ndarray) -> None:
        self.array = np.ascontiguousarray(centres)
        self._lock = threading.Lock()
        self._panels: Panels | None = None
        self._sparse_panels: SparsePanels | None = None
        self._norms: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.array)

    def __reduce__(self) -> tuple[Any, ...]:
        # Panels follow the CPU that they were packed on.
        return (PreparedCentres, (self.array,))

    @property
    def panels(self) -> Panels:
        """The centres as dense rows meet them."""
        with self._lock:
            if self._panels is None:
                self._panels = tile.pack(self.array)
            return self._panels

    @property
    def sparse_panels(self) -> SparsePanels:
        """The centres as CSR rows meet them."""
        with self._lock:
            if self._sparse_panels is None:
                self._sparse_panels = sparse_search.pack_sparse(self.array)
            return self._sparse_panels

    @property
    def norms(self) -> np.ndarray:
        """|c|^2 of every centre, float64 (k,)."""
        with self._lock:
            if self._norms is None:
                self._norms = squared_norms(self.array)
            return self._norms

    def nearest(self, rows: Rows, labels: np.ndarray) -> None:
        """Label every row with its nearest centre; OUT: labels (n,), int32."""
        if isinstance(rows, SparseRows):
            sparse_search.nearest_sparse(*csr(rows), self.sparse_panels, labels)
        else:
            tile.nearest(rows, self.panels, labels)

    def nearest_two(
        self,
        rows: Rows,
        labels: np.ndarray,
        second: np.ndarray,
        scores: np.ndarray | None = None,
    ) -> None:
        """Label every row with its nearest and its second nearest centre, see `tile.nearest_two`."""
        if isinstance(rows, SparseRows):
            panels = self.sparse_panels
            sparse_search.nearest_two_sparse(*csr(rows), panels, labels, second, scores)
        else:
            tile.nearest_two(rows, self.panels, labels, second, scores)

    def nearest_and_sum(
        self,
        rows: Rows,
        labels: np.ndarray,
        shift: np.ndarray,
        sums: np.ndarray,
        counts: np.ndarray,
    ) -> None:
        """Label rows, and add them to the sums of their clusters on one grid."""
        if isinstance(rows, SparseRows):
            self.nearest(rows, labels)
            sparse.add_sparse(*csr(rows), labels, shift, sums, counts)
        else:
            tile.nearest_and_sum(rows, self.panels, labels, shift, sums, counts)

    def sqdist_to_assigned(self, rows: Rows, labels: np.ndarray, out: np.ndarray) -> None:
        """Compute the squared distance of every row to its centre; OUT: out (n,), float64."""
        if isinstance(rows, SparseRows):
            sparse_distance.sqdist_to_assigned_sparse(
                *csr(rows), self.array, self.norms, labels, out
            )
        else:
            distance.sqdist_to_assigned(rows, self.array, labels, out)

    def sqdist_all(self, rows: Rows, out: np.ndarray) -> None:
        """Compute the squared distances of every row to all centres; OUT: out (n, k), float64."""
        if isinstance(rows, SparseRows):
            sparse_distance.sqdist_all_sparse(*csr(rows), self.sparse_panels, out)
        else:
            distance.sqdist_all(rows, self.array, out)

    def spread_and_sum(
        self, rows: Rows, shift: np.ndarray, sums: np.ndarray, spread: np.ndarray
    ) -> None:
        """Measure squared distances to the first centre, and add all rows up, in one visit.

        Parameters
        ----------
        rows : Rows
        shift : ndarray of shape (d,), float64
            M of the grid of each feature.
        sums : ndarray of shape (d,), float64
            IN/OUT.
        spread : ndarray of shape (n,), float64
            OUT.
        """
        centre = self.array[0]
        if isinstance(rows, SparseRows):
            norm = float(self.norms[0])
            sparse_distance.look_sparse(*csr(rows), centre, norm, shift, sums, spread)
        else:
            survey.spread_and_sum(rows, centre, shift, sums, spread)

    def lower(self, rows: Rows, number: int, mind2: np.ndarray) -> None:
        """Lower squared minimum distances, IN/OUT, to those to centre `number`, where it is nearer."""
        centre = self.array[number]
        if isinstance(rows, SparseRows):
            norm = float(self.norms[number])
            sparse_distance.lower_sparse(*csr(rows), centre, norm, mind2)
        else:
            sampling.lower(rows, centre, mind2)

    def potentials(
        self,
        rows: Rows,
        mind2: np.ndarray,
        weights: np.ndarray | None,
        shifts: tuple[float, float],
        high: np.ndarray,
        low: np.ndarray,
    ) -> None:
        """Add the potential that each centre would leave as a candidate, see `sampling.potentials`."""
        if isinstance(rows, SparseRows):
            panels = self.sparse_panels
            sparse_distance.potentials_sparse(
                *csr(rows), panels, mind2, weights, *shifts, high, low
            )
        else:
            sampling.potentials(rows, self.array, mind2, weights, *shifts, high, low)
