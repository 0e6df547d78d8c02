"""Identify datasets, and results of their rows, without a pass over them."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from daskcluster import __version__
from daskcluster.fingerprint import fingerprint
from daskcluster.typing import Dataset

_PROBED = 64


def data_identity(dataset: Dataset) -> dict[str, Any]:
    """Return plain values that identify the rows: number, dtype, first and last values."""
    return {
        "rows": dataset.n_rows,
        "features": dataset.n_features,
        "dtype": str(dataset.dtype),
        "weighted": dataset.weights is not None,
        "first_and_last_weights": _weights_digest(dataset),
        "first_and_last_rows": _rows_digest(dataset),
    }


def fingerprint_of_rows(dataset: Dataset, *values: Any) -> str:
    """Return the fingerprint of a result that depends on all rows of `dataset` and on `values`.

    Rows are identified by their number, dtype, first and last values, and largest chunk.
    """
    chunk_rows = max(dataset.chunk_sizes)
    return fingerprint(
        __version__,
        data_identity(dataset),
        dataset.normalize,
        chunk_rows,
        *values,
    )


def _rows_digest(dataset: Dataset) -> str:
    n = dataset.n_rows
    ends = {*range(min(n, _PROBED)), *range(max(0, n - _PROBED), n)}
    return digest_of(np.ascontiguousarray(dataset.take(np.array(sorted(ends)))))


def _weights_digest(dataset: Dataset) -> str | None:
    weights = dataset.weights
    if weights is None:
        return None
    n = dataset.n_rows
    ends = [
        np.asarray(weights[start:stop]) for start, stop in ((0, _PROBED), (max(0, n - _PROBED), n))
    ]
    return digest_of(np.concatenate(ends))


def digest_of(values: np.ndarray) -> str:
    """Return a digest (16 hexadecimal digits) of an array."""
    return hashlib.sha256(values.tobytes() + str(values.shape).encode()).hexdigest()[:16]
