"""MiniBatchKernelKMeans: kernels, kinds of rows, engines, models, errors, scikit-learn's checks."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import zarr
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import daskcluster as dc
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.events import StartEnded
from tests.reference import kernel_kmeans as reference

KERNELS = {
    "rbf": {"gamma": 0.1},
    "laplacian": {"gamma": 0.2},
    "polynomial": {"gamma": 0.1, "degree": 2, "coef0": 1.0},
    "linear": {},
    "cosine": {},
}


def rings(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    angle, ring = rng.uniform(0, 2 * np.pi, n), rng.integers(0, 2, n)
    X = np.stack([np.cos(angle), np.sin(angle)], axis=1) * (1 + 4 * ring[:, None])
    return X + 0.05 * rng.normal(size=(n, 2)), ring


def counts(n=400, d=12, seed=3):
    """Rows of which half the values are zero."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(rng.gamma(0.5, 2.0, size=(5, d))[rng.integers(0, 5, n)]).astype(np.float64)
    X[:, 0] += 1.0
    return X


def fitted(X, k=4, weights=None, **parameters):
    options = {"batch_size": 128, "truncation": 60, "max_iter": 12, "random_state": 0, **parameters}
    return dc.MiniBatchKernelKMeans(k, **options).fit(X, sample_weight=weights)


def same(one, other):
    assert np.asarray(one.labels_).tobytes() == np.asarray(other.labels_).tobytes()
    assert one.inertia_ == other.inertia_
    assert one.support_coefficients_.tobytes() == other.support_coefficients_.tobytes()
    assert one.support_.tobytes() == other.support_.tobytes()
    assert one.n_iter_ == other.n_iter_


def agreement(one, other):
    """Fraction of pairs of rows on which two labellings agree."""
    return ((one[:, None] == one) == (other[:, None] == other)).mean()


def test_rings_are_separated_where_k_means_fails():
    X, ring = rings()
    found = fitted(X, 2, gamma=0.2, batch_size=256, truncation=200, max_iter=50).labels_
    assert agreement(found, ring) == 1.0
    assert agreement(dc.KMeans(2, random_state=0).fit(X).labels_, ring) < 0.8


@pytest.mark.parametrize("kernel", KERNELS)
def test_distances_and_inertia_are_those_of_the_kernel(kernel):
    X = counts()
    model = fitted(X, kernel=kernel, **KERNELS[kernel])
    K = reference.gram(X, X, kernel, **KERNELS[kernel])
    made = np.zeros((4, len(X)))
    np.add.at(made, (model.support_clusters_, model.support_), model.support_coefficients_)
    squares = reference.sqdist(K, made)
    np.testing.assert_allclose(model.transform(X) ** 2, squares, atol=1e-9 * K.max())
    assert model.inertia_ == pytest.approx(squares.min(axis=1).sum(), rel=1e-9)
    assert model.score(X) == -model.inertia_
    np.testing.assert_array_equal(model.predict(X), model.labels_)


@pytest.mark.parametrize("kernel", KERNELS)
def test_sparse_rows_and_single_precision_give_the_same_clusters(kernel):
    X = counts()
    expected = fitted(X, kernel=kernel, **KERNELS[kernel])
    for rows in (sparse.csr_matrix(X), X.astype(np.float32)):
        found = fitted(rows, kernel=kernel, **KERNELS[kernel])
        assert (found.labels_ == expected.labels_).mean() > 0.99
        assert found.inertia_ == pytest.approx(expected.inertia_, rel=1e-3)
        assert (found.predict(X) == found.labels_).mean() > 0.99


@pytest.mark.parametrize("truncation", [60, None])
def test_precomputed_and_callable_kernels_give_the_same_fit(truncation):
    X = counts()
    K = reference.gram(X, X, gamma=0.1)
    expected = fitted(X, gamma=0.1, truncation=truncation)
    for rows, kernel in ((K, "precomputed"), (sparse.csr_matrix(K), "precomputed"), (X, gaussian)):
        options = {"kernel_params": {"gamma": 0.1}} if callable(kernel) else {}
        found = fitted(rows, kernel=kernel, truncation=truncation, **options)
        np.testing.assert_array_equal(found.labels_, expected.labels_)
        assert found.inertia_ == pytest.approx(expected.inertia_, rel=1e-9)
    np.testing.assert_array_equal(
        fitted(K, kernel="precomputed").predict(K[:50]), fitted(X, gamma=0.1).predict(X[:50])
    )


