"""The graph of nearest neighbours of all rows, by scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.neighbors import kneighbors_graph

from daskcluster.chunkwise.gram import rows_for_callers
from daskcluster.data.batches import whole
from daskcluster.errors import InvalidParameterError
from daskcluster.typing import Dataset


def neighbour_graph(dataset: Dataset, n_neighbors: int) -> Any:
    """Return the adjacency matrix of nearest neighbours, a CSR array (n, n) of zeros and ones.

    Two rows are neighbours if either is among the `n_neighbors` nearest of the other; a row is a
    neighbour of itself, so that K(x, x) > 0.

    Parameters
    ----------
    dataset : Dataset
        Its rows are read into memory.
    n_neighbors : int
        The row itself among them.
    """
    if n_neighbors > dataset.n_rows:
        raise InvalidParameterError(
            f"n_neighbors={n_neighbors} should be <= n_samples={dataset.n_rows}: a row is its own "
            "neighbour; pass fewer."
        )
    from scipy.sparse import csr_array, eye_array

    rows = rows_for_callers(whole(dataset).rows)
    nearest = csr_array(kneighbors_graph(rows, n_neighbors, include_self=True))
    both = nearest.maximum(nearest.T).maximum(eye_array(dataset.n_rows, format="csr"))
    return csr_array(both, dtype=np.float64)
