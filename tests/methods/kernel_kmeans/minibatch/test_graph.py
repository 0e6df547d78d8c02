"""MiniBatchKernelKMeans on graphs of neighbours, against the full matrices of their kernels."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import daskcluster as dc
from daskcluster.errors import InvalidParameterError
from daskcluster.methods.catalogue import ALGORITHMS
from daskcluster.methods.kernel_kmeans import graph as gram_graph
from daskcluster.methods.kernel_kmeans.graph import graph_footprint
from daskcluster.methods.kernel_kmeans.minibatch.estimator import plan_minibatch_fit
from tests.methods.kernel_kmeans.minibatch.test_estimator import counts, fitted
from tests.reference import kernel_kmeans as reference

MATRICES = {"knn": reference.knn, "heat": reference.heat}
OPTIONS: dict[str, dict[str, Any]] = {
    "windows": {},
    "shrinking": {"truncation": 20, "normalize_truncated": False},
    "all batches": {"truncation": None, "learning_rate": "count"},
    "drawn again": {"replacement": True, "n_local_trials": 1},
    "starts": {"init": "random", "n_init": 2},
    "given": {"init": np.array([3, 60, 122, 301])},
}


def distinct():
    """Rows without copies, which share a label whatever their rows of the matrix say."""
    return np.delete(counts(), 366, axis=0)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kernel", MATRICES)
def test_the_fit_is_that_of_the_full_matrix(kernel, options):
    X = distinct()
    model = fitted(X, kernel=kernel, **OPTIONS[options])
    wanted = fitted(MATRICES[kernel](X), kernel="precomputed", **OPTIONS[options])
    np.testing.assert_array_equal(model.labels_, wanted.labels_)
    assert model.inertia_ == pytest.approx(wanted.inertia_, rel=1e-8)
    costs, expected = ([step["inertia"] for step in each.history_] for each in (model, wanted))
    np.testing.assert_allclose(costs, expected, rtol=1e-8)
    np.testing.assert_array_equal(model.predict(X), model.labels_)


@pytest.mark.parametrize("kernel", MATRICES)
def test_coefficients_are_those_of_the_centres(kernel):
    X = distinct()
    model = fitted(X, kernel=kernel, replacement=True)
    made = np.zeros((4, len(X)))
    made[model.support_clusters_, model.support_] = model.support_coefficients_
    assert len(np.unique(model.support_ * 4 + model.support_clusters_)) == len(model.support_)
    np.testing.assert_allclose(made.sum(axis=1), 1.0, rtol=1e-12)
    squares = reference.sqdist(MATRICES[kernel](X), made)
    np.testing.assert_array_equal(squares.argmin(axis=1), model.labels_)
    assert model.inertia_ == pytest.approx(np.maximum(squares.min(axis=1), 0.0).sum(), rel=1e-8)


@pytest.mark.parametrize("kernel", MATRICES)
def test_sparse_rows_give_the_same_clusters(kernel):
    X = counts()
    found, expected = (fitted(rows, kernel=kernel) for rows in (sparse.csr_matrix(X), X))
    np.testing.assert_array_equal(found.labels_, expected.labels_)
    np.testing.assert_array_equal(found.predict(X), expected.labels_)


@pytest.mark.parametrize("kernel", MATRICES)
def test_a_saved_model_labels_new_rows(kernel, tmp_path):
    X, Z = counts(300), counts(150, seed=5)
    model = fitted(X, kernel=kernel)
    model.save(str(tmp_path / "model"))
    loaded = dc.load_model(str(tmp_path / "model"))
    assert type(loaded) is dc.MiniBatchKernelKMeans
    np.testing.assert_array_equal(loaded.predict(X), model.labels_)
    np.testing.assert_array_equal(loaded.predict(Z), model.predict(Z))
    for what in (loaded.transform, loaded.score):
        with pytest.raises(InvalidParameterError, match=r"their K\(x, x\) is not known"):
            what(X)


@pytest.mark.parametrize("kernel", MATRICES)
def test_equal_rows_have_equal_labels(kernel):
    labels = fitted(np.repeat(counts(60), 5, axis=0), kernel=kernel).labels_.reshape(60, 5)
    assert (labels == labels[:, :1]).all()


@pytest.mark.parametrize("kernel", MATRICES)
@pytest.mark.parametrize("truncation", [60, None])
def test_memory_is_that_of_the_footprint_and_no_matrix(kernel, truncation, monkeypatch):
    monkeypatch.setattr(gram_graph, "EXACT_ROWS", 1000)
    X = np.random.default_rng(0).normal(size=(8000, 4))
    fitted(X[:1200], kernel=kernel, truncation=truncation, max_iter=2)  # imports and compiles
    tracemalloc.start()
    fitted(X, kernel=kernel, truncation=truncation, max_iter=4)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    parameters = {"kernel": kernel, "n_clusters": 4, "n_neighbors": 10}
    assert peak < graph_footprint(dc.open_dataset(X), parameters).home_bytes + (16 << 20)
    assert peak < 8 * len(X) ** 2 / 6


def test_a_plan_knows_graphs():
    entry = ALGORITHMS["mini-batch-kernel"]
    values = {each.name: each.default for each in entry.parameters.values()}
    X = counts()
    for kernel in MATRICES:
        given = {**values, "kernel": kernel, "n_clusters": 4, "max_iter": 5, "batch_size": 100}
        found = plan_minibatch_fit(dc.open_dataset(X), given)
        model = fitted(X, kernel=kernel, max_iter=5, batch_size=100)
        assert model.passes_ <= found.passes_at_most
        assert found.footprint.home_bytes > 0


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"n_neighbors": 401}, "n_neighbors=401 should be <= n_samples=400"),
        ({"init": np.array([0, 1, 2, 400])}, "4 row numbers in 0 to 399 with kernel='knn'"),
        ({"init": counts()[:4]}, "4 row numbers in 0 to 399 with kernel='knn'"),
    ],
)
def test_bad_parameters_are_refused(parameters, text):
    with pytest.raises(InvalidParameterError, match=text):
        fitted(counts(), kernel="knn", **parameters)
