"""The inertia from statistics: the terms are those of the rows themselves."""

from __future__ import annotations

import numpy as np
import pytest

from daskcluster.kernels.distance import inertia_terms


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("with_low", [False, True])
@pytest.mark.parametrize(("k", "d"), [(1, 1), (3, 7), (5, 8), (11, 43)])
def test_terms_are_those_of_the_rows(kind: type, with_low: bool, k: int, d: int) -> None:
    rng = np.random.default_rng(d)
    rows, labels = 5.0 + rng.standard_normal((40, d)), np.arange(40) % k
    weights = rng.lognormal(size=40)
    centres, origin = (5.0 + rng.standard_normal((k, d))).astype(kind), rows.mean(axis=0)
    sums = np.stack([weights[labels == j] @ rows[labels == j] for j in range(k)])
    masses = np.array([weights[labels == j].sum() for j in range(k)])
    low = 1e-3 * rng.standard_normal((k, d)) if with_low else None
    high = sums if low is None else sums - low
    inner, outer = inertia_terms(high, low, masses, centres, origin)
    about = centres[labels] - origin
    assert np.isclose(inner, (weights[:, None] * (rows - origin) * about).sum(), rtol=1e-12)
    assert np.isclose(outer, (weights[:, None] * about * about).sum(), rtol=1e-12)
