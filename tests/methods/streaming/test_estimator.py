"""StreamingKMeans: the same for any batches, close to a full fit, with forgetting and stable numbers."""

from __future__ import annotations

import copy
import itertools
import pickle

import numpy as np
import pytest
import zarr
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import daskcluster as dc
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.methods.streaming.fold import document_of, fold_of
from daskcluster.methods.streaming.tree import Forgetting

FEW = {"coreset_size": 200, "random_state": 0}


def blobs(n=9000, k=5, d=3, seed=0, spread=10.0):
    rng = np.random.default_rng(seed)
    centres = spread * rng.normal(size=(k, d))
    return (centres[rng.integers(0, k, n)] + rng.normal(size=(n, d))).astype(np.float32)


X = blobs()


def fold_all(model, rows, cuts):
    edges = [0, *cuts, len(rows)]
    for first, last in itertools.pairwise(edges):
        model.partial_fit(rows[first:last])
    return model


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("options", [{}, {"half_life": 3000}, {"window": "5000"}])
def test_results_are_bit_identical_for_any_batches(tmp_path, client, metric, options):
    def make(engine=None):
        return dc.StreamingKMeans(5, metric=metric, engine=engine, **FEW, **options)

    one = make().fit(X)
    stored = zarr.create_array(tmp_path / "x.zarr", shape=X.shape, chunks=(700, 3), dtype="f4")
    stored[:] = X
    others = [
        fold_all(make(), X, (1, 2, 4000)),
        fold_all(make(), X, range(100, 9000, 100)),
        make(dc.LocalEngine(2)).fit(str(tmp_path / "x.zarr")),
        make(client).fit(str(tmp_path / "x.zarr")),
    ]
    for other in others:
        assert other.cluster_centers_.tobytes() == one.cluster_centers_.tobytes()
        assert (other.inertia_, other.rows_seen_) == (one.inertia_, len(X))
        assert np.array_equal(other.cluster_births_, one.cluster_births_)
    assert np.array_equal(one.labels_, one.predict(X))
    assert np.array_equal(np.asarray(others[2].labels_), one.labels_)


def test_reading_attributes_does_not_change_the_state():
    quiet, curious = (dc.StreamingKMeans(5, **FEW) for _ in range(2))
    for part in np.array_split(X, 7):
        quiet.partial_fit(part)
        curious.partial_fit(part)
        assert curious.cluster_centers_.shape == (5, 3)
    assert quiet.cluster_centers_.tobytes() == curious.cluster_centers_.tobytes()


@pytest.mark.parametrize("seed", range(2))
def test_it_is_nearly_as_good_as_a_full_fit(seed):
    rows = blobs(40_000, 8, 4, seed, spread=3.0)
    full = dc.KMeans(8, random_state=seed, init="k-means++", n_init=5).fit(rows)
    model = dc.StreamingKMeans(8, coreset_size=800, random_state=seed).fit(rows)
    assert -model.score(rows) <= 1.05 * full.inertia_
    assert model.inertia_ == pytest.approx(-model.score(rows), rel=0.1)
    assert model.cluster_weights_.sum() == pytest.approx(len(rows))


@pytest.mark.parametrize("half_life", [None, 8000])
def test_poor_local_minima_are_left(half_life):
    k, n = 30, 30_000
    rng = np.random.default_rng(7)
    centres = 3.0 * rng.normal(size=(k, 10))
    rows = (centres[rng.integers(0, k, n)] + rng.normal(size=(n, 10))).astype(np.float32)
    weights = Forgetting.of(half_life, None).left(np.arange(n, dtype=float), now=n - 1.0)
    best = dc.KMeans(k, init=centres).fit(rows, sample_weight=weights).inertia_
    for seed in range(2):
        model = dc.StreamingKMeans(k, half_life=half_life, random_state=seed, coreset_size=1000)
        assert -model.fit(rows).score(rows, sample_weight=weights) <= 1.05 * best


def test_given_centres_are_only_refined():
    given = np.repeat(X[:1], 5, axis=0) + np.arange(5, dtype=np.float32)[:, None] / 100
    model = dc.StreamingKMeans(5, init=given, max_iter=0, **FEW).fit(X)
    assert np.array_equal(model.cluster_centers_, given)


