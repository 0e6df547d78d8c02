"""Fitted estimators of scikit-learn as ours: the same labels, also after a save, and what is refused."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.cluster import BisectingKMeans, KMeans, MiniBatchKMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler

import daskcluster as dc
from daskcluster.errors import InvalidParameterError
from daskcluster.models.fitted import load_document
from daskcluster.reports.contents import Report


def rows(dtype=np.float64, n=2000, d=4):
    """Return overlapping clusters whose features have other scales and places: each step matters."""
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(5, d))
    drawn = centres[rng.integers(0, 5, n)] + rng.normal(size=(n, d))
    return (drawn * [1.0, 10.0, 0.1, 3.0] + [0.0, 50.0, 1.0, -20.0]).astype(dtype)


def k_means(**parameters):
    return KMeans(5, n_init=1, random_state=0, **parameters)


def mixture(kind):
    return GaussianMixture(5, covariance_type=kind, random_state=0, max_iter=10, tol=1e-2)


KINDS = {
    "k-means": lambda: k_means(),
    "mini-batches": lambda: MiniBatchKMeans(5, n_init=1, random_state=0),
    "standardized": lambda: make_pipeline(StandardScaler(), k_means()),
    "centred": lambda: make_pipeline(StandardScaler(with_std=False), k_means()),
    "divided": lambda: make_pipeline(StandardScaler(with_mean=False), k_means()),
    "to a range": lambda: make_pipeline(MinMaxScaler((-1, 3)), k_means()),
    "left alone": lambda: make_pipeline("passthrough", k_means()),
    "spherical": lambda: mixture("spherical"),
    "diag": lambda: mixture("diag"),
    "tied": lambda: mixture("tied"),
    "full": lambda: mixture("full"),
    "scaled mixture": lambda: make_pipeline(StandardScaler(), mixture("diag")),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_labels_and_scores_are_theirs(kind, dtype, tmp_path):
    X = rows(dtype)
    theirs = KINDS[kind]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # mixtures that do not converge
        theirs.fit(X)
    ours = dc.from_sklearn(theirs)
    assert np.array_equal(ours.predict(X), theirs.predict(X))
    assert ours.score(X) == pytest.approx(theirs.score(X), rel=1e-5)
    ours.save(str(tmp_path / "model"))
    again = dc.load_model(str(tmp_path / "model"))
    assert type(again) is type(ours)
    assert np.array_equal(again.predict(X), ours.predict(X))
    assert np.array_equal(again.to_sklearn().predict(X), ours.predict(X))


def test_parameters_and_results_are_taken_over():
    X = rows()
    theirs = k_means(max_iter=7).fit(X)
    ours = dc.from_sklearn(theirs)
    assert type(ours) is dc.KMeans
    assert (ours.max_iter, ours.random_state, ours.n_clusters) == (7, 0, 5)
    assert (ours.inertia_, ours.n_iter_, ours.n_rows_) == (theirs.inertia_, theirs.n_iter_, 2000)
    assert ours.cluster_centers_.tobytes() == theirs.cluster_centers_.tobytes()
    assert np.array_equal(ours.summary()["size"], np.bincount(theirs.labels_))
    assert "KMeans" in ours.seeding_
    theirs.cluster_centers_[:] = 0  # nothing is shared
    assert ours.cluster_centers_.any()


@pytest.mark.parametrize("kind", ["diag", "tied", "full"])
def test_posteriors_of_mixtures_are_theirs(kind):
    X = rows()
    theirs = GaussianMixture(5, covariance_type=kind, random_state=0).fit(X)
    ours = dc.from_sklearn(theirs)
    assert ours.converged_ == theirs.converged_
    posteriors = ours.predict_proba(X).toarray()
    np.testing.assert_allclose(posteriors, theirs.predict_proba(X), atol=1e-5)
    assert ours.bic(X) == pytest.approx(theirs.bic(X))


def test_there_and_back():
    X = rows(np.float32)
    for ours in (
        dc.KMeans(5, metric="cosine", random_state=0).fit(X),
        dc.KMeans(5, random_state=0).fit(dc.open_dataset(X, scale="standard")),
        dc.VariationalGaussianMixture(5, truncation=5, random_state=0).fit(X),
    ):
        again = dc.from_sklearn(ours.to_sklearn())
        assert np.array_equal(again.predict(X), ours.predict(X))
        assert getattr(again, "metric", None) == getattr(ours, "metric", None)


def test_rows_on_disk_are_labelled(tmp_path):
    X = rows(np.float32)
    np.save(tmp_path / "rows.npy", X)
    theirs = k_means().fit(X)
    out = dc.from_sklearn(theirs).predict(
        str(tmp_path / "rows.npy"), output=str(tmp_path / "labels.zarr")
    )
    assert dc.metrics.accuracy(theirs.labels_, out) == 1.0


def test_batches_alone_know_no_rows():
    theirs = MiniBatchKMeans(5, n_init=1, random_state=0).partial_fit(rows())
    ours = dc.from_sklearn(theirs)
    assert np.array_equal(ours.predict(rows()), theirs.predict(rows()))


def test_names_of_features_go_along():
    pd = pytest.importorskip("pandas", reason="the pandas extra is not installed")
    frame = pd.DataFrame(rows(), columns=["a", "b", "c", "d"])
    for theirs in (k_means(), make_pipeline(StandardScaler(), k_means())):
        assert list(dc.from_sklearn(theirs.fit(frame)).feature_names_in_) == list("abcd")


def test_a_report_has_no_costs_that_scikit_learn_does_not_have(tmp_path):
    dc.from_sklearn(k_means().fit(rows())).save(str(tmp_path / "model"))
    titles = [
        one.title for one in Report(load_document(str(tmp_path / "model")), "model").sections()
    ]
    assert "Summary of the fit" in titles
    assert "Clusters in the fit" not in titles


@pytest.mark.parametrize(
    ("theirs", "text"),
    [
        (BisectingKMeans(3), "BisectingKMeans has no counterpart"),
        (
            make_pipeline(StandardScaler(), dc.KMeans(3)),
            r"KMeans is of daskcluster already; .*open_dataset\(X, scale=",
        ),
        (PCA(2), "PCA has no counterpart"),
        (make_pipeline(PCA(2), k_means()), "PCA has no counterpart"),
        (make_pipeline(StandardScaler(), StandardScaler(), k_means()), "StandardScaler has no"),
        (make_pipeline(Normalizer(), mixture("diag")), "Normalizer has no counterpart"),
        (make_pipeline(MinMaxScaler(clip=True), k_means()), "clip=False"),
        (make_pipeline(Normalizer("l1"), k_means()), "norm='l1'"),
        (make_pipeline(Normalizer(), k_means()), "centres of length 1"),
    ],
)
def test_estimators_without_a_counterpart_are_refused(theirs, text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs.fit(rows())
    with pytest.raises(InvalidParameterError, match=text):
        dc.from_sklearn(theirs)


@pytest.mark.parametrize(
    "theirs", [k_means(), mixture("diag"), make_pipeline(StandardScaler(), k_means())]
)
def test_estimators_that_are_not_fitted_are_refused(theirs):
    with pytest.raises(NotFittedError):
        dc.from_sklearn(theirs)
