"""scikit-learn's checks, passed by all estimators."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import check_estimator

import daskcluster as dc

DENSE = "check_sample_weight_equivalence_on_dense_data"
SPARSE = "check_sample_weight_equivalence_on_sparse_data"
ESTIMATORS: dict[Any, tuple[str, ...]] = {
    dc.KMeans(random_state=0): (DENSE, SPARSE),
    dc.MiniBatchKMeans(random_state=0): (DENSE, SPARSE),
    dc.NestedMiniBatchKMeans(random_state=0): (DENSE, SPARSE),
    dc.VarianceReducedKMeans(n_clusters=3, max_iter=5): (DENSE, SPARSE),
    dc.BackwardEulerKMeans(random_state=0, max_iter=20): (DENSE, SPARSE),
    dc.HierarchicalKMeans(random_state=0): (DENSE, SPARSE),
    dc.CoresetKMeans(random_state=0): (DENSE, SPARSE),
    dc.StreamingKMeans(random_state=0): (DENSE, SPARSE),
    dc.KernelKMeans(3, max_iter=5, random_state=0): (DENSE, SPARSE),
    dc.MiniBatchKernelKMeans(3, max_iter=5, batch_size=50, random_state=0): (DENSE, SPARSE),
    dc.VariationalGaussianMixture(2, max_iter=5, truncation=3, n_neighbors=3, random_state=0): (
        DENSE,
    ),
    dc.LightweightCoreset(20, random_state=0): (),
}
"""Estimators, and the checks that they may fail: repeated and weighted rows draw other random numbers."""


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda each: type(each).__name__)
def test_scikit_learn_checks(estimator: Any) -> None:
    reasons = dict.fromkeys(ESTIMATORS[estimator], "repeated rows draw other random numbers")
    done = check_estimator(estimator, expected_failed_checks=reasons, on_fail="raise", on_skip=None)
    assert {each["check_name"] for each in done if each["status"] == "xfail"} == set(reasons)
