"""KMeans beyond scikit-learn's own tests: degenerate input, error texts, warm starts, pickles."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score

import daskcluster as dc
from daskcluster import errors

X = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)


@pytest.mark.parametrize(
    ("parameters", "rows", "error", "text"),
    [
        (
            {"n_clusters": 301},
            X,
            ValueError,
            r"n_samples=300 should be >= n_clusters=301; pass n_clusters",
        ),
        ({"random_state": "x"}, X, TypeError, r"random_state='x' should be None"),
        ({"init": "kmeans"}, X, ValueError, r"init='kmeans' should be one of auto, k-means\+\+"),
        (
            {"init": X[:7]},
            X,
            ValueError,
            r"initial centers \(7, 4\) does not match the number of clusters 8",
        ),
        (
            {"init": X[:8, :3]},
            X,
            ValueError,
            r"does not match the number of features of the data 4",
        ),
        ({"init": X[:8] * np.nan}, X, ValueError, r"initial centers contain NaN"),
        ({}, X[0], ValueError, r"Expected 2D array, got 1D array instead"),
        ({}, X[None], ValueError, r"3"),
        ({}, X[:0], ValueError, r"0 sample"),
        ({}, X.astype(complex), ValueError, r"[Cc]omplex"),
    ],
)
def test_bad_input(parameters, rows, error, text):
    with pytest.raises(error, match=text):
        dc.KMeans(**parameters).fit(rows)


@pytest.mark.parametrize(
    ("init", "value", "text"),
    [("random", np.nan, "NaN"), ("k-means++", np.inf, "infinity"), ("k-means||", -np.inf, "infin")],
)
def test_rows_that_are_not_finite_are_named(init, value, text):
    bad = X.copy()
    bad[[123, 250], 2] = value
    with pytest.raises(
        errors.InvalidDataError, match=rf"Input X contains {text}.*first in row 123"
    ):
        dc.KMeans(3, init=init, random_state=0).fit(bad)


def test_bad_row_names_its_chunk():
    import dask.array as da

    bad = X.copy()
    bad[123, 2] = np.nan
    with pytest.raises(errors.InvalidDataError, match=r"row 123 \(chunk 2\)"):
        dc.KMeans(3, init="random", random_state=0).fit(da.from_array(bad, chunks=(50, 4)))


@pytest.mark.parametrize("init", ["random", "k-means++", "k-means||"])
def test_all_rows_equal(init):
    with pytest.warns(
        ConvergenceWarning, match=r"distinct clusters \(1\) found smaller than n_clusters \(3\)"
    ):
        model = dc.KMeans(3, init=init, n_init=1, random_state=0).fit(np.ones((50, 2)))
    assert model.inertia_ == 0.0
    assert (model.cluster_centers_ == 1.0).all()


def test_centres_in_a_frame_are_taken_by_name():
    table = pd.DataFrame(X, columns=list("abcd"))
    expected = dc.KMeans(3, init=X[:3]).fit(X).cluster_centers_
    model = dc.KMeans(3, init=table[list("dbca")][:3]).fit(table)
    assert np.array_equal(model.cluster_centers_, expected)
    with pytest.raises(errors.InvalidDataError, match="feature names should match"):
        dc.KMeans(3, init=table.rename(columns={"a": "z"})[:3]).fit(table)


def test_empty_clusters_are_not_called_duplicates():
    init = np.vstack([X[:2], np.full((1, X.shape[1]), 1e3)])
    with pytest.warns(ConvergenceWarning, match="1 of 3 clusters are empty"):
        dc.MiniBatchKMeans(3, init=init, max_iter=2, reassignment_ratio=0).fit(X)


@pytest.mark.parametrize("init", ["random", "k-means++", "k-means||"])
def test_as_many_clusters_as_rows(init):
    model = dc.KMeans(20, init=init, random_state=0).fit(X[:20])
    assert model.inertia_ == pytest.approx(0.0, abs=1e-9)
    assert sorted(model.labels_) == list(range(20))


def test_one_feature_one_row():
    model = dc.KMeans(1).fit(np.array([[3.0]]))
    assert model.cluster_centers_.tolist() == [[3.0]]


def test_stop_reasons():
    start = X[:8]
    assert dc.KMeans(8, init=start, tol=0).fit(X).stop_reason_ == "converged"
    assert dc.KMeans(8, init=start, tol=0.5).fit(X).stop_reason_ == "tolerance"
    assert dc.KMeans(8, init=start, max_iter=2, tol=0).fit(X).stop_reason_ == "max_iter"


def test_history_falls_to_the_inertia():
    model = dc.KMeans(8, init=X[:8], tol=0).fit(X)
    inertias = [record["inertia"] for record in model.history_]
    assert inertias == sorted(inertias, reverse=True)
    assert inertias[-1] == pytest.approx(model.inertia_, rel=1e-6)


def test_summary_adds_up():
    weights = np.random.default_rng(1).random(300)
    model = dc.KMeans(4, random_state=0).fit(X, sample_weight=weights)
    summary = model.summary()
    assert summary["size"].sum() == 300
    assert summary["weight"].sum() == pytest.approx(weights.sum())
    assert summary["cost"].sum() == pytest.approx(model.inertia_)


def test_cosine_is_spherical():
    rng = np.random.default_rng(0)
    directions = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])
    rows = directions[rng.integers(0, 3, 200)] + 0.05 * rng.normal(size=(200, 3))
    lengths = rng.lognormal(sigma=3, size=(200, 1))
    model = dc.KMeans(3, metric="cosine", random_state=0).fit(rows * lengths)
    np.testing.assert_allclose(np.linalg.norm(model.cluster_centers_, axis=1), 1.0)
    assert np.array_equal(
        model.labels_, dc.KMeans(3, metric="cosine", random_state=0).fit(rows).labels_
    )
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = (unit @ model.cluster_centers_.T).max(axis=1)
    assert model.inertia_ == pytest.approx((2 - 2 * cosines).sum())


def test_n_nearest():
    model = dc.KMeans(6, random_state=0).fit(X)
    truth = np.linalg.norm(X[:, None].astype(float) - model.cluster_centers_, axis=2)
    labels, distances = model.predict(X, n_nearest=3, return_distance=True)
    assert np.array_equal(labels[:, 0], model.labels_)
    np.testing.assert_allclose(distances, np.sort(truth, axis=1)[:, :3], rtol=1e-5)
    np.testing.assert_allclose(model.transform(X), truth, rtol=1e-5)
    one, nearest = model.predict(X, return_distance=True)
    assert np.array_equal(one, labels[:, 0])
    assert np.array_equal(nearest, distances[:, 0])
    with pytest.raises(ValueError, match=r"n_nearest=7 should be in \[1, 6\]"):
        model.predict(X, n_nearest=7)


def test_lazy_predictions_of_dask_arrays():
    import dask.array as da

    model = dc.KMeans(6, random_state=0).fit(X)
    rows = da.from_array(X, chunks=((100, 0, 200), (4,)))
    labels = model.predict(rows)
    assert labels.chunks == ((100, 0, 200),)
    assert np.array_equal(labels.compute(), model.labels_)
    np.testing.assert_array_equal(model.transform(rows).compute(), model.transform(X))
    nearest, distances = model.predict(rows, n_nearest=2, return_distance=True)
    assert nearest.compute().shape == distances.compute().shape == (300, 2)
    fitted = dc.KMeans(3, random_state=0, engine="local").fit(rows)
    assert isinstance(fitted.labels_, da.Array)
    assert np.array_equal(fitted.labels_.compute(), fitted.predict(X))


def test_lazy_labels_on_a_cluster(client):
    import dask.array as da

    rows = da.from_array(X, chunks=((100, 0, 200), (4,)))
    fitted = dc.KMeans(3, random_state=0, engine="local").fit(rows)
    lazy = fitted.labels_
    assert lazy.chunks == ((100, 0, 200),)
    assert np.array_equal(client.compute(lazy).result(), np.asarray(fitted.labels_))


@pytest.mark.parametrize("how", ["estimator", "url", "callable"])
def test_warm_start(tmp_path, how):
    model = dc.KMeans(5, random_state=0, max_iter=2).fit(X)
    if how == "url":
        model.save(str(tmp_path / "model"))
    init = {
        "estimator": model,
        "url": str(tmp_path / "model"),
        "callable": lambda rows, k, random_state: model.cluster_centers_,
    }[how]
    warm = dc.KMeans(5, init=init, max_iter=0).fit(X)
    assert (warm.cluster_centers_ == model.cluster_centers_).all()
    assert warm.seeding_ == ("callable" if how == "callable" else "model")


def test_clones_keep_engine_and_callbacks_and_pickles_do_not():
    engine, heard = dc.LocalEngine(n_threads=1), []
    model = dc.KMeans(3, random_state=0, engine=engine, callbacks=[heard.append]).fit(X)
    assert heard
    twin = clone(model)
    assert twin.engine is engine
    assert twin.callbacks is model.callbacks
    again = pickle.loads(pickle.dumps(model))
    assert again.engine is None
    assert again.callbacks == ()
    assert np.array_equal(again.labels_, model.labels_)
    assert len(pickle.dumps(model)) < model.labels_.nbytes + 12_000


def test_inside_scikit_learn():
    scores = cross_val_score(dc.KMeans(3, random_state=0), X, cv=3)
    assert (scores < 0).all()
    frame = dc.KMeans(3, random_state=0).set_output(transform="pandas").fit_transform(X)
    assert list(frame.columns) == ["kmeans0", "kmeans1", "kmeans2"]


def test_frames_remember_their_columns():
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = dc.KMeans(3, random_state=0).fit(frame)
    assert model.feature_names_in_.tolist() == list("abcd")
    assert (model.predict(frame[list("bacd")]) == model.labels_).all()
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"a": "e"}))


def test_wrong_feature_count():
    import dask.array as da

    model = dc.KMeans(3, random_state=0).fit(X)
    for rows in (X[:, :3], da.from_array(X[:, :3])):
        with pytest.raises(
            ValueError, match="X has 3 features, but KMeans is expecting 4 features"
        ):
            model.predict(rows)


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        (np.ones(299), r"sample_weight.shape == \(299,\), expected \(300,\)"),
        (np.ones((300, 2)), r"Sample weights must be 1D array or scalar"),
        (np.zeros(300), r"zero"),
        (-np.ones(300), r"negative|>= 0"),
        (np.full(300, np.nan), r"NaN|finite"),
    ],
)
def test_bad_weights(weights, text):
    with pytest.raises(ValueError, match=text):
        dc.KMeans(3).fit(X, sample_weight=weights)
