"""What all estimators have in common: rows that they refuse, limits, callbacks, the cosine metric."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import daskcluster as dc
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.events import Event, IterationEnded, StopFit

X = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
ITERATED: dict[str, Any] = {
    "k-means": dc.KMeans(4, tol=0, random_state=0),
    "mini-batches": dc.MiniBatchKMeans(
        4, batch_size=20, max_no_improvement=None, reassignment_ratio=0, random_state=0
    ),
    "nested mini-batches": dc.NestedMiniBatchKMeans(4, batch_size=50, tol=0, random_state=0),
    "variance reduction": dc.VarianceReducedKMeans(4, tol=0, random_state=0),
    "backward Euler": dc.BackwardEulerKMeans(4, batch_size=50, random_state=0),
    "mixture": dc.VariationalGaussianMixture(4, tol=0, random_state=0),
}
OTHERS: dict[str, Any] = {
    "backward Euler, starts": dc.BackwardEulerKMeans(4, n_init=3, random_state=0),
    "hierarchical": dc.HierarchicalKMeans(9, random_state=0),
    "coreset": dc.CoresetKMeans(4, coreset_size=50, random_state=0),
    "streaming": dc.StreamingKMeans(4, coreset_size=50, random_state=0),
    "lightweight coreset": dc.LightweightCoreset(20, random_state=0),
    "kernel": dc.KernelKMeans(4, random_state=0),
    "mini-batch kernel": dc.MiniBatchKernelKMeans(4, gamma=0.1, random_state=0),
}
EVERY = ITERATED | OTHERS


@pytest.mark.parametrize("name", EVERY)
def test_the_first_row_that_is_not_finite_is_named(name: str) -> None:
    for value, text in ((np.nan, "NaN"), (np.inf, "infinity")):
        bad = X.copy()
        bad[123, 2] = value
        with pytest.raises(InvalidDataError, match=f"{text}.*row 123"):
            clone(EVERY[name]).fit(bad)


@pytest.mark.parametrize("name", ITERATED)
def test_without_iterations_the_initial_centres_are_kept(name: str) -> None:
    model = clone(ITERATED[name]).set_params(init=X[:4], max_iter=0).fit(X)
    centres = model.means_ if name == "mixture" else model.cluster_centers_
    assert np.array_equal(centres, X[:4])
    assert (model.n_iter_, model.history_, model.stop_reason_) == (0, [], "max_iter")
    assert np.array_equal(model.labels_, model.predict(X))


@pytest.mark.parametrize("name", ITERATED)
def test_time_limits_and_callbacks_end_a_fit(name: str) -> None:
    limited = clone(ITERATED[name]).set_params(max_time=1e-9).fit(X)
    assert (limited.stop_reason_, len(limited.history_)) == ("max_time", 1)

    def stop(event: Event) -> None:
        if getattr(event, "iteration", 0) == 3:
            raise StopFit

    stopped = clone(ITERATED[name]).set_params(callbacks=[stop]).fit(X)
    assert (stopped.stop_reason_, stopped.history_[-1]["iteration"]) == ("callback", 3)
    assert np.array_equal(stopped.labels_, stopped.predict(X))


@pytest.mark.parametrize(
    "name", [each for each, model in EVERY.items() if hasattr(model, "metric")]
)
def test_cosine_fits_have_centres_of_length_one_whatever_the_lengths_of_rows(name: str) -> None:
    model = clone(EVERY[name]).set_params(metric="cosine").fit(X)
    np.testing.assert_allclose(np.linalg.norm(model.cluster_centers_, axis=1), 1.0, rtol=1e-6)
    longer = clone(model).fit(X * np.float32(8.0))
    assert np.array_equal(longer.labels_, model.labels_)


WEIGHTS = np.random.default_rng(1).integers(1, 4, size=len(X)).astype(np.float64)
OTHER_ROWS = np.random.default_rng(2).normal(size=(80, 4)).astype(np.float32)
_WHOLE = {"batch_size": len(X), "max_iter": 3}
RECORDED: dict[str, tuple[Any, str]] = {
    "k-means": (dc.KMeans(4, tol=0, max_iter=3), "max_iter"),
    "mini-batches": (
        dc.MiniBatchKMeans(
            4, **_WHOLE, init="random", max_no_improvement=None, reassignment_ratio=0
        ),
        "max_iter",
    ),
    "nested mini-batches": (dc.NestedMiniBatchKMeans(4, **_WHOLE, tol=0), "max_iter"),
    "variance reduction": (dc.VarianceReducedKMeans(4, tol=0, max_iter=3), "max_iter"),
    "backward Euler": (dc.BackwardEulerKMeans(4, **_WHOLE), "max_iter"),
    "backward Euler, starts": (dc.BackwardEulerKMeans(4, **_WHOLE, n_init=2), "max_iter"),
    "hierarchical": (dc.HierarchicalKMeans(9, n_coarse=3, tol=0, refine_iter=3), "refine_iter"),
    "coreset": (dc.CoresetKMeans(4, coreset_size=len(X), tol=0, max_iter=3), "max_iter"),
    "mixture": (dc.VariationalGaussianMixture(4, truncation=4, tol=0, max_iter=3), "max_iter"),
    "kernel": (dc.KernelKMeans(4, gamma=0.1, max_iter=3), "max_iter"),
    "mini-batch kernel": (dc.MiniBatchKernelKMeans(4, gamma=0.1, **_WHOLE), "max_iter"),
}
"""Fits whose last iteration is on all rows, and the parameter that limits their iterations."""


def squared_distances(model: Any, rows: np.ndarray) -> np.ndarray:
    """Return the squared distances (n, k) of rows to the centres of a model, by NumPy alone."""
    rows, known = rows.astype(np.float64), X.astype(np.float64)
    if not hasattr(model, "support_"):
        centres = model.means_ if hasattr(model, "means_") else model.cluster_centers_
        return ((rows[:, None] - centres.astype(np.float64)) ** 2).sum(axis=2)

    def gram(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.exp(-model.gamma_ * ((left[:, None] - right) ** 2).sum(axis=2))

    factors = np.zeros((len(known), 4))
    np.add.at(factors, (model.support_, model.support_clusters_), model.support_coefficients_)
    norms = (factors * (gram(known, known) @ factors)).sum(axis=0)
    return 1.0 - 2.0 * gram(rows, known) @ factors + norms


@pytest.mark.parametrize("name", RECORDED)
def test_records_have_the_mean_squared_distance_before_the_iteration(name: str) -> None:
    model, limit = RECORDED[name]
    heard: list[IterationEnded] = []
    model = clone(model).set_params(random_state=0)
    before = clone(model).set_params(**{limit: 2}).fit(X, sample_weight=WEIGHTS)
    model.set_params(callbacks=[lambda e: heard.append(e) if isinstance(e, IterationEnded) else 0])
    model.fit(X, sample_weight=WEIGHTS)
    distances = squared_distances(before, X)
    shares = np.zeros_like(distances)
    shares[np.arange(len(X)), distances.argmin(axis=1)] = 1.0
    if name == "mixture":
        shares = np.exp(-0.5 * (distances - distances.min(axis=1)[:, None]) / before.covariances_)
        shares /= shares.sum(axis=1)[:, None]
    expected = (WEIGHTS * (shares * distances).sum(axis=1)).sum() / WEIGHTS.sum()
    figures = [record["mean_squared_distance"] for record in model.history_]
    assert (len(figures), model.stop_reason_) == (3, "max_iter")
    np.testing.assert_allclose(figures[-1], expected, rtol=1e-5)
    if "starts" not in name:  # whose events stay where they run
        assert [event.mean_squared_distance for event in heard] == figures


@pytest.mark.parametrize("name", RECORDED)
def test_other_rows_are_measured_after_each_iteration(name: str) -> None:
    model = clone(RECORDED[name][0]).set_params(random_state=0)
    plain = clone(model).fit(X)
    validated = model.set_params(validation=OTHER_ROWS).fit(X)
    figures = [record["validation"] for record in validated.history_]
    expected = squared_distances(validated, OTHER_ROWS).min(axis=1).mean()
    np.testing.assert_allclose(figures[-1], expected, rtol=1e-5)
    assert len(set(figures)) == len(plain.history_) == 3
    assert validated.inertia_ == plain.inertia_ if hasattr(plain, "inertia_") else True
    assert np.array_equal(validated.labels_, plain.labels_)


@pytest.mark.parametrize("kernel", ["precomputed", "knn"])
def test_rows_without_distances_are_refused_for_validation(kernel: str) -> None:
    rows = X @ X.T if kernel == "precomputed" else X
    for kind in (dc.KernelKMeans, dc.MiniBatchKernelKMeans):
        with pytest.raises(InvalidParameterError, match="validation= needs distances"):
            kind(4, kernel=kernel, validation=rows, random_state=0).fit(rows)
