"""Rows by their numbers, dense or CSR as the dataset has them, and their ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

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


def chosen_ids(dataset: Any, numbers: np.ndarray) -> Any:
    """Return the ids of at least one row, by ascending numbers; see `joined_ids`."""
    edges, parts = np.append(0, np.cumsum(dataset.chunk_sizes)), []
    for first, last in pairwise(np.unique(np.searchsorted(numbers, edges)).tolist()):
        here = numbers[first:last]
        ids = dataset.ids(int(here[0]), int(here[-1]) + 1)
        at = here - here[0]
        parts.append(ids[at] if isinstance(ids, np.ndarray) else ids.take(at))
    return joined_ids(parts)


def joined_ids(parts: Sequence[Any]) -> Any:
    """Return consecutive ids as one array: of Arrow if they are those of an id column."""
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    from daskcluster.data.tables import import_pyarrow

    pa = import_pyarrow()
    arrays = [piece for part in parts for piece in getattr(part, "chunks", [part])]
    return pa.chunked_array(arrays, type=parts[0].type)
