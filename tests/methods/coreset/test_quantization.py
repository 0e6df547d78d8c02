"""Errors of centres, and errors relative to those of others."""

from __future__ import annotations

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.errors import InvalidDataError, InvalidParameterError

ROWS = np.random.default_rng(0).standard_normal((500, 3))


def test_relative_error_is_the_difference_over_the_reference() -> None:
    model = dc.KMeans(4, random_state=0).fit(ROWS)
    centres = ROWS[:4]
    one, other = dc.quantization_error(ROWS, centres), model.inertia_
    expected = (one - other) / other
    assert dc.relative_error(ROWS, centres, model) == pytest.approx(expected, rel=1e-12)
    assert dc.relative_error(ROWS, centres, model.cluster_centers_) == pytest.approx(expected)
    assert dc.relative_error(ROWS, centres, other) == pytest.approx(expected)
    assert dc.relative_error(ROWS, model, model) == 0.0


def test_weights_count() -> None:
    weights = np.random.default_rng(1).integers(1, 4, 500)
    copies = np.repeat(ROWS, weights, axis=0)
    weighted = dc.relative_error(ROWS, ROWS[:4], ROWS[4:9], sample_weight=weights)
    assert weighted == pytest.approx(dc.relative_error(copies, ROWS[:4], ROWS[4:9]), rel=1e-12)


def test_sums_and_means() -> None:
    weights = np.random.default_rng(1).random(500)
    centres, given = ROWS[:4], {"sample_weight": weights, "mean": True}
    nearest = ((ROWS[:, None] - centres) ** 2).sum(axis=2).min(axis=1)
    assert dc.quantization_error(ROWS, centres) == pytest.approx(nearest.sum(), rel=1e-12)
    assert dc.quantization_error(ROWS, centres, mean=True) == pytest.approx(nearest.mean())
    expected = np.average(nearest, weights=weights)
    assert dc.quantization_error(ROWS, centres, **given) == pytest.approx(expected)


def test_an_error_of_zero_and_other_features_are_no_reference() -> None:
    with pytest.raises(InvalidParameterError, match="nothing is relative to it"):
        dc.relative_error(ROWS, ROWS[:4], 0.0)
    with pytest.raises(InvalidDataError, match=r"reference centres of shape \(4, 2\)"):
        dc.relative_error(ROWS, ROWS[:4], ROWS[:4, :2])
