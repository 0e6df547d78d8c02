"""Law 1: every exact algorithm gives the labels, centres and iteration count of plain Lloyd."""

from __future__ import annotations

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.estimators.kmeans import ALGORITHMS
from tests.laws.data import CASES, case
from tests.laws.test_law_02_chunking import same_bits


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name != "lloyd"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("k", [1, 7, 40])
def test_equals_lloyd(algorithm, name, k):
    X, w = case(name, n=900)
    start = X[:: 900 // k][:k]
    expected = dc.KMeans(k, init=start, algorithm="lloyd", tol=0).fit(X, sample_weight=w)
    same_bits(
        dc.KMeans(k, init=start, algorithm=algorithm, tol=0).fit(X, sample_weight=w), expected
    )


@pytest.mark.parametrize("name", CASES)
def test_labels_kept_in_memory_change_nothing(tmp_path, name):
    """Rows in memory keep labels between passes, also for empty clusters; rows on disk do not."""
    X, w = case(name, n=900)
    np.save(tmp_path / "rows.npy", X)
    far = np.full((3, X.shape[1]), 10 * X.max(), X.dtype) * np.arange(1, 4)[:, None].astype(X.dtype)
    start = np.concatenate([X[:5], far])
    one = dc.KMeans(8, init=start, tol=0).fit(X, sample_weight=w)
    assert one.history_[0]["n_empty"] == 3
    same_bits(dc.KMeans(8, init=start, tol=0).fit(str(tmp_path / "rows.npy"), sample_weight=w), one)
