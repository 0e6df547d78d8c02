"""Zarr groups that hold rows and their weights; opening one finds the weights.

The group says so in its attributes; it holds ``X`` (an array, or CSR rows in AnnData's layout),
``weights``, and ``indices``: which rows of a source they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from daskcluster.data.nodes import open_node
from daskcluster.data.partitions import READ_BYTES
from daskcluster.data.recipes import StoredRecipe
from daskcluster.data.writer import INDICES, ROWS, WEIGHTS, RowsShape, RowsWriter
from daskcluster.sparse_rows import Rows
from daskcluster.storage.staging import Staging

KINDS = ("group",)
"""Kinds of nodes that an output of this kind may replace."""

MARK = {"daskcluster": "weighted rows"}
"""Attributes of a group whose weights are found when it is opened."""


def holds_weighted_rows(node: Any) -> bool:
    """Return True for a Zarr group that `write_weighted` made."""
    attributes = getattr(node, "attrs", {})
    is_array = hasattr(node, "chunks")
    return not is_array and all(attributes.get(name) == value for name, value in MARK.items())


def stored_attributes(dataset: Any) -> Mapping[str, Any]:
    """Return the attributes of the group that a dataset was opened from, if `write_weighted` made it."""
    recipe = dataset.own_recipe() if hasattr(dataset, "own_recipe") else None
    if not isinstance(recipe, StoredRecipe) or recipe.name != ROWS:
        return {}
    node: Any = open_node(recipe.location)
    return dict(node.attrs) if holds_weighted_rows(node) else {}


def write_weighted(
    url: Any,
    rows: Rows,
    weights: np.ndarray,
    indices: np.ndarray | None = None,
    *,
    facts: Mapping[str, Any],
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Write rows and weights to `url`, whole or absent.

    Parameters
    ----------
    url : str
        Path or URL of the group.
    rows : Rows, shape (m, d)
    weights : ndarray of shape (m,), float64
    indices : ndarray of shape (m,), int64, optional
    facts : mapping
        Plain JSON values: attributes of the group, by which people know what it is.
    overwrite : bool
        Replace a Zarr group that is there.
    storage_options : mapping, optional

    Raises
    ------
    OutputExistsError
        Something is there that may not be replaced.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster.data.open import open_source
    >>> write_weighted("memory://weighted-rows", np.eye(2), np.array([1.0, 3.0]), facts={})
    >>> np.asarray(open_source("memory://weighted-rows").weights)
    array([1., 3.])
    """
    values = {WEIGHTS: np.asarray(weights, np.float64)}
    if indices is not None:
        values[INDICES] = np.asarray(indices, np.int64)
    kinds = {name: array.dtype for name, array in values.items()}
    options: dict[str, Any] = {"overwrite": overwrite, "storage_options": storage_options}
    with Staging.begin(url, kinds=KINDS, **options) as staging:
        with RowsWriter(staging, RowsShape.of(rows), kinds, group={**facts, **MARK}) as writer:
            step = max(1, READ_BYTES * len(rows) // max(1, rows.nbytes))
            for first in range(0, len(rows), step):
                span = slice(first, first + step)
                writer.append(rows[span], *(array[span] for array in values.values()))
        staging.commit(writer.documents())
