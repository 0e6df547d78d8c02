"""MiniBatchKMeans: against the reference, on every source and engine, and as scikit-learn's estimator."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import zarr
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import daskcluster as dc
from daskcluster import errors, events
from daskcluster.methods.minibatch import estimator as minibatch_fit
from daskcluster.methods.minibatch.batches import Batches
from tests.laws.data import CASES, case
from tests.reference import kmeans as truth
from tests.reference.minibatch import run
from tests.reference.variance_reduced import sgd

X = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
RATES = ["count", "sqrt"]
PLAIN = {"max_no_improvement": None, "reassignment_ratio": 0.0, "tol": 0.0}
"""Without early stop and reassignment: nothing but the updates of the papers."""


def stored(folder, rows, chunk=100):
    array = zarr.create_array(
        folder / "rows.zarr", shape=rows.shape, chunks=(chunk, rows.shape[1]), dtype=rows.dtype
    )
    array[:] = rows
    return str(folder / "rows.zarr")


def batches_of(rows, weights, b, n, **options):
    """Return the numbers of the rows in the first `n` batches, as `fit` draws them."""
    with Batches(dc.open_dataset(rows, weights=weights), b, 0, **options) as batches:
        drawn = [len(batches.next()) and [batches.row_of(i) for i in range(b)] for _ in range(n)]
    return [np.array(rows) for rows in drawn]


def same_bits(one, other):
    assert one.cluster_centers_.dtype == other.cluster_centers_.dtype
    assert np.array_equal(one.cluster_centers_, other.cluster_centers_)
    assert np.array_equal(one.counts_, other.counts_)
    assert np.array_equal(np.asarray(one.labels_), np.asarray(other.labels_))
    assert (one.inertia_, one.n_steps_, one.stop_reason_) == (
        other.inertia_,
        other.n_steps_,
        other.stop_reason_,
    )


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("name", CASES)
def test_fit_follows_the_reference(name, rate):
    rows, weights = case(name, n=400)
    model = dc.MiniBatchKMeans(
        6, init=rows[:6], batch_size=90, learning_rate=rate, max_iter=2, random_state=0, **PLAIN
    ).fit(rows, sample_weight=weights)
    assert (model.n_steps_, model.n_iter_, model.stop_reason_) == (8, 2, "max_iter")
    centres, seen, costs = run(rows, weights, rows[:6], batches_of(rows, weights, 90, 8), rate)
    tolerance = 1e-11 if rows.dtype == np.float64 else 1e-5
    np.testing.assert_allclose(model.cluster_centers_, centres, rtol=tolerance)
    np.testing.assert_allclose(model.counts_, seen, rtol=1e-12)
    found = [record["inertia"] for record in model.history_]
    np.testing.assert_allclose(found, costs, rtol=tolerance)
    final = truth.inertia(rows, model.cluster_centers_, weights)
    np.testing.assert_allclose(model.inertia_, final, rtol=1e-6)


@pytest.mark.parametrize("rate", RATES)
def test_partial_fits_are_the_steps_of_fit(rate):
    rows, weights = case("weighted float32", n=500)
    options = {
        "init": rows[:5],
        "learning_rate": rate,
        "random_state": 0,
        "max_no_improvement": None,
    }
    whole = dc.MiniBatchKMeans(5, batch_size=100, max_iter=3, **options)
    whole.fit(rows, sample_weight=weights)
    parts = dc.MiniBatchKMeans(5, reassignment_ratio=0.01, **options)
    for listed in batches_of(rows, weights, 100, 15):
        parts.partial_fit(rows[listed], sample_weight=weights[listed])
    assert whole.n_steps_ == parts.n_steps_ == 15
    # Positions in a batch are shuffled, so sums are added up in the same order.
    assert np.array_equal(whole.cluster_centers_, parts.cluster_centers_)
    assert np.array_equal(whole.counts_, parts.counts_)


def test_labels_are_those_of_predict():
    for rows in (X, sparse.csr_matrix(X), X.astype(np.float64)):
        model = dc.MiniBatchKMeans(7, batch_size=50, random_state=0).fit(rows)
        assert np.array_equal(model.labels_, model.predict(rows))
        assert model.labels_.dtype == np.int32
        model.partial_fit(rows[:40])
        assert np.array_equal(model.labels_, model.predict(rows[:40]))
        np.testing.assert_allclose(model.inertia_, -model.score(rows[:40]), rtol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_sources_that_fit_in_memory_and_threads_give_the_same_bits(tmp_path, name, monkeypatch):
    import dask.array as da

    from daskcluster.methods.minibatch import chunkwise as minibatch

    monkeypatch.setattr(minibatch, "_WORTH_A_THREAD", 0)
    rows, weights = case(name)
    model = dc.MiniBatchKMeans(6, batch_size=128, random_state=0)
    expected = clone(model).set_params(engine=dc.LocalEngine(n_threads=1)).fit(rows, None, weights)
    two = dc.LocalEngine(n_threads=2)
    for source in (rows, np.asfortranarray(rows), stored(tmp_path, rows), da.from_array(rows, 70)):
        same_bits(clone(model).set_params(engine=two).fit(source, None, weights), expected)


def test_a_cluster_gives_the_same_bits(tmp_path, client, monkeypatch):
    rows, weights = case("weighted float32")
    model = dc.MiniBatchKMeans(6, batch_size=128, random_state=0)
    for source in (rows, stored(tmp_path, rows)):
        expected = clone(model).set_params(engine="local").fit(source, None, weights)
        same_bits(clone(model).set_params(engine=client).fit(source, None, weights), expected)
    monkeypatch.setattr(minibatch_fit, "ROOM_BYTES", rows.nbytes // 2)
    expected = clone(model).set_params(engine="local").fit(source, None, weights)
    same_bits(clone(model).set_params(engine=client).fit(source, None, weights), expected)


@pytest.mark.parametrize("rate", RATES)
def test_out_of_core_follows_its_pools(tmp_path, rate, monkeypatch):
    rows, _ = case("float64")
    source, room = stored(tmp_path, rows, chunk=10), rows.nbytes // 2
    monkeypatch.setattr(minibatch_fit, "ROOM_BYTES", room)
    heard = []
    model = dc.MiniBatchKMeans(
        6, init=rows[:6], batch_size=70, learning_rate=rate, max_iter=1, random_state=0,
        callbacks=[heard.append], **PLAIN,
    ).fit(source)  # fmt: skip
    drawn = batches_of(source, None, 70, 21, room_bytes=room)
    centres, _, _ = run(rows, None, rows[:6], drawn, rate)
    np.testing.assert_allclose(model.cluster_centers_, centres, rtol=1e-11)
    notices = [event.text for event in heard if isinstance(event, events.Notice)]
    assert any("of 150 row groups" in text for text in notices)
    assert model.bytes_read_ >= 2 * rows.nbytes  # the steps' pass, and the last one
    assert model.passes_ == 2


@pytest.mark.parametrize("rate", RATES)
def test_sorted_rows_do_not_hurt(tmp_path, rate, monkeypatch):
    random = np.random.default_rng(0)
    centres = random.normal(size=(20, 8)) * 10
    labels = np.sort(random.integers(0, 20, 5_000))
    rows = (centres[labels] + random.normal(size=(5_000, 8))).astype(np.float32)
    best = ((rows - centres[labels]) ** 2).sum()
    start = (centres + random.normal(size=centres.shape)).astype(np.float32)
    for folder, order in (("sorted", np.arange(5_000)), ("shuffled", random.permutation(5_000))):
        (tmp_path / folder).mkdir()
        source = stored(tmp_path / folder, rows[order], chunk=25)
        monkeypatch.setattr(minibatch_fit, "ROOM_BYTES", rows.nbytes // 2)
        model = dc.MiniBatchKMeans(
            20, init=start, batch_size=250, learning_rate=rate, max_iter=5, random_state=0, **PLAIN
        ).fit(source)
        # Means of 64 groups of one cluster each weigh clusters unevenly, which moves no mean.
        assert model.inertia_ < best * (1.01 if rate == "count" else 1.04), folder


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
@pytest.mark.parametrize("init", ["auto", "random", "k-means||"])
def test_sorted_rows_are_seeded_from_everywhere(tmp_path, init, monkeypatch):
    rows = (np.repeat(np.arange(1.0, 11.0), 1000)[:, None] * [100.0, 0.0]).astype(np.float32)
    monkeypatch.setattr(minibatch_fit, "ROOM_BYTES", rows.nbytes // 2)
    source = stored(tmp_path, rows, chunk=20)
    model = dc.MiniBatchKMeans(10, init=init, batch_size=200, random_state=0, max_iter=20).fit(
        source
    )
    assert len(np.unique(np.round(model.cluster_centers_[:, 0] / 100))) >= 8


@pytest.mark.parametrize("seed", range(2))
def test_clusters_that_a_pool_lacks_keep_their_centres(tmp_path, seed, monkeypatch):
    """Each of some ten pools holds a few of twenty clusters alone."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(20, 6)) * 20
    labels = np.repeat(np.arange(20), 1000)
    rows = (centres[labels] + random.normal(size=(20_000, 6))).astype(np.float32)
    monkeypatch.setattr(minibatch_fit, "ROOM_BYTES", rows.nbytes // 4)
    source = stored(tmp_path, rows, chunk=1000)
    model = dc.MiniBatchKMeans(20, batch_size=200, max_iter=2, random_state=seed).fit(source)
    assert model.passes_ in (4, 5)  # two for the sample, the steps, and the result
    assert model.inertia_ < 1.1 * ((rows - centres[labels]) ** 2).sum()


def test_sparse_rows_give_the_result_of_dense_ones(tmp_path):
    rows = X * (np.random.default_rng(1).random(X.shape) < 0.5)
    model = dc.MiniBatchKMeans(6, init=rows[:6].copy(), batch_size=60, random_state=0)
    dense, csr = (clone(model).fit(kind) for kind in (rows, sparse.csr_matrix(rows)))
    np.testing.assert_allclose(csr.cluster_centers_, dense.cluster_centers_, rtol=1e-5, atol=1e-6)
    assert np.array_equal(csr.labels_, dense.labels_)


@pytest.fixture(scope="module")
def far_rows():
    """Rows of which one in a thousand are far away, in four groups on several scales."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20_000, 4)) + 10.0 * rng.integers(0, 3, (20_000, 1))
    scales = np.array([1e6, 1e5, 1e4, 1e3])[:, None]
    rows[rng.permutation(20_000)[:20]] += (scales * rng.normal(size=(4, 4))).repeat(5, axis=0)
    best = min(dc.KMeans(7, random_state=seed).fit(rows).inertia_ for seed in range(5))
    return rows.astype(np.float32), best


@pytest.mark.parametrize("kind", [dc.MiniBatchKMeans, dc.NestedMiniBatchKMeans])
@pytest.mark.parametrize("where", ["memory", "wide pools", "narrow pools"])
def test_rare_far_rows_get_centres(far_rows, kind, where, tmp_path, monkeypatch):
    rows, best = far_rows
    source = rows
    if where != "memory":
        source = str(tmp_path / "rows.zarr")
        zarr.create_array(source, data=rows, chunks=(50 if where == "wide pools" else 500, 4))
        monkeypatch.setattr("daskcluster.methods.minibatch.estimator.ROOM_BYTES", rows.nbytes - 1)
    costs = [kind(7, random_state=seed).fit(source).inertia_ for seed in range(3)]
    assert np.median(costs) < 1.3 * best


def test_a_cluster_that_comes_late_gets_a_centre():
    rng = np.random.default_rng(0)
    model = dc.MiniBatchKMeans(3, random_state=0)
    for step in range(60):
        rows = rng.normal(size=(200, 2)) + 20.0 * rng.integers(0, 2, (200, 1))
        rows[:40] += [0.0, 300.0] if step > 30 else 0.0
        model.partial_fit(rows)
    assert (model.cluster_centers_[:, 1] > 250).any()


def test_scaled_weights_change_only_the_inertia():
    rows, weights = case("weighted float64")
    fits = [
        dc.MiniBatchKMeans(6, random_state=0, batch_size=128).fit(rows, sample_weight=weights * s)
        for s in (1.0, 4.0)
    ]
    assert np.array_equal(fits[0].cluster_centers_, fits[1].cluster_centers_)
    assert fits[1].inertia_ == 4.0 * fits[0].inertia_


def test_early_stop_and_tolerance():
    rows = np.random.default_rng(0).normal(size=(5000, 3))
    stopped = dc.MiniBatchKMeans(5, random_state=0, batch_size=100, max_no_improvement=3).fit(rows)
    assert stopped.stop_reason_ == "no_improvement"
    assert stopped.n_steps_ < 5000
    loose = dc.MiniBatchKMeans(5, random_state=0, batch_size=100, tol=0.5, max_no_improvement=None)
    assert loose.fit(rows).stop_reason_ == "tolerance"
    assert loose.n_steps_ >= 2


def test_validation_is_the_mean_squared_distance_of_other_rows(tmp_path):
    other = np.random.default_rng(5).normal(size=(80, 4)).astype(np.float32)
    for given in (other, stored(tmp_path, other), dc.open_dataset(other)):
        model = dc.MiniBatchKMeans(
            4, init=X[:4], batch_size=50, max_iter=1, validation=given, random_state=0
        ).fit(X)
        assert len(model.history_) == model.n_steps_ == 6
        expected = truth.inertia(other, model.cluster_centers_) / 80
        np.testing.assert_allclose(model.history_[-1]["validation"], expected, rtol=1e-5)
    plain = dc.MiniBatchKMeans(4, init=X[:4], batch_size=50, max_iter=1, random_state=0).fit(X)
    assert np.array_equal(plain.cluster_centers_, model.cluster_centers_)


@pytest.mark.parametrize(
    ("parameters", "error", "text"),
    [
        ({"n_clusters": 301}, ValueError, r"n_samples=300 should be >= n_clusters=301"),
        ({"init": X[:7]}, ValueError, r"initial centers \(7, 4\)"),
        ({"validation": X[:5, :3]}, ValueError, r"X has 3 features"),
    ],
)
def test_bad_parameters(parameters, error, text):
    with pytest.raises(error, match=text):
        dc.MiniBatchKMeans(**parameters).fit(X)


@pytest.mark.parametrize("init", ["auto", "random", X[:3]])
def test_rows_that_are_not_finite_are_named(init):
    bad = X.copy()
    bad[123, 2] = np.nan
    text = r"Input X contains NaN: first in row 123 of those seen so far"
    with pytest.raises(errors.InvalidDataError, match=text):
        dc.MiniBatchKMeans(3, init=init, random_state=0, batch_size=32, **PLAIN).fit(bad)
    with pytest.raises(errors.InvalidDataError, match=r"contains NaN: first in row 23;"):
        dc.MiniBatchKMeans(3, init=init).partial_fit(bad[100:])


def test_first_partial_fit_needs_rows_for_its_centres():
    model = dc.MiniBatchKMeans(8, random_state=0)
    text = (
        r"n_samples=5 should be >= n_clusters=8 in the first call of partial_fit.*gather at least 8"
    )
    with pytest.raises(errors.InvalidParameterError, match=text):
        model.partial_fit(X[:5])
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.partial_fit(X[:8]).partial_fit(X[8:9])
    assert model.n_steps_ == 2
    given = dc.MiniBatchKMeans(8, init=X[:8]).partial_fit(X[:2])
    assert given.counts_.sum() == 2
    with pytest.raises(ValueError, match="X has 3 features"):
        model.partial_fit(X[:5, :3])


def test_partial_fit_continues_after_fit_copy_pickle_and_load():
    model = dc.MiniBatchKMeans(4, random_state=0, batch_size=50).fit(X)
    twins = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    steps, seen = model.n_steps_, model.counts_.sum()
    model.partial_fit(X[:20])
    assert model.n_steps_ == steps + 1
    assert model.counts_.sum() == seen + 20
    for twin in twins:
        assert twin.counts_.sum() == seen  # a step of the first is none of the others'
        same_bits(twin.partial_fit(X[:20]), model)
    model.save("memory://minibatch/model.zarr", overwrite=True)
    loaded = dc.load_model("memory://minibatch/model.zarr")
    assert type(loaded) is dc.MiniBatchKMeans
    assert loaded.batch_size == 50
    assert np.array_equal(loaded.cluster_centers_, model.cluster_centers_)
    loaded.partial_fit(X[20:40])
    assert not np.array_equal(loaded.cluster_centers_, model.cluster_centers_)


def test_refit_forgets():
    model = dc.MiniBatchKMeans(4, random_state=0, batch_size=50)
    first = model.partial_fit(X[:100]).fit(X).cluster_centers_
    assert np.array_equal(
        first, dc.MiniBatchKMeans(4, random_state=0, batch_size=50).fit(X).cluster_centers_
    )


def test_history_and_models_are_plain():
    model = dc.MiniBatchKMeans(4, random_state=0, batch_size=20, max_iter=30, **PLAIN).fit(X)
    assert model.n_steps_ == 450
    assert len(model.history_) < 60
    assert {
        "iteration", "seconds", "n_rows", "n_distances", "inertia", "smoothed_inertia", "validation"
    } <= set(model.history_[0])  # fmt: skip
    assert model.history_[-1]["n_rows"] == 9000
    assert sum(record["n_distances"] for record in model.history_) == 9000 * 4
    assert model.to_model().history == tuple(model.history_)


# -- batches of one row: stochastic k-means -----------------------------------------------------------


def stochastic(rows, weights=None, **changes):
    values = {
        "n_clusters": 5,
        "batch_size": 1,
        "max_iter": 2,
        "random_state": 0,
        **PLAIN,
        **changes,
    }
    return dc.MiniBatchKMeans(**values).fit(rows, sample_weight=weights)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_batches_of_one_row_are_stochastic_kmeans(kind, weighted):
    rng = np.random.default_rng(1)
    rows = np.where(rng.random((1500, 4)) < 0.6, 0.0, rng.normal(size=(1500, 4)) * 3)
    rows[:5] += np.arange(20).reshape(5, 4)
    weights = rng.integers(0, 4, 1500).astype(float) if weighted else None
    with Batches(dc.open_dataset(rows), 1024, 0) as batches:
        order = np.concatenate([batches.next().listed for _ in range(2)])
    centres, seen = sgd(rows, weights, rows[:5], np.zeros(5), order)
    given = sparse.csr_array(rows) if kind == "sparse" else rows
    model = stochastic(given, weights, init=rows[:5])
    np.testing.assert_allclose(model.cluster_centers_, centres, rtol=1e-9)
    np.testing.assert_array_equal(model.counts_, seen)
    assert (model.n_steps_, model.n_iter_) == (2048, 2)
    assert [record["batch_size"] for record in model.history_] == [1024, 1024]


@pytest.mark.parametrize("name", CASES)
def test_batches_of_one_row_do_not_depend_on_chunks(tmp_path, name):
    rows, weights = case(name)
    expected = stochastic(rows, weights)
    for chunk in (100, 1500):
        found = stochastic(stored(tmp_path / str(chunk), rows, chunk), weights)
        np.testing.assert_array_equal(found.cluster_centers_, expected.cluster_centers_)
        assert found.inertia_ == expected.inertia_


def test_a_run_of_single_rows_names_a_row_that_is_not_finite():
    rows = np.array(X)
    rows[211, 1] = np.inf
    with pytest.raises(errors.InvalidDataError, match="211"):
        stochastic(rows, init=X[:5])