def test_weights_and_sparse_rows():
    weights = np.random.default_rng(1).integers(0, 4, len(X)).astype(float)
    model = dc.StreamingKMeans(5, **FEW).fit(X, sample_weight=weights)
    assert model.remembered_ == pytest.approx(weights.sum())
    rows = sparse.csr_array(np.where(X > 0, X, 0))
    one = dc.StreamingKMeans(5, **FEW).fit(rows)
    two = dc.StreamingKMeans(5, **FEW).partial_fit(rows[:2500]).partial_fit(rows[2500:])
    assert one.cluster_centers_.tobytes() == two.cluster_centers_.tobytes()
    assert one.predict(rows[:10]).shape == (10,)


def test_old_rows_are_forgotten():
    old, new = blobs(8000, 3, 2, 1), blobs(8000, 3, 2, 2) + np.float32(100)
    rows = np.concatenate([old, new])
    for options in ({"half_life": 500}, {"window": 4000}):
        model = dc.StreamingKMeans(3, **FEW, **options).fit(rows)
        assert model.cluster_centers_.min() > 50
        assert -model.score(new) <= 1.05 * dc.KMeans(3, random_state=0, n_init=5).fit(new).inertia_
    # All remembered, some centre has to stay behind.
    assert dc.StreamingKMeans(3, **FEW).fit(rows).cluster_centers_.min() < 50


def test_ages_may_be_times():
    model = dc.StreamingKMeans(2, half_life="1h", **FEW)
    model.partial_fit(X[:4000], timestamp=0.0).partial_fit(X[4000:6000], timestamp=7200.0)
    assert model.remembered_ == pytest.approx(4000 / 4 + 2000)
    with pytest.raises(InvalidParameterError, match="pass timestamp= to partial_fit"):
        model.partial_fit(X[:10])
    with pytest.raises(InvalidParameterError, match="has no effect where neither"):
        dc.StreamingKMeans(2).partial_fit(X[:10], timestamp=1.0)
    assert model.rows_seen_ == 6000


def drifting(n_portions=20, portion=1000):
    """Three clusters that move along a circle."""
    rng = np.random.default_rng(5)
    for step in range(n_portions):
        angles = 2 * np.pi * (np.arange(3) / 3 + step / 80)
        centres = 20 * np.column_stack([np.cos(angles), np.sin(angles)])
        labels = rng.integers(0, 3, portion)
        yield centres, (centres[labels] + rng.normal(size=(portion, 2))).astype(np.float32)


def test_moving_clusters_keep_their_numbers():
    model, numbers = dc.StreamingKMeans(3, half_life=2000, coreset_size=100, random_state=0), None
    for step, (centres, rows) in enumerate(drifting()):
        model.partial_fit(rows)
        if step < 4:
            continue
        found = model.predict(centres.astype(np.float32))
        assert sorted(found) == [0, 1, 2]
        if numbers is not None:
            assert found.tolist() == numbers
        numbers = found.tolist()
        error = np.linalg.norm(model.cluster_centers_[found] - centres, axis=1).max()
        assert error < 6.0


@pytest.mark.parametrize("saved", [False, True])
def test_numbers_are_stable_from_the_first_rows_on(saved):
    # Before the first leaf, which has some 2,000 rows, over it, and after a model was saved.
    rows, model = blobs(spread=30.0), dc.StreamingKMeans(5, **FEW)
    first = model.partial_fit(rows[:60]).cluster_centers_
    for start in range(60, 6000, 540):
        model.partial_fit(rows[start : start + 540])
        if saved and start == 600:
            model.save("memory://numbers-stay", overwrite=True)
            model = dc.load_model("memory://numbers-stay")
        np.testing.assert_allclose(model.cluster_centers_, first, atol=3.0)
    assert list(dict.fromkeys(model.predict(rows[:60]).tolist())) == list(range(5))


def test_initial_numbers_follow_init_or_the_order_of_rows():
    rows = blobs(n=1000, spread=30.0)
    by_rows = dc.StreamingKMeans(5, **FEW).fit(rows)
    given = by_rows.cluster_centers_[::-1].copy()
    kept = dc.StreamingKMeans(5, init=given, **FEW).fit(rows)
    np.testing.assert_allclose(kept.cluster_centers_, given, atol=1e-5)
    weights = np.ones(len(rows))
    weights[:500] = 0.0
    late = dc.StreamingKMeans(5, **FEW).fit(rows, sample_weight=weights)
    np.testing.assert_allclose(late.cluster_centers_, by_rows.cluster_centers_, atol=3.0)


