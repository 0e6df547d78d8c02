"""Fixtures that scikit-learn's own tests ask for, and what of them does not apply here."""

from __future__ import annotations

import numpy as np
import pytest

from tests.estimators.sklearn_suite import expected_failure, not_applicable


@pytest.fixture
def global_random_seed():
    return 42


@pytest.fixture(params=[np.float32, np.float64])
def global_dtype(request):
    return request.param


def pytest_collection_modifyitems(config, items):
    kept, dropped = [], []
    for item in items:
        theirs = item.path.name == "test_sklearn_suite.py"
        gone = theirs and not_applicable(item.name)
        if theirs and (why := expected_failure(item.name)):
            item.add_marker(pytest.mark.xfail(reason=why, strict=True))
        (dropped if gone else kept).append(item)
    items[:] = kept
    if dropped:
        config.hook.pytest_deselected(items=dropped)
