"""The model of kernel k-means on a graph of neighbours: all rows of the fit, and what their edges bring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from daskcluster.errors import ModelFormatError
from daskcluster.methods.kernel.chunkwise.centres import GramCentres
from daskcluster.methods.kernel.chunkwise.gram import GramSums, Points
from daskcluster.methods.kernel.chunkwise.graph_centres import GraphCentres
from daskcluster.methods.kernel.chunkwise.neighbours import Neighbourhoods
from daskcluster.methods.kernel.model import KernelKMeansModel, row_arrays, support_arrays
from daskcluster.storage.fields import read_count, read_number

KNN, HEAT = "knn", "heat"


@dataclass(frozen=True, eq=False)
class GraphKMeansModel(KernelKMeansModel):
    """A fitted kernel k-means whose kernel is that of a graph.

    See `daskcluster.methods.kernel.chunkwise.graph_centres`.

    Attributes
    ----------
    supports, columns, starts
        All rows of the fit, in their order.
    rows, clusters, coefficients
        Which of them make up the centres, in which cluster, and how much.
    radii : ndarray of shape (n,), float64
        Squared distance of each row to its last neighbour.
    spread : ndarray of shape (n, k), float64
    n_neighbors : int
    heat_time : float
        Of the heat kernel.

    Raises
    ------
    ModelFormatError
        A value breaks a rule.
    """

    kind: ClassVar[str] = "graph-kmeans"
    kernels: ClassVar[tuple[str, ...]] = (KNN, HEAT)
    array_names: ClassVar[frozenset[str]] = KernelKMeansModel.array_names | {"radii", "spread"}

    radii: np.ndarray
    spread: np.ndarray
    n_neighbors: int
    heat_time: float

    def __post_init__(self) -> None:
        super().__post_init__()
        n, k = self.n_supports, self.n_clusters
        if self.radii.shape != (n,) or self.spread.shape != (n, k):
            raise ModelFormatError(
                f"radii of shape {self.radii.shape} and spread of shape {self.spread.shape} should be "
                f"({n},) and ({n}, {k})."
            )
        if not (np.isfinite(self.radii).all() and (self.radii >= 0.0).all()):
            raise ModelFormatError("radii should be finite and >= 0.")
        if not np.isfinite(self.spread).all():
            raise ModelFormatError("spread should be finite.")
        if not ((self.rows >= 0) & (self.rows < n)).all():
            raise ModelFormatError(f"numbers of rows should be in 0 to {n - 1}.")
        if not (1 <= self.n_neighbors <= n and self.heat_time > 0.0):
            raise ModelFormatError(
                f"n_neighbors={self.n_neighbors!r} should be in 1 to {n}, heat_time={self.heat_time!r} "
                "above 0."
            )

    @property
    def n_supports(self) -> int:
        return int(self.radii.size)

    def gram_centres(self) -> GraphCentres:
        """Return the centres as rows are compared with them."""
        points = Points(None, self.rows)
        sums = GramSums(self.gram, points, self.coefficients, self.clusters, self.n_clusters)
        known = Neighbourhoods(self.support_rows(), self.radii, self.n_neighbors)
        time = self.heat_time if self.kernel == HEAT else None
        return GraphCentres(sums, self.norms, known, self.spread, time)

    def own(self) -> dict[str, Any]:
        return {**super().own(), "n_neighbors": self.n_neighbors, "heat_time": self.heat_time}

    def facts(self) -> dict[str, Any]:
        found = {**super().facts(), "n_neighbors": self.n_neighbors}
        del found["gamma"]
        return found | ({"heat_time": self.heat_time} if self.kernel == HEAT else {})

    @classmethod
    def own_parts(cls, body: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **super().own_parts(body),
            "n_neighbors": read_count(body, "n_neighbors"),
            "heat_time": read_number(body, "heat_time"),
        }


def graph_arrays(centres: GraphCentres, n_features: int) -> dict[str, Any]:
    """Return the fields of a model that say what its centres are, and the graph around them."""
    known, sums = centres.neighbourhoods, centres.sums
    points = Points(known.points[sums.points.indices], sums.points.indices)
    placed = GramSums(sums.gram, points, sums.factors, sums.groups, sums.n_groups)
    return {
        **support_arrays(GramCentres(placed, centres.norms), n_features),
        **row_arrays(known.points),
        "radii": known.radii,
        "spread": centres.spread,
        "n_neighbors": known.n_neighbors,
        "heat_time": 1.0 if centres.heat_time is None else centres.heat_time,
    }
