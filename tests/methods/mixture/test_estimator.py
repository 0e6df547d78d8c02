"""VariationalGaussianMixture: the estimator's contract, engines, lost workers, and saved models."""

from __future__ import annotations

import os
import pickle
import signal
import warnings

import numpy as np
import pytest
import scipy.sparse
import zarr
from sklearn.base import clone
from sklearn.decomposition import TruncatedSVD
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from sklearn.mixture._gaussian_mixture import _compute_precision_cholesky
from sklearn.pipeline import make_pipeline

import daskcluster as dc
from daskcluster.data import partitions
from daskcluster.data.convert import convert
from daskcluster.errors import InvalidDataError, InvalidParameterError, WrongTypeError
from daskcluster.events import EMStepEnded
from tests.clusters import patient_cluster

MATRICES = ("tied", "full")
KINDS = ("isotropic", "spherical", "diag", *MATRICES)


def blobs(n=900, k=6, d=3, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    centres = rng.uniform(-20, 20, (k, d))
    return (centres[rng.integers(0, k, n)] + rng.normal(size=(n, d))).astype(dtype)


def mixture(k=6, **parameters):
    defaults = {"truncation": 3, "n_neighbors": 3, "random_state": 0}
    return dc.VariationalGaussianMixture(k, **{**defaults, **parameters})


def stored(folder, X, rows=1100):
    path = str(folder / "rows.zarr")
    array = zarr.create_array(path, shape=X.shape, chunks=(rows, X.shape[1]), dtype=X.dtype)
    array[:] = X
    return path


def same(a, b):
    for name in ("means_", "covariances_", "weights_"):
        assert np.array_equal(getattr(a, name), getattr(b, name)), name
    assert a.lower_bound_ == b.lower_bound_
    assert (a.n_iter_, a.stop_reason_) == (b.n_iter_, b.stop_reason_)


# -- what it says of rows -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_it_agrees_with_scikit_learn_on_the_same_mixture(kind):
    X = blobs()
    fitted = mixture(covariance_type=kind, truncation=6).fit(X)
    theirs = GaussianMixture(6, covariance_type="spherical" if kind == "isotropic" else kind)
    theirs.means_, theirs.weights_ = fitted.means_, fitted.weights_
    theirs.covariances_ = fitted.covariances_
    if kind == "isotropic":
        theirs.covariances_ = np.broadcast_to(fitted.covariances_, 6)
    theirs.precisions_cholesky_ = _compute_precision_cholesky(
        theirs.covariances_, theirs.covariance_type
    )
    assert np.allclose(fitted.score_samples(X), theirs.score_samples(X), rtol=1e-9)
    assert np.allclose(fitted.predict_proba(X).toarray(), theirs.predict_proba(X), atol=1e-9)
    assert np.array_equal(fitted.predict(X), theirs.predict(X))
    assert np.isclose(fitted.score(X), theirs.score(X))
    if kind != "isotropic":
        assert np.isclose(fitted.aic(X), theirs.aic(X))
        assert np.isclose(fitted.bic(X), theirs.bic(X))


def test_posteriors_are_truncated():
    X = blobs()
    found = mixture(truncation=2).fit(X).predict_proba(X)
    assert found.shape == (len(X), 6)
    assert (np.diff(found.indptr) == 2).all()
    assert np.allclose(found.sum(axis=1), 1.0)
    assert found.has_sorted_indices


def test_labels_equal_predict():
    X = blobs(dtype=np.float32)
    fitted = mixture(covariance_type="diag")
    labels = fitted.fit_predict(X)
    assert labels.dtype == np.int32
    assert np.array_equal(labels, fitted.predict(X))
    assert np.array_equal(fitted.labels_, labels)


def ends():
    """Ways for a fit to end, by its parameters."""

    def stop(event):
        if isinstance(event, EMStepEnded) and event.iteration == 5:
            raise dc.events.StopFit

    return {
        "tolerance": {"tol": 1e-3},
        "max_iter": {"max_iter": 4, "tol": 0.0},
        "max_time": {"max_time": 1e-9, "tol": 0.0},
        "callback": {"callbacks": [stop], "tol": 0.0},
    }


@pytest.mark.parametrize("kind", KINDS)
def test_the_lower_bound_belongs_to_the_returned_mixture(kind):
    X = blobs()
    for reason, limits in ends().items():
        fitted = mixture(covariance_type=kind, truncation=6, init="afk-mc2", **limits).fit(X)
        assert fitted.stop_reason_ == reason
        assert fitted.converged_ == (reason == "tolerance")
        assert np.isclose(fitted.lower_bound_, fitted.score(X), rtol=1e-12), reason


@pytest.mark.parametrize("kind", ["spherical", "diag"])
@pytest.mark.parametrize("truncation", [3, 2])
def test_it_does_not_end_before_variances_are_learnt(kind, truncation):
    """With features of different scales and means at the optimum of k-means, nothing moves at first."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 3)) * [0.1, 1.0, 300.0]
    X[:600, 0] += 1.0
    X[:, 2] += 5000.0 * (np.arange(1200) % 3)
    fitted = mixture(3, covariance_type=kind, truncation=truncation, init=dc.KMeans(3).fit(X)).fit(
        X
    )
    assert fitted.converged_
    assert fitted.n_iter_ >= 4
    assert len(np.unique(fitted.covariances_)) > 1
    if kind == "diag":
        truth = np.array([0.26, 1.0, 9e4])
        assert np.allclose(fitted.covariances_, truth, rtol=0.2)


@pytest.mark.parametrize(
    ("kind", "truncation", "dtype"),
    [
        ("isotropic", 3, np.float32),
        ("spherical", 6, np.float64),
        ("diag", 3, np.float32),
        ("tied", 3, np.float64),
        ("full", 6, np.float64),
    ],
)
def test_scaling_by_a_power_of_two_gives_the_same_fit(kind, truncation, dtype):
    X = blobs(dtype=dtype)
    model = mixture(covariance_type=kind, truncation=truncation, n_random=1)
    found = clone(model).fit(X)
    for power in (-20, 3, 31):
        scaled = clone(model).fit(np.ldexp(X, power))
        assert scaled.n_iter_ == found.n_iter_
        assert np.array_equal(scaled.labels_, found.labels_)
        assert np.array_equal(scaled.means_, np.ldexp(found.means_, power))
        assert np.array_equal(scaled.covariances_, np.ldexp(found.covariances_, 2 * power))
        assert np.isclose(scaled.lower_bound_, found.lower_bound_ - 3 * power * np.log(2.0))


@pytest.mark.parametrize("kind", KINDS)
def test_an_offset_does_not_change_the_stopping_iteration(kind):
    X = np.round(blobs() * 1024.0) / 1024.0  # exact at every offset
    model = mixture(covariance_type=kind, init=X[:6], truncation=6)
    near, far = clone(model).fit(X), clone(model).set_params(init=X[:6] + 4096.0).fit(X + 4096.0)
    assert near.n_iter_ == far.n_iter_
    assert np.array_equal(near.labels_, far.labels_)
    assert np.allclose(near.covariances_, far.covariances_)


@pytest.mark.parametrize("spread", [(1e-6, 1.0, 1e6), (1.0, 1e-3, 1e9)])
def test_each_feature_has_its_own_minimum_variance(spread):
    X = blobs(3000) * spread
    fitted = mixture(covariance_type="diag", truncation=6, init=X[:6]).fit(X)
    assert fitted.converged_
    # Nothing learns a variance far beyond that of its feature, which one floor for all would be.
    shares = fitted.covariances_ / X.var(axis=0)
    assert (shares < 2.0).all()
    assert (shares > 1e-4).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_constant_features_and_equal_rows_get_the_minimum_variance(dtype):
    X = np.column_stack([blobs(), np.full(900, 0.1), np.repeat([0.0, 1e4], 450)]).astype(dtype)
    fitted = mixture(covariance_type="diag", truncation=6, init=X[::150]).fit(X)
    spread = X.astype(float).var(axis=0)
    assert np.allclose(fitted.covariances_[:, 3], 1e-6 * spread.mean(), rtol=1e-3)
    assert np.allclose(fitted.covariances_[:, 4], 1e-6 * spread[4], rtol=1e-3)
    assert np.isfinite(fitted.score(X))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", ["spherical", "diag", *MATRICES])
def test_features_of_scales_a_million_apart_learn_their_variances(kind):
    """The minimum variance is no more than what rounding needs: components learn what rows show."""
    X = blobs(3000, k=4, d=3) * [1.0, 1e-6, 1e6]
    start = np.stack([X[::750], X[1::750]]).reshape(-1, 3)[:4]
    fitted = mixture(4, covariance_type=kind, truncation=4, init=start, tol=1e-9).fit(X)
    theirs = GaussianMixture(
        4, covariance_type=kind, means_init=fitted.means_, weights_init=fitted.weights_, reg_covar=0.0,
        precisions_init=fitted.precisions_, max_iter=1,
    ).fit(X)  # fmt: skip
    # A fixed point of scikit-learn's EM without any minimum.
    np.testing.assert_allclose(theirs.covariances_, fitted.covariances_, rtol=1e-3)
    assert np.isclose(theirs.score(X), fitted.score(X), atol=1e-6)


def test_reaching_max_iter_warns():
    X = blobs()
    with pytest.warns(ConvergenceWarning, match="Best performing initialization did not converge"):
        mixture(max_iter=1).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mixture().fit(X)
        mixture(max_iter=2, tol=0.0).fit(X)  # as many as were asked for
        mixture(max_iter=0).fit(X)


def test_the_lower_bound_is_below_the_likelihood():
    X = blobs()
    fitted = mixture(truncation=2, tol=0.0, max_iter=30).fit(X)
    assert fitted.lower_bound_ <= fitted.score(X) + 1e-9
    exact = mixture(truncation=6, tol=0.0, max_iter=60).fit(X)
    assert np.isclose(exact.lower_bound_, exact.score(X), rtol=1e-3)


def test_rows_are_drawn_from_the_mixture():
    fitted = mixture(covariance_type="diag").fit(blobs())
    X, y = fitted.sample(20_000)
    assert X.shape == (20_000, 3)
    assert X.dtype == fitted.means_.dtype
    for c in range(6):
        drawn = X[y == c]
        assert np.allclose(drawn.mean(axis=0), fitted.means_[c], atol=0.2)
        assert np.allclose(drawn.var(axis=0), fitted.covariances_[c], rtol=0.15)
    assert np.allclose(np.bincount(y) / len(y), fitted.weights_, atol=0.02)
    assert np.array_equal(fitted.sample(5)[0], fitted.sample(5)[0])


# -- what it learns -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_clear_clusters_are_found(kind):
    rng = np.random.default_rng(0)
    centres = 50.0 * np.arange(5)[:, None] * np.ones(3)
    X = centres[rng.integers(0, 5, 2000)] + rng.normal(size=(2000, 3)) * [1.0, 2.0, 0.5]
    fitted = mixture(5, covariance_type=kind, init=centres + 3.0).fit(X)
    assert fitted.converged_
    assert np.allclose(np.sort(fitted.means_[:, 0]), centres[:, 0], atol=0.3)
    truth = {
        "isotropic": 1.75,
        "spherical": np.full(5, 1.75),
        "diag": np.tile([1, 4, 0.25], (5, 1)),
        "tied": np.diag([1, 4, 0.25]),
        "full": np.tile(np.diag([1, 4, 0.25]), (5, 1, 1)),
    }
    assert np.allclose(fitted.covariances_, truth[kind], rtol=0.25, atol=0.25)


def test_a_coreset_of_all_rows_gives_the_full_fit():
    X = blobs(dtype=np.float32)
    settings = {"init": X[:6], "max_iter": 10}
    plain, whole = mixture(**settings).fit(X), mixture(coreset_size=900, **settings).fit(X)
    assert np.allclose(plain.means_, whole.means_, atol=1e-4)
    assert np.isclose(plain.lower_bound_, whole.lower_bound_)


def test_a_coreset_takes_two_passes():
    X = blobs(5000)
    fitted = mixture(coreset_size=600).fit(X)
    assert fitted.passes_ == 2
    assert fitted.coreset_.n_rows == 600
    assert len(fitted.labels_) == 5000
    full = mixture().fit(X)
    assert fitted.score(X) > full.score(X) - 0.5


def test_passes_are_counted():
    X = blobs()
    fitted = mixture(init=X[:6], warmup_steps=2, tol=0.0, max_iter=4).fit(X)
    # Data statistics, searches, iterations, and the pass that evaluates the last one's parameters.
    assert fitted.passes_ == 1 + (2 + 1) + 4 + 1
    settled = mixture(init=X[:6], tol=1e-2).fit(X)
    assert settled.converged_
    assert settled.passes_ == 1 + 1 + settled.n_iter_  # the last iteration evaluates


def test_the_number_of_distances_is_within_the_documented_bound():
    X = blobs(2000, 50, 5)
    fitted = mixture(50, truncation=3, n_neighbors=3, n_random=1, max_iter=10).fit(X)
    counts = [record["n_distances"] for record in fitted.history_]
    # The first M-step keeps what the search before it found, whose distances count, too.
    assert 6 * len(X) <= counts[0] <= (3 + 3 + 9 + 1) * len(X)
    assert all(3 * len(X) <= count <= (3 + 9 + 1) * len(X) for count in counts[1:])
    searched = mixture(50, truncation=3, n_neighbors=3, n_random=1, max_iter=1, warmup_steps=2)
    assert searched.fit(X).history_[0]["n_distances"] >= counts[0] + 6 * len(X)


def test_distances_of_exact_em_are_all():
    X = blobs(500)
    history = mixture(truncation=6, tol=0.0, max_iter=3).fit(X).history_
    assert [record["n_distances"] for record in history] == [2 * 500 * 6, 500 * 6, 500 * 6]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("truncation", [8, 3])
def test_components_without_rows_are_discarded(tmp_path, kind, truncation):
    X = blobs()
    start = np.concatenate([X[:3], np.full((2, 3), 1e4), X[3:6]])
    options = {"covariance_type": kind, "truncation": truncation, "init": start}
    whole = mixture(8, **options).fit(X)
    live = np.array([0, 1, 2, 5, 6, 7])
    assert (whole.component_weights_[[3, 4]] == 0.0).all()
    fitted = mixture(8, discard_empty=True, **options).fit(X)
    assert np.array_equal(fitted.means_, whole.means_[live])
    assert np.array_equal(fitted.component_weights_, whole.component_weights_[live])
    assert fitted.covariances_ == pytest.approx(
        whole.covariances_ if kind in ("isotropic", "tied") else whole.covariances_[live]
    )
    assert np.isclose(fitted.weights_.sum(), 1.0)
    assert np.array_equal(fitted.predict(X), np.searchsorted(live, whole.predict(X)))
    gain = np.log(8 / 6) if kind == "isotropic" else 0.0
    assert np.isclose(fitted.lower_bound_, whole.lower_bound_ + gain)
    assert fitted.predict_proba(X[:9]).shape == (9, 6)
    if truncation == 8:
        assert np.isclose(fitted.lower_bound_, fitted.score(X), rtol=1e-12)
    fitted.save(str(tmp_path / "model"))
    loaded = dc.load_model(str(tmp_path / "model"))
    assert np.array_equal(loaded.predict(X), fitted.predict(X))
    assert loaded.get_params()["n_components"] == 6


def test_nothing_is_discarded_if_all_components_have_weight():
    X = blobs()
    same(mixture(discard_empty=True).fit(X), mixture().fit(X))


def test_the_restart_that_is_best_without_empty_components_is_kept():
    X = blobs(k=3)
    alone = [
        mixture(8, discard_empty=True, init="random", n_init=n).fit(X).lower_bound_
        for n in range(1, 6)
    ]
    assert alone == sorted(alone)


def test_verbose_prints_each_iteration(capsys):
    mixture(verbose=1, max_iter=3, tol=0.0).fit(blobs())
    said = capsys.readouterr().out
    assert said.count("iteration ") == 3
    assert "free energy" in said


@pytest.mark.parametrize(
    ("parameters", "error", "text"),
    [
        ({"coreset_size": 4}, InvalidParameterError, "coreset_size=4 should be >= n_components=6"),
        ({"n_components": 2.5}, WrongTypeError, "'n_components' parameter"),
        ({"n_components": 901}, InvalidParameterError, "n_samples=900 should be >= n_clusters=901"),
    ],
)
def test_wrong_parameters_are_refused(parameters, error, text):
    with pytest.raises(error, match=text):
        mixture().set_params(**parameters).fit(blobs())


def test_sparse_rows_are_refused_and_projected_ones_are_fitted(tmp_path):
    X = scipy.sparse.csr_array(np.hstack([blobs(), np.zeros((len(blobs()), 40))]))
    convert(X, str(tmp_path / "rows.zarr"))
    for source in (X, scipy.sparse.csr_matrix(X), str(tmp_path / "rows.zarr")):
        with pytest.raises(InvalidDataError, match=r"X is sparse; .* make_pipeline\(TruncatedSVD"):
            mixture().fit(source)
    pipeline = make_pipeline(TruncatedSVD(blobs().shape[1], random_state=0), mixture())
    labels = pipeline.fit_predict(X)
    assert adjusted_rand_score(labels, mixture().fit(blobs()).labels_) > 0.95
    np.testing.assert_array_equal(pipeline.predict(X[:9]), labels[:9])
    assert pipeline.predict_proba(X[:9]).shape == (9, mixture().n_components)


def test_an_unfitted_estimator_raises():
    with pytest.raises(NotFittedError):
        mixture().predict(blobs())
    with pytest.raises(AttributeError, match="no labels_"):
        _ = mixture().labels_


# -- engines --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_chunks_threads_and_workers_give_the_same_bits(tmp_path, client, monkeypatch, kind):
    monkeypatch.setattr(partitions, "LEAST_BYTES", 1)
    monkeypatch.setattr(partitions, "LEAST_ROWS", 100)
    # Clusters that overlap: rows change theirs in every iteration.
    X = np.random.default_rng(1).lognormal(size=(6000, 4))
    X = X.astype(np.float32 if kind == "diag" else np.float64)
    rows = stored(tmp_path, X)
    weights = np.random.default_rng(0).lognormal(sigma=2.0, size=len(X))
    model = mixture(20, covariance_type=kind, n_random=1, max_iter=6, warmup_steps=1)
    one, two = (clone(model).set_params(engine=dc.LocalEngine(n)) for n in (1, 2))
    expected = one.fit(X, sample_weight=weights)
    same(two.fit(X, sample_weight=weights), expected)
    same(two.fit(rows, sample_weight=weights), expected)
    same(clone(model).set_params(engine=client).fit(rows, sample_weight=weights), expected)


def test_sets_lost_with_a_worker_are_recomputed(tmp_path, monkeypatch):
    """Every pass after the kill starts from the last save."""
    from daskcluster.methods.mixture import algorithm

    monkeypatch.setattr(algorithm, "SAVE_EVERY", 3)
    X = blobs(6000, 20, 4, dtype=np.float32)
    rows = stored(tmp_path, X)
    model = mixture(20, n_random=1, tol=0.0, max_iter=8)
    expected = clone(model).set_params(engine="local").fit(X)
    killed = []

    with patient_cluster(2) as client:

        def kill(event):
            if isinstance(event, EMStepEnded) and event.iteration == 4 and not killed:
                killed.append(next(iter(client.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)

        found = clone(model).set_params(engine=client, callbacks=[kill]).fit(rows)
    assert killed
    same(found, expected)


def test_lost_sets_are_recomputed_from_the_last_save(monkeypatch, tmp_path):
    """Every pass loses all sets, and the journal is never longer than the interval between saves."""
    from daskcluster.engine.local import LocalPlacement
    from daskcluster.engine.operations import CacheSlot
    from daskcluster.methods.mixture import algorithm
    from daskcluster.methods.mixture.chunkwise import e_step as passes

    X, lengths = blobs(2000, 20, 4, dtype=np.float32), []
    model = mixture(20, n_random=1, tol=0.0, max_iter=9, warmup_steps=1)
    expected = clone(model).fit(X)
    prepare = passes._PreparedEStep.__init__

    def spied(self, params):
        lengths.append((len(params.journal), params.saved is not None))
        prepare(self, params)

    monkeypatch.setattr(passes._PreparedEStep, "__init__", spied)
    same(clone(model).fit(X), expected)
    assert lengths == [(0, False)] * 12  # threads keep no journal
    lengths.clear()
    monkeypatch.setattr(CacheSlot, "keep_state", lambda *arguments: None)
    monkeypatch.setattr(LocalPlacement, "loses_state", True)
    monkeypatch.setattr(algorithm, "SAVE_EVERY", 3)
    monkeypatch.setattr(LocalPlacement, "shared_folder", lambda self: str(tmp_path))
    same(clone(model).fit(X), expected)
    assert [n for n, _ in lengths] == [0, 1, 2] * 4
    assert [saved for _, saved in lengths] == [False] * 3 + [True] * 9
    assert len(list(tmp_path.iterdir())) == 1  # older saves are gone

    lengths.clear()
    monkeypatch.setattr(LocalPlacement, "shared_folder", lambda self: "/dev/null/nowhere")
    same(clone(model).fit(X), expected)  # what cannot be saved is replayed from the beginning
    assert [n for n, _ in lengths] == list(range(12))


# -- copies and models ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_saved_models_are_loaded_unchanged(tmp_path, kind):
    X = blobs()
    fitted = mixture(covariance_type=kind).fit(X)
    url = str(tmp_path / "model.zarr")
    fitted.save(url)
    loaded = dc.load_model(url)
    assert isinstance(loaded, dc.VariationalGaussianMixture)
    same(loaded, fitted)
    assert np.array_equal(loaded.predict(X), fitted.predict(X))
    assert loaded.history_ == fitted.history_
    assert loaded.get_params()["truncation"] == 3


def test_a_model_of_another_shape_is_refused():
    from daskcluster.errors import ModelFormatError
    from daskcluster.methods.mixture.model import MixtureModel

    half = np.full(2, 0.5)
    for variances in (np.ones(2), np.zeros(1), np.full(1, np.nan), np.ones(1, np.float32)):
        with pytest.raises(ModelFormatError, match="variances"):
            MixtureModel(np.zeros((2, 3)), variances, half, half)
    with pytest.raises(ModelFormatError, match="truncation=3 should be in"):
        MixtureModel(np.zeros((2, 3)), np.ones(1), half, half, truncation=3)


def test_pickles_hold_no_rows():
    X = blobs(5000)
    fitted = mixture(coreset_size=1000).fit(X)
    twin = pickle.loads(pickle.dumps(fitted))
    assert len(pickle.dumps(fitted)) < 20_000
    assert np.array_equal(twin.predict(X), fitted.predict(X))
    labels = fitted.labels_
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).labels_, labels)
