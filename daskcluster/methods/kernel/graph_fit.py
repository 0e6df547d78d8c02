"""What fits with a graph's kernel share: the graph, the matrix, centres that label rows, statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from daskcluster.chunkwise.assign import ScoreStatistics
from daskcluster.engine.memory import Footprint
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.events import Callback, Notice, publish
from daskcluster.methods.kernel import graph as graphs
from daskcluster.methods.kernel.chunkwise.centres import GraphCentres
from daskcluster.methods.kernel.chunkwise.gram import GramFunction, Points
from daskcluster.methods.kernel.graph import (
    HEAT,
    GraphGram,
    NeighbourGraph,
    neighbour_graph,
)
from daskcluster.methods.kernel.minibatch.centres import joined
from daskcluster.methods.minibatch.batches import ROOM_BYTES, held_bytes
from daskcluster.typing import Dataset

Terms = list[tuple[np.ndarray, np.ndarray]]
"""Numbers of the rows of each centre, each row once, and their coefficients."""


def graph_and_matrix(
    estimator: Any, rows: ScaledPlacement, seed: int, callbacks: Sequence[Callback]
) -> tuple[NeighbourGraph, GraphGram]:
    """Return the graph of the rows of a fit and its Gram matrix. Two passes: NaN, and the rows."""
    rows.known()  # looks for NaN
    graph = neighbour_graph(rows.placement.dataset, int(estimator.n_neighbors))
    heat = float(estimator.heat_time) if estimator.kernel == HEAT else None
    gram = GraphGram(graph.adjacency, heat, seed)
    if gram.is_estimated:
        text = (
            f"K(x, x) of the heat kernel is an estimate for {gram.n_rows:,} rows; seeding and inertia "
            "use it, labels do not."
        )
        publish(callbacks, Notice(text))
    return graph, gram


def coefficients_of(terms: Terms, n_rows: int) -> np.ndarray:
    """Return the coefficient of every row in every centre, float64 (n, k)."""
    found = np.zeros((n_rows, len(terms)))
    for j, (which, factors) in enumerate(terms):
        found[which, j] = factors
    return found


def graph_centres(
    terms: Terms, norms: np.ndarray, gram: GraphGram, graph: NeighbourGraph, kernel: str
) -> GraphCentres:
    """Return centres that label rows of the fit and new rows."""
    numbers = Points(None, np.arange(gram.n_rows))
    sums = joined(GramFunction(kernel), [(numbers.take(rows), factors) for rows, factors in terms])
    spread = gram.spread(coefficients_of(terms, gram.n_rows))
    return GraphCentres(sums, norms, graph.neighbourhoods, spread, gram.heat_time)


def graph_labels(centres: GraphCentres, graph: NeighbourGraph) -> np.ndarray:
    """Return the labels of the rows of the fit, int32 (n,), which are those of `predict`.

    They depend only on the neighbours of a row: rows at distance zero have the same label.
    """
    return centres.relative_to(graph.adjacency, graph.twins).argmin(axis=1).astype(np.int32)


def graph_scores(
    costs: np.ndarray, labels: np.ndarray, weights: np.ndarray, k: int
) -> ScoreStatistics:
    """Return the statistics of clusters; `costs` (n,) are squared distances to the nearest centres."""
    totals = [np.bincount(labels, each, minlength=k) for each in (weights, weights * costs)]
    high = [np.stack([total, np.zeros(k)]) for total in totals]
    return ScoreStatistics(np.bincount(labels, minlength=k), *high)


def weights_of(dataset: Dataset) -> np.ndarray:
    """Return the weights of rows, float64 (n,); ones if there are none."""
    weights = dataset.weights
    return np.ones(dataset.n_rows) if weights is None else np.asarray(weights, float)


def graph_footprint(
    dataset: Dataset, parameters: Mapping[str, Any], room_bytes: int = ROOM_BYTES
) -> Footprint:
    """Return the memory that mini-batches with a graph's kernel need, unless many rows tie.

    The rows twice, in float64 for the search of neighbours; some twenty numbers for each neighbour; and
    six numbers for each row and column that a product with the matrix has.
    """
    n, row_bytes = dataset.n_rows, 16 * dataset.n_features
    columns, n_neighbors = int(parameters["n_clusters"]), int(parameters["n_neighbors"])
    if parameters["kernel"] == HEAT:
        columns = max(columns, graphs.COLUMNS if n <= graphs.EXACT_ROWS else graphs.PROBES)
    taken = n * (row_bytes + 160 * (n_neighbors + graphs.SPARE) + 48 * columns)
    return Footprint(home_bytes=taken, ahead_bytes=held_bytes(dataset, room_bytes))
