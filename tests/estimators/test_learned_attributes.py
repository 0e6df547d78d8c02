"""What is learnt is found as scikit-learn's is: in `vars()`, with an underscore at its end."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import daskcluster as dc

X = np.random.default_rng(0).normal(size=(600, 3)) * [1.0, 10.0, 100.0] + [0.0, 5.0, 50.0]


def wrapped(estimator: Any) -> dict[str, Any]:
    """Return what a wrapper such as dask_ml's Incremental copies of a fitted estimator."""
    return {name: value for name, value in vars(estimator).items() if name.endswith("_")}


@pytest.mark.parametrize(
    ("estimator", "name"),
    [
        (dc.KMeans(3, random_state=0), "cluster_centers_"),
        (dc.MiniBatchKMeans(3, random_state=0), "cluster_centers_"),
        (dc.VariationalGaussianMixture(3, random_state=0), "means_"),
    ],
)
def test_a_wrapper_finds_what_was_learnt(estimator: Any, name: str) -> None:
    fitted = estimator.fit(X)
    assert wrapped(fitted)[name] is getattr(fitted, name)
    assert getattr(fitted, name).shape == (3, 3)


def test_centres_of_steps_are_found() -> None:
    model = dc.MiniBatchKMeans(3, random_state=0)
    for part in np.array_split(X, 3):
        model.partial_fit(part)
        assert wrapped(model)["cluster_centers_"] is model.cluster_centers_


def test_nothing_is_there_before_a_fit() -> None:
    for estimator in (dc.KMeans(3), dc.VariationalGaussianMixture(3)):
        assert wrapped(estimator) == {}
        assert not hasattr(estimator, "cluster_centers_")
        assert not hasattr(estimator, "means_")


@pytest.mark.parametrize("taken", [pickle.dumps, copy.deepcopy])
def test_copies_of_a_scaled_fit_have_its_centres(taken: Any) -> None:
    model = dc.KMeans(3, random_state=0).fit(dc.open_dataset(X, scale="standard"))
    twin = taken(model)
    twin = pickle.loads(twin) if isinstance(twin, bytes) else twin
    assert np.array_equal(twin.cluster_centers_, model.cluster_centers_)
    assert twin._centres.tobytes() == model._centres.tobytes()
    assert wrapped(model)["cluster_centers_"] is model.cluster_centers_


def test_centres_that_are_set_are_those_that_label() -> None:
    for rows in (X, dc.open_dataset(X, scale="standard")):
        model = dc.KMeans(3, random_state=0).fit(rows)
        model.cluster_centers_ = X[:3].copy()
        assert model.predict(X[:3]).tolist() == [0, 1, 2]
