"""Fitted estimators as scikit-learn's and as an index of Faiss; tables that `transform` gives."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import Pipeline

import daskcluster as dc
from daskcluster.errors import InvalidDataError, MissingExtraError

KINDS = (
    dc.KMeans(5, random_state=0),
    dc.MiniBatchKMeans(5, random_state=0),
    dc.NestedMiniBatchKMeans(5, batch_size=300, random_state=0),
    dc.CoresetKMeans(5, coreset_size=400, random_state=0),
    dc.HierarchicalKMeans(5, random_state=0),
)


def rows(dtype=np.float32, n=2000, d=4):
    rng = np.random.default_rng(0)
    centres = 8 * rng.normal(size=(5, d))
    return (centres[rng.integers(0, 5, n)] + rng.normal(size=(n, d))).astype(dtype)


@pytest.mark.parametrize("estimator", KINDS, ids=lambda e: type(e).__name__)
def test_kmeans_predicts_the_same(estimator):
    X = rows(np.float64 if type(estimator) is dc.KMeans else np.float32)
    ours = clone(estimator).fit(X)
    twin = ours.to_sklearn()
    assert type(twin) is KMeans
    assert np.array_equal(twin.predict(X), ours.predict(X))
    assert twin.cluster_centers_.tobytes() == ours.cluster_centers_.tobytes()
    np.testing.assert_allclose(twin.transform(X), ours.transform(X), rtol=1e-4, atol=1e-4)
    assert twin.score(X) == pytest.approx(ours.score(X), rel=1e-4)
    assert (twin.inertia_, twin.n_iter_, twin.n_features_in_) == (ours.inertia_, ours.n_iter_, 4)
    assert np.array_equal(pickle.loads(pickle.dumps(twin)).predict(X), ours.predict(X))
    if "labels_" in vars(ours):
        assert np.array_equal(twin.labels_, ours.labels_)


def test_the_twin_shares_nothing():
    ours = dc.KMeans(5, random_state=0).fit(rows())
    twin = ours.to_sklearn()
    twin.cluster_centers_[:] = 0
    assert ours.cluster_centers_.any()


def test_cosine_is_a_pipeline():
    X = rows()
    ours = dc.KMeans(5, metric="cosine", random_state=0).fit(X)
    twin = ours.to_sklearn()
    assert isinstance(twin, Pipeline)
    assert np.array_equal(twin.predict(X), ours.labels_)


def test_names_of_features_go_along():
    pd = pytest.importorskip("pandas", reason="the pandas extra is not installed")
    frame = pd.DataFrame(rows(), columns=["a", "b", "c", "d"])
    twin = dc.KMeans(5, random_state=0).fit(frame).to_sklearn()
    assert twin.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    with pytest.raises(ValueError, match="feature names"):
        twin.predict(frame[["b", "a", "c", "d"]])


def test_out_of_core_labels_are_not_computed_for_it(tmp_path, monkeypatch):
    monkeypatch.setattr("daskcluster.methods.kmeans.fit.LABELS_SHARE", 0)
    np.save(tmp_path / "rows.npy", rows())
    ours = dc.KMeans(5, random_state=0).fit(str(tmp_path / "rows.npy"))
    assert not hasattr(ours.to_sklearn(), "labels_")
    assert not ours.labels_.is_computed


@pytest.mark.parametrize("kind", ["isotropic", "spherical", "diag", "tied", "full"])
def test_mixtures_agree(kind):
    X = rows()
    ours = dc.VariationalGaussianMixture(5, covariance_type=kind, truncation=5, random_state=0).fit(
        X
    )
    twin = ours.to_sklearn()
    assert type(twin) is GaussianMixture
    assert np.array_equal(twin.predict(X), ours.predict(X))
    np.testing.assert_allclose(twin.score_samples(X), ours.score_samples(X), rtol=1e-4, atol=1e-3)
    assert twin.bic(X) == pytest.approx(ours.bic(X), rel=0.01)
    assert twin.sample(3)[0].shape == (3, 4)


def test_faiss(monkeypatch):
    faiss = pytest.importorskip("faiss", reason="the faiss extra is not installed")
    X = rows()
    for metric in ("euclidean", "cosine"):
        ours = dc.KMeans(5, metric=metric, random_state=0).fit(X)
        index = ours.to_faiss()
        assert (index.ntotal, index.d) == (5, 4)
        assert np.array_equal(index.search(X, 1)[1][:, 0], ours.labels_)
    assert index.metric_type == faiss.METRIC_INNER_PRODUCT
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[faiss\]"):
        ours.to_faiss()


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_transform_gives_tables(library):
    pytest.importorskip(library, reason=f"{library} is not installed")
    X = rows()
    model = dc.KMeans(5, random_state=0).fit(X).set_output(transform=library)
    table = model.transform(X)
    assert type(table).__module__.startswith(library)
    assert list(table.columns) == [f"kmeans{j}" for j in range(5)]
    assert np.array_equal(np.asarray(table).argmin(axis=1), model.labels_)


def test_frames_of_polars_go_in():
    polars = pytest.importorskip("polars", reason="polars is not installed")
    X = rows()
    exact = {"a": polars.Float32, "b": polars.Float32, "c": polars.Int8, "d": polars.Boolean}
    frame = polars.DataFrame(np.round(X), schema=list("abcd")).with_columns(
        polars.col(name).cast(dtype) for name, dtype in exact.items() if name != "d"
    )
    frame = frame.with_columns(polars.col("d") > 0)
    dataset = dc.open_dataset(frame)
    assert dataset.dtype == np.float32
    model = dc.KMeans(5, random_state=0).fit(frame)
    assert list(model.feature_names_in_) == list("abcd")
    assert np.array_equal(model.predict(frame), model.labels_)
    assert np.array_equal(model.predict(np.asarray(frame)), model.labels_)
    with pytest.raises(InvalidDataError, match=r"no real numbers: 'a'"):
        dc.open_dataset(polars.DataFrame({"a": ["x", "y"]}))


def onnx_labels(document, X):
    """Return the labels that ONNX's own evaluator finds."""
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(document)
    return np.ravel(evaluator.run(None, {evaluator.input_names[0]: X})[0])


@pytest.mark.parametrize("kind", ["plain", "cosine", "scaled", "mixture"])
def test_onnx(kind):
    skl2onnx = pytest.importorskip("skl2onnx", reason="the onnx extra is not installed")
    X = rows()
    ours = {
        "plain": dc.KMeans(5, random_state=0),
        "cosine": dc.KMeans(5, metric="cosine", random_state=0),
        "scaled": dc.KMeans(5, random_state=0),
        "mixture": dc.VariationalGaussianMixture(5, truncation=5, random_state=0),
    }[kind]
    ours.fit(dc.open_dataset(X, scale="standard") if kind == "scaled" else X)
    document = skl2onnx.to_onnx(ours.to_sklearn(), X[:1])
    assert np.array_equal(onnx_labels(document, X), ours.predict(X))
