"""MiniBatchKernelKMeans with the kernels of graphs, against the definition with the whole matrix."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

import daskcluster as dc
from daskcluster.errors import InvalidParameterError
from daskcluster.methods.catalogue import ALGORITHMS
from daskcluster.methods.kernel_kmeans import graph as gram_graph
from daskcluster.methods.kernel_kmeans.minibatch.estimator import plan_minibatch_fit
from tests.methods.kernel_kmeans.minibatch.test_algorithm import CASES, FIRST, blobs, drawn
from tests.methods.kernel_kmeans.minibatch.test_estimator import counts, fitted
from tests.reference import kernel_kmeans as reference

MATRICES = {"knn": reference.knn, "heat": reference.heat}


@pytest.mark.parametrize("kernel", MATRICES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_centres_have_the_coefficients_of_the_definition(name, weighted, kernel):
    X, options, n = blobs(), CASES[name], 300
    weights = np.random.default_rng(1).integers(0, 4, n).astype(float) if weighted else None
    parameters = {"batch_size": 64, "init": FIRST, "random_state": 7, **options}
    model = fitted(X, weights=weights, kernel=kernel, max_iter=9, **parameters)
    K = MATRICES[kernel](X)
    wanted = reference.minibatch(
        K,
        FIRST,
        drawn(X, 64, 9, replacement=options.get("replacement", False)),
        options.get("learning_rate", "sqrt"),
        weights,
        options["truncation"],
        options.get("normalize_truncated", True),
    )
    made = np.zeros((4, n))
    made[model.support_clusters_, model.support_] = model.support_coefficients_
    assert np.count_nonzero(made) == len(model.support_), "every row is once in a centre"
    np.testing.assert_allclose(made, wanted, atol=1e-12)
    squares = reference.sqdist(K, wanted)
    np.testing.assert_array_equal(model.labels_, squares.argmin(axis=1))
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    cost = squares.min(axis=1) @ (np.ones(n) if weights is None else weights)
    assert model.inertia_ == pytest.approx(cost, rel=1e-8, abs=1e-12)


SEEDINGS = {
    "k-means++": {"n_local_trials": 1},
    "starts": {"init": "random", "n_init": 3, "tol": 1e-4},
}


@pytest.mark.parametrize("kernel", MATRICES)
@pytest.mark.parametrize("seeding", SEEDINGS)
def test_a_fit_is_that_of_the_precomputed_matrix(kernel, seeding):
    X = np.delete(counts(), 366, axis=0)  # without copies, which share a label by their neighbours
    model = fitted(X, kernel=kernel, **SEEDINGS[seeding])
    wanted = fitted(MATRICES[kernel](X), kernel="precomputed", **SEEDINGS[seeding])
    np.testing.assert_array_equal(model.labels_, wanted.labels_)
    costs, expected = ([step["inertia"] for step in each.history_] for each in (model, wanted))
    np.testing.assert_allclose(costs, expected, rtol=1e-8)
    assert model.stop_reason_ == wanted.stop_reason_
    rows = sparse.csr_matrix(X)
    np.testing.assert_array_equal(
        fitted(rows, kernel=kernel, **SEEDINGS[seeding]).labels_, model.labels_
    )


@pytest.mark.parametrize("kernel", MATRICES)
def test_equal_rows_have_equal_labels(kernel):
    model = fitted(np.repeat(counts(60), 5, axis=0), kernel=kernel, heat_time=8.0)
    labels = model.labels_.reshape(60, 5)
    assert (labels == labels[:, :1]).all()
    assert len(np.unique(labels)) > 1


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
@pytest.mark.parametrize("truncation", [60, None])
def test_a_fit_stays_within_its_plan_and_forms_no_matrix(kernel, truncation, monkeypatch):
    monkeypatch.setattr(gram_graph, "EXACT_ROWS", 1000)
    X = np.random.default_rng(0).normal(size=(8000, 4))
    options = {"kernel": kernel, "truncation": truncation}
    fitted(X[:1200], max_iter=2, **options)  # imports and compiles
    tracemalloc.start()
    model = fitted(X, max_iter=4, **options)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    entry = ALGORITHMS["mini-batch-kernel"]
    values = {each.name: each.default for each in entry.parameters.values()}
    plan = plan_minibatch_fit(
        dc.open_dataset(X), {**values, **options, "n_clusters": 4, "max_iter": 4}
    )
    assert peak < plan.footprint.home_bytes + (16 << 20) < 8 * len(X) ** 2 / 6
    assert model.passes_ <= plan.passes_at_most


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"n_neighbors": 401}, "n_neighbors=401 should be <= n_samples=400"),
        ({"init": np.array([0, 1, 2, 400])}, "4 row numbers in 0 to 399"),
        ({"init": counts()[:4]}, "4 row numbers in 0 to 399"),
    ],
)
def test_bad_parameters_are_refused(parameters, text):
    with pytest.raises(InvalidParameterError, match=text):
        fitted(counts(), kernel="knn", **parameters)
