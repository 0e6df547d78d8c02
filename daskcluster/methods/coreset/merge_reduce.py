"""Coresets of parts make a coreset of the whole: their union, drawn from once more if it is large."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daskcluster.errors import InvalidParameterError
from daskcluster.sparse_rows import Rows, SparseRows, join_rows


def united(parts: Sequence[tuple[Rows, np.ndarray]]) -> tuple[Rows, np.ndarray]:
    """Return the rows and weights of coresets of disjoint parts, one after the other.

    Any weighted sum over the union has as its expectation the sum over all parts. Dense rows of
    different dtypes meet in the wider one; dense and sparse rows meet as sparse ones.

    Parameters
    ----------
    parts : sequence of (rows, weights)

    Raises
    ------
    InvalidParameterError
        They do not have the same number of features.

    Examples
    --------
    >>> import numpy as np
    >>> rows, weights = united([(np.eye(2), np.ones(2)), (np.zeros((1, 2)), np.array([5.0]))])
    >>> rows.shape, weights
    ((3, 2), array([1., 1., 5.]))
    """
    widths = [rows.shape[1] for rows, _ in parts]
    if len(set(widths)) > 1:
        raise InvalidParameterError(
            f"coresets with {', '.join(map(str, widths))} features should have the same number; merge "
            "those of parts of one dataset."
        )
    sparse = any(isinstance(rows, SparseRows) for rows, _ in parts)
    dtype = np.result_type(*(rows.dtype for rows, _ in parts))
    alike = [_as(rows, dtype, sparse=sparse) for rows, _ in parts]
    return join_rows(alike), np.concatenate([weights for _, weights in parts])


def _as(rows: Rows, dtype: np.dtype, *, sparse: bool) -> Rows:
    if isinstance(rows, SparseRows):
        return rows.astype(dtype)
    rows = rows.astype(dtype, copy=False)
    return SparseRows.of(rows) if sparse else rows
