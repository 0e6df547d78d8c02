from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.errors import InvalidParameterError


@pytest.mark.parametrize("kind", [dc.StreamingKMeans, dc.CoresetKMeans])
def test_fewer_weighted_rows_than_clusters_are_refused(kind: Any) -> None:
    X = np.random.default_rng(0).normal(size=(50, 2))
    weights = np.r_[np.ones(3), np.zeros(47)]
    with pytest.raises(
        InvalidParameterError,
        match=r"^n_samples=50 should be >= n_clusters=5 .* 3 are left .* pass n_clusters <= 3",
    ):
        kind(5, random_state=0).fit(X, sample_weight=weights)
    assert len(kind(3, random_state=0).fit(X, sample_weight=weights).cluster_centers_) == 3
