"""Rows by their numbers, dense or CSR as the dataset has them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from daskcluster.sparse_rows import Rows, join_rows
from daskcluster.typing import Dataset, Range


def chosen_rows(dataset: Dataset, numbers: np.ndarray) -> Rows:
    """Return rows by their numbers, in the given order.

    Unlike ``dataset.take``, it leaves CSR rows in CSR form, with all their stored entries.

    Parameters
    ----------
    dataset : Dataset
    numbers : ndarray of shape (m,), int64
        At least one; repeats are allowed.

    Returns
    -------
    Rows of shape (m, d)

    Notes
    -----
    Cost: every storage chunk with at least one of the rows is read once.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster.data.open import open_source
    >>> chosen_rows(open_source(np.eye(3)), np.array([2, 0, 2]))
    array([[0., 0., 1.],
           [1., 0., 0.],
           [0., 0., 1.]])
    """
    ordered, home = np.unique(numbers, return_inverse=True)
    parts = []
    for chunk in dataset.chunks(_spans(dataset, ordered)):
        first, last = np.searchsorted(ordered, [chunk.start, chunk.stop])
        parts.append(chunk.rows[ordered[first:last] - chunk.start])
    return join_rows(parts)[home]


def _spans(dataset: Dataset, ordered: np.ndarray) -> Iterator[Range]:
    """Yield the range from the first to the last requested row of each storage chunk."""
    edges = dataset.read_edges((0, dataset.n_rows))
    places = np.searchsorted(ordered, edges)
    for first, last in zip(places[:-1].tolist(), places[1:].tolist(), strict=True):
        if last > first:
            yield int(ordered[first]), int(ordered[last - 1]) + 1
