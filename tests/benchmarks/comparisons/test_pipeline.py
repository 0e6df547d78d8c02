"""The benchmarks of coresets and of the whole way from a store to labels, on few rows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.benchmarks.comparisons import coreset, pipeline
from tests.reference import coreset as reference


def test_stages_follow_the_lines() -> None:
    lines = [(1.0, "vc-gmm: 10 rows"), (4.0, "coreset of 5"), (6.0, "seeding by x"), (9.0, "ended")]
    found = pipeline.stages_of(lines, 20.0)
    assert list(found.values()) == [1.0, 3.0, 2.0, 3.0, 11.0]


def test_numpy_draws_coresets_of_the_same_distribution() -> None:
    X = np.random.default_rng(0).lognormal(size=(500, 3))
    rows, weights = coreset.numpy_coreset(X, 4000, 1)
    q = reference.probabilities(X, X.mean(axis=0))
    assert rows.shape == (4000, 3)
    assert set(np.round(weights * 4000, 6)) <= set(np.round(1 / q, 6))
    assert weights.sum() == pytest.approx(500, rel=0.1)