def gaussian(X, Y, gamma):
    return reference.gram(X, Y, gamma=gamma)


def test_a_precomputed_matrix_is_read_from_zarr(tmp_path):
    X = counts()
    K = reference.gram(X, X, gamma=0.1)
    array = zarr.create_array(tmp_path / "K.zarr", shape=K.shape, chunks=(50, 400), dtype=K.dtype)
    array[:] = K
    same(fitted(str(tmp_path / "K.zarr"), kernel="precomputed"), fitted(K, kernel="precomputed"))


@pytest.mark.parametrize(("dtype", "truncation"), [(np.float32, 60), (np.float64, None)])
def test_chunks_threads_and_workers_do_not_matter(tmp_path, client, dtype, truncation):
    X = counts(900).astype(dtype)
    w = np.random.default_rng(1).integers(0, 3, len(X)).astype(float)
    options = {"truncation": truncation, "max_iter": 6, "gamma": 0.1}
    expected = fitted(X, weights=w, engine=dc.LocalEngine(n_threads=1), **options)
    same(fitted(X, weights=w, engine=dc.LocalEngine(n_threads=2), **options), expected)
    for rows in (77, 300):
        url = str(tmp_path / f"{rows}.zarr")
        zarr.create_array(url, shape=X.shape, chunks=(rows, 12), dtype=X.dtype)[:] = X
        same(fitted(url, weights=w, engine=client, **options), expected)


def test_automatic_gamma_is_one_over_four_variances():
    X = counts()
    assert fitted(X).gamma_ == pytest.approx(1 / (4 * X.var(axis=0).sum()), rel=1e-9)
    model = fitted(X, kernel="laplacian")
    assert model.gamma_ == pytest.approx(1 / np.sqrt(4 * 12 * X.var(axis=0).sum()), rel=1e-9)


def test_weights_count_and_rows_without_weight_do_not():
    X = counts()
    w = np.ones(len(X))
    w[::3] = 0.0
    model = fitted(X, weights=w, gamma=0.1)
    assert w[model.support_].min() > 0.0
    np.testing.assert_array_equal(fitted(X, weights=8.0 * w, gamma=0.1).labels_, model.labels_)
    assert model.cluster_weights_.sum() == w.sum()


@pytest.mark.parametrize("rows", ["sparse", "precomputed"])
def test_a_saved_model_predicts(rows):
    X = counts()
    X = sparse.csr_matrix(X) if rows == "sparse" else reference.gram(X, X, gamma=0.1)
    options = {"kernel": "precomputed"} if rows == "precomputed" else {"gamma": 0.1}
    model = fitted(X, **options)
    model.save("memory://kernel/model.zarr", overwrite=True)
    loaded = dc.load_model("memory://kernel/model.zarr")
    assert type(loaded) is dc.MiniBatchKernelKMeans
    np.testing.assert_array_equal(loaded.predict(X), model.labels_)
    assert loaded.score(X) == model.score(X)
    assert loaded.to_model().body() == model.to_model().body()
    assert len(loaded.support_) <= 4 * (60 + 128)
    assert loaded.to_model().centres.shape == (4, X.shape[1])
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(X), model.labels_)


def test_a_callable_kernel_is_restored_after_loading():
    X = counts()
    model = fitted(X, kernel=gaussian, kernel_params={"gamma": 0.1})
    model.save("memory://kernel/callable.zarr", overwrite=True)
    loaded = dc.load_model("memory://kernel/callable.zarr")
    with pytest.raises(InvalidParameterError, match="restore it with set_params"):
        loaded.predict(X)
    partial = loaded.set_params(kernel=lambda X, Y: reference.gram(X, Y, gamma=0.1))
    np.testing.assert_array_equal(partial.predict(X), model.labels_)


