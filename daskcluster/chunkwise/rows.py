"""What is done with the rows of a block, dense or CSR: each function picks the kernel for them.

Blocks come from `daskcluster.chunk.Chunk.blocks`, so they are float32 or float64 and ready for the
kernels. Both kinds give the same bits where sums are exact, and the same distances up to rounding.
"""

from __future__ import annotations

import numpy as np

from daskcluster.kernels import sparse, survey
from daskcluster.sparse_rows import Rows, SparseRows


def csr(rows: SparseRows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows as the kernels of CSR rows take them."""
    return rows.data, rows.indices, rows.indptr


def find_bad(rows: Rows) -> tuple[int, bool]:
    """Return the first row with NaN or infinity (-1 if there is none), and whether it has a NaN."""
    if isinstance(rows, SparseRows):
        return sparse.first_bad_sparse(rows.data, rows.indptr)
    return survey.survey(rows, np.zeros(rows.shape[1]))


def raise_max_abs(rows: Rows, max_abs: np.ndarray) -> tuple[int, bool]:
    """Raise `max_abs` (d,), IN/OUT, to the largest |x| of each feature, if no row is bad.

    Returns
    -------
    bad_row : int
    is_nan : bool
        As `find_bad` returns them.
    """
    if not isinstance(rows, SparseRows):
        return survey.survey(rows, max_abs)
    bad, is_nan = find_bad(rows)
    if bad < 0:
        sparse.raise_max_abs(rows.data, rows.indices, max_abs)
    return bad, is_nan
