"""What all estimators have in common: rows that they refuse, limits, callbacks, the cosine metric."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import daskcluster as dc
from daskcluster.errors import InvalidDataError
from daskcluster.events import Event, StopFit

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
