"""KernelKMeans against a plain reference, graphs of neighbours, and itself elsewhere."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import zarr
from scipy.linalg import expm
from sklearn.neighbors import kneighbors_graph
from sklearn.utils.estimator_checks import check_estimator

import daskcluster as dc
from daskcluster.algorithms import gram_graph, kernel_full
from daskcluster.errors import InvalidParameterError
from tests.estimators.test_minibatch_kernel import agreement, counts, rings
from tests.reference import kernel_kmeans as reference

SEEDS = np.array([3, 60, 122, 301])


def fitted(X, weights=None, **parameters):
    options = {"init": SEEDS, "gamma": 0.05, "random_state": 0, **parameters}
    return dc.KernelKMeans(4, **options).fit(X, sample_weight=weights)


def wanted(K, weights=None, seeds=SEEDS):
    first = reference.sqdist(K, np.eye(len(K))[seeds]).argmin(axis=1)
    return reference.full_batch(K, first, weights)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kernel", ["rbf", "precomputed"])
def test_the_fit_is_that_of_the_reference(kernel, weighted, monkeypatch):
    monkeypatch.setattr(kernel_full, "_BLOCK_BYTES", 1)
    monkeypatch.setattr(kernel_full, "_LEAST_BLOCK", 150)
    X = counts()
    weights = np.random.default_rng(1).integers(0, 4, len(X)).astype(float) if weighted else None
    K = reference.gram(X, X, gamma=0.05)
    model = fitted(X if kernel == "rbf" else K, weights, kernel=kernel)
    labels, coefficients = wanted(K, weights)
    np.testing.assert_array_equal(model.labels_, labels)
    assert model.stop_reason_ == "converged"
    squares = reference.sqdist(K, coefficients).min(axis=1)
    cost = squares @ (np.ones(len(X)) if weights is None else weights)
    assert model.inertia_ == pytest.approx(cost, rel=1e-9)
    np.testing.assert_array_equal(model.predict(X if kernel == "rbf" else K), labels)


def test_inertia_never_rises():
    inertia = [record["inertia"] for record in fitted(counts()).history_]
    assert all(after <= before * (1 + 1e-12) for before, after in pairwise(inertia))


def test_chunks_and_workers_do_not_matter(tmp_path, client):
    X = counts().astype(np.float32)
    expected = fitted(X, max_iter=2, engine=dc.LocalEngine(n_threads=1))
    url = str(tmp_path / "rows.zarr")
    zarr.create_array(url, shape=X.shape, chunks=(77, 12), dtype=X.dtype)[:] = X
    for found in (fitted(X, max_iter=2), fitted(url, max_iter=2, engine=client)):
        np.testing.assert_array_equal(np.asarray(found.labels_), expected.labels_)
        assert found.inertia_ == expected.inertia_


def test_rings_are_told_apart_by_seeds_of_their_own():
    X, ring = rings(600)
    for kernel in ("rbf", "heat"):
        model = dc.KernelKMeans(2, kernel=kernel, gamma=0.1, heat_time=200.0, random_state=0)
        assert agreement(model.fit_predict(X), ring) == 1.0


def test_an_empty_cluster_keeps_its_centre():
    X = np.array([[0.0], [0.1], [5.0], [5.1]])
    model = dc.KernelKMeans(3, init=np.array([0, 0, 2]), gamma=1.0).fit(X)
    # Cluster 0 takes rows 0 and 1 and moves between them; 1 has stayed at row 0, and gets it.
    assert model.history_[1]["n_empty"] == 0
    assert model.history_[0]["n_empty"] == 1
    assert model.labels_.tolist() == [1, 0, 2, 2]
    np.testing.assert_array_equal(model.predict(X), model.labels_)


# -- graphs -----------------------------------------------------------------------------------------


def graph(X, n_neighbors=10):
    nearest = kneighbors_graph(X, n_neighbors, include_self=True).toarray()
    adjacency = np.maximum(nearest, nearest.T)
    return adjacency, adjacency.sum(axis=1)


def knn(X):
    adjacency, degrees = graph(X)
    return adjacency / degrees[:, None] / degrees


def heat(X, t=1.0):
    adjacency, degrees = graph(X)
    scaled = adjacency / np.sqrt(degrees[:, None] * degrees)
    return expm(-t * (np.eye(len(X)) - scaled))


@pytest.mark.parametrize(("kernel", "matrix"), [("knn", knn), ("heat", heat)])
def test_graphs_give_the_clusters_of_their_matrix(kernel, matrix):
    X = counts()
    model = fitted(X, kernel=kernel)
    labels, coefficients = wanted(matrix(X))
    np.testing.assert_array_equal(model.labels_, labels)
    squares = reference.sqdist(matrix(X), coefficients).min(axis=1)
    assert model.inertia_ == pytest.approx(squares.sum(), rel=1e-8)
    with pytest.raises(InvalidParameterError, match="rows of the fit only"):
        model.predict(X)
    with pytest.raises(InvalidParameterError, match="rows of the fit only"):
        model.save("memory://kernel/graph.zarr")


@pytest.mark.parametrize("t", [0.3, 1.0, 40.0])
def test_the_heat_kernel_is_the_exponential(t):
    from scipy.sparse import csr_array

    X = counts(120)
    gram = gram_graph.GraphGram(csr_array(graph(X)[0]), t)
    np.testing.assert_allclose(gram.columns(np.arange(120)), heat(X, t), atol=1e-11)
    np.testing.assert_allclose(gram.diagonal(), np.diag(heat(X, t)), atol=1e-11)


def test_the_diagonal_of_a_large_heat_kernel_is_an_estimate(monkeypatch):
    X = counts()
    exact = fitted(X, kernel="heat")
    monkeypatch.setattr(gram_graph, "EXACT_ROWS", 100)
    found = fitted(X, kernel="heat")
    assert found.inertia_ == pytest.approx(exact.inertia_, rel=0.05)
    heard = []
    fitted(X, kernel="heat", callbacks=[heard.append])
    assert any("is an estimate" in getattr(event, "text", "") for event in heard)


def test_the_saved_model_predicts():
    X = counts()
    model = fitted(X)
    model.save("memory://kernel/full.zarr", overwrite=True)
    loaded = dc.load_model("memory://kernel/full.zarr")
    assert type(loaded) is dc.KernelKMeans
    np.testing.assert_array_equal(loaded.predict(X), model.labels_)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"init": np.array([1, 2])}, "init of shape"),
        ({"init": np.array([0, 1, 2, 400])}, "row numbers in 0 to 399"),
        ({"kernel": "knn", "n_neighbors": 401}, "n_neighbors=401 should be <= n_samples=400"),
        ({"heat_time": 0.0}, "'heat_time' parameter"),
    ],
)
def test_bad_parameters_are_refused(parameters, text):
    with pytest.raises(InvalidParameterError, match=text):
        fitted(counts(), **parameters)


def test_scikit_learns_checks():
    check_estimator(
        dc.KernelKMeans(3, max_iter=5, random_state=0),
        on_fail="raise",
        expected_failed_checks={
            "check_sample_weight_equivalence_on_dense_data": "rows and copies draw different numbers",
            "check_sample_weight_equivalence_on_sparse_data": "rows and copies draw different numbers",
        },
    )