def test_labels_are_streamed_and_lazy(tmp_path):
    import dask.array as da

    X = counts()
    model = fitted(X, gamma=0.1)
    model.predict(X, output=str(tmp_path / "labels.zarr"))
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "labels.zarr")[:], model.labels_)
    lazy = model.predict(da.from_array(X, chunks=(60, -1)))
    np.testing.assert_array_equal(lazy.compute(), model.labels_)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"kernel": "sigmoid"}, "'kernel' parameter of MiniBatchKernelKMeans must be"),
        ({"init": "k-means||"}, "'init' parameter"),
        ({"kernel_params": {"a": 1}}, "arguments of a callable kernel"),
        ({"init_size": 2}, "init_size=2 should be >= n_clusters=4"),
    ],
)
def test_bad_parameters_are_refused(parameters, text):
    with pytest.raises(InvalidParameterError, match=text):
        fitted(counts(), **parameters)


def test_bad_rows_are_refused():
    X = counts()
    with pytest.raises(InvalidDataError, match="should be square"):
        fitted(X, kernel="precomputed")
    with pytest.raises(InvalidDataError, match="should return a finite array"):
        fitted(X, kernel=lambda X, Y: np.zeros(3))
    X[17, 3] = np.nan
    with pytest.raises(InvalidDataError, match="NaN"):
        fitted(X, gamma=0.1)


def test_max_iter_zero_keeps_the_first_centres():
    X = counts()
    model = fitted(X, max_iter=0, init=X[:4], gamma=0.1)
    assert model.n_iter_ == 0
    np.testing.assert_array_equal(model.labels_, reference.gram(X, X[:4], gamma=0.1).argmax(axis=1))


def test_the_best_of_several_starts_is_kept():
    X, heard = counts(), []
    one = fitted(X, gamma=0.1, init="random")
    more = fitted(X, gamma=0.1, init="random", n_init=6, callbacks=[heard.append])
    starts = [event.inertia for event in heard if isinstance(event, StartEnded)]
    assert len(starts) == 6
    assert starts[0] == one.inertia_
    assert min(starts) < starts[0]
    assert more.inertia_ == min(starts)
    np.testing.assert_array_equal(more.predict(X), more.labels_)
    assert more.passes_ <= 6 * one.passes_


@pytest.mark.parametrize("truncation", [3, None])
def test_fewer_distinct_rows_than_clusters_leave_clusters_empty(truncation):
    X = np.repeat(np.array([[0.0, 1.0], [4.0, 0.0]]), 20, axis=0)
    for model in (
        dc.MiniBatchKernelKMeans(4, truncation=truncation, batch_size=10, random_state=0),
        dc.KernelKMeans(4, random_state=0),
    ):
        with pytest.warns(ConvergenceWarning, match="distinct clusters"):
            model.fit(X)
        assert agreement(model.labels_, np.repeat([0, 1], 20)) == 1.0
        assert model.inertia_ == pytest.approx(0.0, abs=1e-9)
        np.testing.assert_array_equal(model.predict(X), model.labels_)


@pytest.mark.parametrize("truncation", [3, None])
def test_batches_without_weight_move_nothing(truncation):
    X, w = counts(), np.zeros(400)
    w[:7] = 1.0
    model = fitted(X, 3, weights=w, gamma=0.1, batch_size=8, truncation=truncation, max_iter=40)
    assert set(model.support_.tolist()) <= set(range(7))
    assert np.isfinite(model.inertia_)
    full = dc.KernelKMeans(3, gamma=0.1, random_state=0).fit(X, sample_weight=w)
    assert set(full.support_.tolist()) <= set(range(7))


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_matrix_that_is_not_a_mercer_kernel_can_be_fitted(kernel):
    X = counts(200)
    K = -reference.gram(X, X, kernel, gamma=0.1) if kernel == "linear" else np.cos(X @ X.T)
    for model in (
        dc.MiniBatchKernelKMeans(
            4, kernel="precomputed", batch_size=50, truncation=20, max_iter=10, random_state=0
        ),
        dc.MiniBatchKernelKMeans(
            4, kernel="precomputed", batch_size=50, truncation=None, max_iter=10, random_state=0
        ),
        dc.KernelKMeans(4, kernel="precomputed", max_iter=10, random_state=0),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(K)
        assert model.inertia_ >= 0.0
        assert np.isfinite(model.transform(K)).all()
        np.testing.assert_array_equal(model.predict(K), model.labels_)
