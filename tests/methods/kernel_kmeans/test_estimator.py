"""KernelKMeans against a plain reference, on graphs of neighbours, and on several engines."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import zarr
from scipy import sparse

import daskcluster as dc
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.events import StartEnded
from daskcluster.methods.kernel_kmeans import algorithm as kernel_full
from daskcluster.methods.kernel_kmeans import graph as gram_graph
from daskcluster.methods.kernel_kmeans.fit import kernel_kmeans_plusplus
from tests.methods.kernel_kmeans.minibatch.test_estimator import agreement, counts, rings
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
def test_the_fit_matches_the_reference(kernel, weighted, monkeypatch):
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


@pytest.mark.parametrize("trials", [1, 5, None])
def test_seeds_come_from_as_many_candidates_as_asked_for(trials):
    X = counts()
    K, chosen = X @ X.T, {}

    def columns(which):
        chosen["most"] = max(chosen.get("most", 1), len(which))
        return K[:, which]

    for seed in range(8):
        key = {"n_local_trials": trials, "random_state": seed, "max_iter": 0, "kernel": "linear"}
        rows = kernel_kmeans_plusplus(columns, np.diag(K), None, 4, seed, n_local_trials=trials)
        assert dc.KernelKMeans(4, **key).fit(X).support_.tolist() == rows.tolist()
        assert len(dc.MiniBatchKernelKMeans(4, **key).fit(X).support_) == 4
    assert chosen["most"] == (trials or 3)


def test_one_candidate_is_drawn_in_proportion_to_its_squared_distance():
    places = np.array([0.0, 0.0, 1.0, 2.0, 4.0])
    K, weights, n = np.outer(places, places), np.array([1.0, 0.0, 0.0, 0.0, 0.0]), 1500
    found = np.zeros(5)
    for seed in range(n):
        first = kernel_kmeans_plusplus(
            lambda which: K[:, which], np.diag(K), weights, 1, seed, n_local_trials=1
        )
        assert first.tolist() == [0]
        weighted = np.where(np.arange(5) == 0, 1e9, 1.0)  # the first is row 0 again
        rows = kernel_kmeans_plusplus(
            lambda which: K[:, which], np.diag(K), weighted, 2, seed, n_local_trials=1
        )
        found[rows[1]] += 1
    np.testing.assert_allclose(found / n, places**2 / 21.0, atol=0.05)


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


def test_rings_are_separated_with_good_seeds():
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


@pytest.mark.parametrize(("kernel", "matrix"), [("knn", reference.knn), ("heat", reference.heat)])
def test_graphs_give_the_same_clusters_as_their_matrix(kernel, matrix):
    X = counts()
    model = fitted(X, kernel=kernel)
    labels, coefficients = wanted(matrix(X))
    np.testing.assert_array_equal(model.labels_, labels)
    squares = reference.sqdist(matrix(X), coefficients).min(axis=1)
    assert model.inertia_ == pytest.approx(squares.sum(), rel=1e-8)
    np.testing.assert_array_equal(model.predict(X), labels)


@pytest.mark.parametrize("t", [0.3, 1.0, 40.0, 200.0, 2000.0])
def test_the_heat_kernel_is_the_exponential(t):
    X = counts(120)
    gram = gram_graph.GraphGram(sparse.csr_array(reference.graph(X)[0]), t)
    np.testing.assert_allclose(gram.columns(np.arange(120)), reference.heat(X, t), atol=1e-11)
    np.testing.assert_allclose(gram.diagonal, np.diag(reference.heat(X, t)), atol=1e-11)


def test_the_diagonal_of_a_large_heat_kernel_is_an_estimate(monkeypatch):
    X = counts()
    exact = fitted(X, kernel="heat")
    monkeypatch.setattr(gram_graph, "EXACT_ROWS", 100)
    found = fitted(X, kernel="heat")
    assert found.inertia_ == pytest.approx(exact.inertia_, rel=0.05)
    heard = []
    fitted(X, kernel="heat", callbacks=[heard.append])
    assert any("is an estimate" in getattr(event, "text", "") for event in heard)


def extended(X, Z, t=None):
    """K of rows Z and the rows of the fit X by definition, with full n x n matrices."""
    adjacency, degrees = reference.graph(X)
    radii = np.sort(((X[:, None] - X[None]) ** 2).sum(axis=2), axis=1)[:, 9]
    squares = ((Z[:, None] - X[None]) ** 2).sum(axis=2)
    own = np.sort(squares, axis=1)[:, 9]
    edges = (squares <= np.maximum(own[:, None], radii)).astype(float)
    here = edges.sum(axis=1)
    if t is None:
        return edges / here[:, None] / degrees
    walks, step = np.zeros_like(adjacency), np.eye(len(X)) * np.exp(-t)
    scaled = adjacency / np.sqrt(degrees[:, None] * degrees)
    for m in range(1, 60):
        step = step * (t / m)
        walks += step
        step = step @ scaled
    twins = (squares == 0.0).astype(float)
    twins /= np.maximum(twins.sum(axis=1, keepdims=True), 1.0)
    return np.exp(-t) * twins + edges / np.sqrt(here[:, None] * degrees) @ walks


@pytest.mark.parametrize("kind", [dc.KernelKMeans, dc.MiniBatchKernelKMeans])
@pytest.mark.parametrize(("kernel", "t"), [("knn", None), ("heat", 8.0)])
def test_new_rows_join_the_graph_by_their_own_edges(kernel, t, kind):
    X, Z = counts(300), np.vstack([counts(100, seed=5), counts(300)[:20], counts(80, seed=6) + 0.5])
    first = np.array([3, 60, 122, 201])
    model = kind(4, kernel=kernel, heat_time=t or 1.0, init=first, random_state=0).fit(X)
    made = np.zeros((4, len(X)))
    np.add.at(made, (model.support_clusters_, model.support_), model.support_coefficients_)
    K = reference.knn(X) if t is None else reference.heat(X, t)
    norms = np.einsum("jn,nm,jm->j", made, K, made)
    wanted = (norms - 2.0 * extended(X, Z, t) @ made.T).argmin(axis=1)
    np.testing.assert_array_equal(model.predict(Z), wanted)
    assert len(set(wanted[:100])) > 1


@pytest.mark.parametrize("kernel", ["knn", "heat"])
@pytest.mark.parametrize("rows", ["dense", "sparse", "single"])
def test_a_graphs_saved_model_labels_rows(kernel, rows, tmp_path, client):
    X, Z = counts(300), counts(150, seed=5)
    wanted = fitted(X, kernel=kernel, init=np.arange(4)).predict(Z)
    made = {"dense": np.asarray, "sparse": sparse.csr_matrix, "single": np.float32}[rows]
    model = fitted(made(X), kernel=kernel, init=np.arange(4))
    np.testing.assert_array_equal(model.labels_, model.predict(made(X)))
    model.save(str(tmp_path / "model"))
    loaded = dc.load_model(str(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict(made(Z)), wanted)
    assert loaded.to_model().own() == model.to_model().own()
    zarr.create_array(tmp_path / "Z.zarr", shape=Z.shape, chunks=(40, 12), dtype=Z.dtype)[:] = Z
    loaded.set_params(engine=client).predict(
        str(tmp_path / "Z.zarr"), output=str(tmp_path / "labels.zarr")
    )
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "labels.zarr")[:], wanted)


def test_equal_rows_have_equal_labels():
    X = np.repeat(counts(60), 5, axis=0)
    for kernel in ("knn", "heat"):
        labels = fitted(X, kernel=kernel, init=np.array([0, 50, 100, 250])).labels_.reshape(60, 5)
        assert (labels == labels[:, :1]).all()
    with pytest.raises(InvalidDataError, match="rows are alike"):
        fitted(np.repeat(counts(4), 400, axis=0), kernel="knn")


def test_a_graph_has_no_distances_of_other_rows():
    X = counts()
    model = fitted(X, kernel="heat")
    for what in (model.transform, model.score):
        with pytest.raises(InvalidParameterError, match=r"their K\(x, x\) is not known"):
            what(X)


def test_the_best_of_several_starts_is_kept():
    X, heard = counts(), []
    one, more = (
        dc.KernelKMeans(4, gamma=0.05, init="random", n_init=n, random_state=0, callbacks=[call])
        for n, call in ((1, lambda event: None), (5, heard.append))
    )
    one.fit(X)
    more.fit(X)
    starts = [event.inertia for event in heard if isinstance(event, StartEnded)]
    assert len(starts) == 5
    assert starts[0] == pytest.approx(one.inertia_, rel=1e-9)
    assert min(starts) < starts[0]
    assert more.inertia_ == pytest.approx(min(starts), rel=1e-9)
    with pytest.warns(RuntimeWarning, match="performing only one init"):
        fitted(X, n_init=3, max_iter=1)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"init": np.array([1, 2])}, "4 row numbers in 0 to 399"),
        ({"init": np.array([0, 1, 2, 400])}, "row numbers in 0 to 399"),
        ({"kernel": "knn", "n_neighbors": 401}, "n_neighbors=401 should be <= n_samples=400"),
    ],
)
def test_bad_parameters_are_refused(parameters, text):
    with pytest.raises(InvalidParameterError, match=text):
        fitted(counts(), **parameters)