def test_merge_of_parallel_streams():
    one, two = dc.StreamingKMeans(5, **FEW).fit(X[:5000]), dc.StreamingKMeans(5, **FEW)
    assert one.merge(two) is one  # which has seen nothing
    with pytest.raises(InvalidParameterError, match="has seen none"):
        two.merge(one)
    two.fit(X[5000:])
    before = two.cluster_centers_
    one.merge(two)
    assert one.rows_seen_ == len(X)
    assert one.remembered_ == pytest.approx(len(X))
    assert np.array_equal(before, two.cluster_centers_)
    full = dc.KMeans(5, random_state=0, n_init=5).fit(X)
    assert -one.score(X) <= 1.05 * full.inertia_
    with pytest.raises(InvalidParameterError, match="same coreset_size"):
        one.merge(dc.StreamingKMeans(5, coreset_size=300).fit(X))
    with pytest.raises(InvalidParameterError, match="2 features cannot be merged"):
        one.merge(dc.StreamingKMeans(5, **FEW).fit(X[:, :2]))


@pytest.mark.parametrize("options", [{}, {"half_life": 3000}])
@pytest.mark.parametrize("rows", [X, sparse.csr_array(np.where(X > 0, X, 0))], ids=["dense", "csr"])
def test_the_state_survives_saving_and_loading(options, rows):
    model = dc.StreamingKMeans(5, **FEW, **options).partial_fit(rows[:4321])
    fold = model._fold
    again = fold_of(document_of(fold), fold.settings)
    other = clone(model)
    other._fold, other.n_features_in_, other.bytes_read_ = again, 3, 0
    assert other.cluster_centers_.tobytes() == model.cluster_centers_.tobytes()
    for each in (model, other):
        each.partial_fit(rows[4321:])
    assert other.cluster_centers_.tobytes() == model.cluster_centers_.tobytes()
    assert other.drift_["error"] == model.drift_["error"]


def test_saved_models_accept_more_rows():
    model = dc.StreamingKMeans(5, **FEW).fit(X)
    model.save("memory://streaming-kmeans", overwrite=True)
    again = dc.load_model("memory://streaming-kmeans")
    assert isinstance(again, dc.StreamingKMeans)
    assert again.cluster_centers_.tobytes() == model.cluster_centers_.tobytes()
    assert (again.rows_seen_, again.inertia_) == (model.rows_seen_, model.inertia_)
    assert np.array_equal(again.predict(X), model.predict(X))
    again.partial_fit(X[:1000])
    assert again.rows_seen_ == len(X) + 1000
    np.testing.assert_allclose(again.cluster_centers_, model.cluster_centers_, atol=0.5)


def test_copies_and_pickles():
    model = dc.StreamingKMeans(5, **FEW).fit(X)
    for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        twin.partial_fit(X[:3000])
        assert twin.rows_seen_ == len(X) + 3000
    assert model.rows_seen_ == len(X)
    assert len(pickle.dumps(model)) < 200_000
    assert not hasattr(clone(model), "cluster_centers_")


def test_invalid_rows_and_parameters_are_refused():
    model = dc.StreamingKMeans(5, **FEW)
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.partial_fit(X[:3])
    with pytest.raises(NotFittedError):
        model.predict(X)
    with pytest.raises(AttributeError, match="fewer rows than clusters"):
        _ = model.cluster_centers_
    model.partial_fit(X[3:50])
    assert model.predict(X).shape == (len(X),)
    bad = X[:3000].copy()
    bad[2999] = np.inf
    with pytest.raises(InvalidDataError, match=r"infinity.*row 2999"):
        model.partial_fit(bad)
    assert model.rows_seen_ == 50
    with pytest.raises(ValueError, match="n_samples=3 should be >= n_clusters=5"):
        dc.StreamingKMeans(5).fit(X[:3])
    with pytest.raises(InvalidParameterError, match="drift_threshold"):
        dc.StreamingKMeans(5, drift_threshold=0.5).fit(X)
    with pytest.raises(InvalidParameterError, match="coreset_size=3 should be >= n_clusters=5"):
        dc.StreamingKMeans(5, coreset_size=3).fit(X)
