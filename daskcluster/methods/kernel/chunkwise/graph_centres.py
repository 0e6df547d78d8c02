"""Centres in the space of a graph's kernel, and where a row that is not in the graph belongs.

The kernel of a graph is known between its rows. A row x from elsewhere is joined to it by the edges that
it would have, to its neighbours among the rows of the fit, and these keep the degrees that they have: a
kernel that depends on data, as functions of x (Bengio, Paiement, Vincent, Delalleau, Le Roux and Ouimet,
"Out-of-sample extensions for LLE, Isomap, MDS, Eigenmaps, and spectral clustering", 2004). With
a(x, y) = 1 for neighbours, d_x the number of x's, and d_y those of y in the graph:

- k-nn kernel: K(x, y) = a(x, y) / (d_x d_y), the kernel itself.
- heat kernel: exp(-t L) = e^-t I + S U with S = D^-1/2 A D^-1/2 and U = sum over m >= 1 of
  e^-t t^m / m! S^(m-1). A row of S is all that the first step needs: K(x, y) is e^-t for x = y, and
  sum over z of a(x, z) (d_x d_z)^-1/2 U_zy. What is left out are walks that come back through x.

For rows of the fit this is the kernel of the fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.elementary import exp
from daskcluster.methods.kernel.chunkwise.centres import GramCentres
from daskcluster.methods.kernel.chunkwise.neighbours import Neighbourhoods
from daskcluster.sparse_rows import Rows


@dataclass(frozen=True, eq=False)
class GraphCentres(GramCentres):
    """Centres C_j, each a weighted sum of images of the graph's rows.

    Attributes
    ----------
    neighbourhoods : Neighbourhoods
    spread : ndarray of shape (n, k), float64
        What a neighbour's edge brings: D^-1 times the coefficients of the centres, or D^-1/2 U times them.
    heat_time : float or None
        t of the heat kernel; None for the k-nn kernel.
    """

    neighbourhoods: Neighbourhoods
    spread: np.ndarray
    heat_time: float | None = None

    def relative(self, rows: Rows) -> np.ndarray:
        pairs = self.neighbourhoods.pairs(rows)
        n = len(self.spread)
        twins = pairs.take(pairs.gaps == 0.0)
        return self.relative_to(pairs.matrix(n), twins.matrix(n))

    def relative_to(self, adjacency: Any, twins: Any) -> np.ndarray:
        """Return Q_j - 2 P_xj of rows of which the neighbours are known, float64 (m, k).

        Parameters
        ----------
        adjacency, twins : CSR arrays of shape (m, n)
            Ones where rows are neighbours; where they are at no distance.
        """
        degrees = np.diff(adjacency.indptr)[:, None].astype(np.float64)
        found = adjacency @ self.spread
        if self.heat_time is None:
            return np.asarray(self.norms - 2.0 * (found / degrees))
        found /= np.sqrt(degrees)
        count = np.maximum(np.diff(twins.indptr), 1)[:, None]
        found += float(exp(-self.heat_time)) * ((twins @ self._coefficients()).toarray() / count)
        return np.asarray(self.norms - 2.0 * found)

    def _coefficients(self) -> Any:
        """Return the coefficients of rows in centres, a CSR array (n, k)."""
        from scipy.sparse import csr_array

        sums = self.sums
        where = sums.points.indices, sums.groups
        return csr_array((sums.factors, where), shape=self.spread.shape)
