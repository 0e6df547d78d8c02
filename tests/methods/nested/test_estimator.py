"""NestedMiniBatchKMeans: the paper's invariants, its end in Lloyd's algorithm, the same bits."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import zarr
from scipy import sparse

import daskcluster as dc
from daskcluster import open_dataset
from daskcluster.engine.local import LocalEngine
from daskcluster.errors import InvalidParameterError, WrongTypeError
from daskcluster.events import Notice, PassStarted, RoundEnded, StopFit
from daskcluster.methods.nested.batches import GatheredBatches, NestedOrder
from daskcluster.randomness import Key
from tests.laws.data import CASES, case
from tests.tiles import BOUNDS_SPARE

BOUNDS = ("auto", "hamerly", "yinyang", "elkan")


def blobs(n=4000, d=6, k=5, *, seed=0, dtype=np.float64, sort=False):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, k, n)
    if sort:
        labels = np.sort(labels)
    return (rng.normal(size=(k, d))[labels] * 2 + rng.normal(size=(n, d))).astype(dtype)


def same(one, other):
    np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)
    np.testing.assert_array_equal(np.asarray(one.labels_), np.asarray(other.labels_))
    assert one.n_iter_ == other.n_iter_
    assert one.inertia_ == other.inertia_
    assert one.stop_reason_ == other.stop_reason_
    assert sizes(one) == sizes(other)


def sizes(model):
    return [record["batch_size"] for record in model.history_]


def fit(X, **changes):
    values = {"n_clusters": 5, "batch_size": 300, "random_state": 0, **changes}
    weights = values.pop("sample_weight", None)
    return dc.NestedMiniBatchKMeans(**values).fit(X, sample_weight=weights)


# -- against the paper, vote by vote ----------------------------------------------------------------


def test_the_batch_statistics_count_every_row_once():
    X = blobs(2000)
    model = fit(X, batch_size=100, rho=10.0, tol=0)
    assert sizes(model)[0] == 100
    assert sizes(model)[-1] == 2000
    assert sorted(set(sizes(model))) == [100, 200, 400, 800, 1600, 2000]
    assert sizes(model) == sorted(sizes(model))
    assert int(model.cluster_sizes_.sum()) == 2000
    means = [X[model.labels_ == j].mean(axis=0) for j in range(5)]
    np.testing.assert_allclose(model.cluster_centers_, means, rtol=1e-10)


# -- at all rows it is Lloyd -------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("init", ["k-means++", "random", "array"])
def test_a_first_batch_of_all_rows_is_lloyd_to_the_bit(name, init):
    X, weights = case(name)
    given = X[weights > 0][:8] if weights is not None else X[:8]
    init = given if init == "array" else init
    lloyd = dc.KMeans(8, init=init, n_init=1, algorithm="lloyd", random_state=5)
    lloyd.fit(X, sample_weight=weights)
    for size in (len(X), 10 * len(X)):
        found = fit(
            X, n_clusters=8, init=init, batch_size=size, random_state=5, sample_weight=weights
        )
        np.testing.assert_array_equal(found.cluster_centers_, lloyd.cluster_centers_)
        np.testing.assert_array_equal(found.labels_, lloyd.labels_)
        assert (found.n_iter_, found.inertia_) == (lloyd.n_iter_, lloyd.inertia_)
        assert found.stop_reason_ == lloyd.stop_reason_


def test_empty_clusters_are_relocated_at_the_end_as_lloyd_does():
    X = blobs(1500)
    init = np.concatenate([X[:4], np.full((1, X.shape[1]), 1e3)])
    lloyd = dc.KMeans(5, init=init, algorithm="lloyd").fit(X)
    found = fit(X, init=init, batch_size=1500)
    np.testing.assert_array_equal(found.cluster_centers_, lloyd.cluster_centers_)
    assert found.history_[0]["n_empty"] == 1
    grown = fit(X, init=init, batch_size=200)
    kept = [record["n_empty"] for record in grown.history_ if record["batch_size"] < 1500]
    assert kept[0] == 1  # until then the empty cluster keeps its centre
    assert (grown.cluster_sizes_ > 0).all()


def test_it_ends_at_a_fixed_point_of_lloyd():
    X = blobs(3000)
    model = fit(X, tol=0)
    assert model.stop_reason_ == "converged"
    again = dc.KMeans(5, init=model.cluster_centers_, algorithm="lloyd", tol=0).fit(X)
    assert again.n_iter_ <= 2
    np.testing.assert_allclose(again.cluster_centers_, model.cluster_centers_, rtol=1e-12)


# -- the same bits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float32", "weighted float64"])
def test_bounds_do_not_change_a_bit(name):
    X, weights = case(name)
    plain = fit(X, n_clusters=12, batch_size=150, bounds=False, sample_weight=weights, rho=10.0)
    assert len(set(sizes(plain))) == 5
    for bounds in BOUNDS:
        same(
            fit(X, n_clusters=12, batch_size=150, bounds=bounds, sample_weight=weights, rho=10.0),
            plain,
        )


def test_bounds_spare_distances():
    X = blobs(4000)
    spent = {
        bounds: sum(r["n_distances"] for r in fit(X, bounds=bounds, tol=0).history_)
        for bounds in (False, "hamerly")
    }
    assert (
        spent["hamerly"] < 0.7 * spent[False] if BOUNDS_SPARE else spent["hamerly"] == spent[False]
    )


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("bounds", ["hamerly", "yinyang", "elkan", "auto"])
def test_bounds_give_the_same_bits_when_a_batch_doubles(bounds, shuffle, monkeypatch):
    monkeypatch.setattr("daskcluster.methods.kmeans.bounds._SMALL", 0.0)
    X = blobs(4000, 12, 24)
    values = {"n_clusters": 24, "batch_size": 500, "rho": 30.0, "tol": 0, "shuffle": shuffle}
    model = fit(X, bounds=bounds, **values)
    same(fit(X, bounds=False, **values), model)
    assert {record["batch_size"] for record in model.history_} == {500, 1000, 2000, 4000}


def test_the_next_nested_batch_is_gathered_ahead():
    """While a batch is computed, a thread copies the rows that the next one adds; and none twice."""
    X, calls = blobs(2000), []
    base = open_dataset(X)
    plain = base.chunks
    base.chunks = lambda *args, **kwargs: (
        calls.append(threading.get_ident()) or plain(*args, **kwargs)
    )
    order = NestedOrder(2000, Key(0, "nested"))
    nested_batches = GatheredBatches(base, order, [100, 200, 400])
    nested_batches.gather(1)
    nested_batches.gather_ahead(2)
    nested_batches.wait()
    nested_batches.gather(2)
    assert nested_batches.n_gathered == 2
    assert len(calls) == 2
    assert calls[0] == threading.get_ident() != calls[1]
    np.testing.assert_array_equal(nested_batches.batch(2).to_numpy(), X[nested_batches.index(2)])
    nested_batches.gather_ahead(3)
    nested_batches.gather(3)
    assert sorted(nested_batches.index(3)) == order.within(0, 2000, 0, order.limit(400)).tolist()


def zarr_of(path, X, chunk):
    array = zarr.create_array(str(path), shape=X.shape, chunks=(chunk, X.shape[1]), dtype=X.dtype)
    array[:] = X
    return str(path)


@pytest.mark.parametrize("name", ["float32", "weighted float64"])
def test_threads_and_chunks_do_not_change_a_bit(name, tmp_path):
    X, weights = case(name)
    values = {"n_clusters": 8, "init": X[:8] if weights is None else X[1:9], "batch_size": 150}
    values |= {"rho": 10.0, "sample_weight": weights}
    one = fit(X, engine=LocalEngine(1), **values)
    same(fit(X, engine=LocalEngine(2), **values), one)
    for chunk in (37, 700):
        url = zarr_of(tmp_path / str(chunk), X, chunk)
        same(fit(url, **values), one)


@pytest.mark.parametrize("bounds", [False, "hamerly"])
def test_where_a_batch_is_does_not_change_a_bit(bounds, tmp_path, monkeypatch):
    """Gathered in this process, or left where the rows are."""
    X, weights = case("weighted float32", n=6000)
    url = zarr_of(tmp_path / "rows", X, 500)
    values = {"n_clusters": 8, "init": X[1:9], "sample_weight": weights, "bounds": bounds}
    home = fit(url, **values)
    monkeypatch.setattr("daskcluster.methods.nested.estimator.HOME_BYTES", 0)
    heard = []
    same(fit(url, callbacks=(heard.append,), **values), home)
    assert [event.text[:34] for event in heard if isinstance(event, Notice)] == [
        "batches of 300 rows and more stay "
    ]
    same(fit(X, **values), home)


def test_a_small_memory_limit_that_changes_the_sample_says_so(tmp_path, monkeypatch):
    X = blobs()
    url = zarr_of(tmp_path / "rows", X, 500)
    for room, said in ((1 << 30, 0), (X.nbytes, 1), (0, 1)):
        monkeypatch.setattr(
            "daskcluster.engine.local.LocalPlacement.state_room", lambda self, room=room: room
        )
        heard = []
        fit(url, callbacks=(heard.append,), max_iter=1)
        fit(url, callbacks=(heard.append,), max_iter=1, init=X[:5])  # which needs no sample
        texts = [event.text for event in heard if isinstance(event, Notice)]
        assert sum("the sample for the first centres" in text for text in texts) == said


@pytest.mark.parametrize("home", [1 << 28, 0], ids=["gathered", "on the workers"])
@pytest.mark.parametrize("name", ["float32", "weighted float64"])
def test_a_cluster_gives_the_same_bits(name, home, client, tmp_path, monkeypatch):
    X, weights = case(name, n=4000)
    url = zarr_of(tmp_path / "rows", X, 300)
    values = {"n_clusters": 6, "init": X[1:7], "sample_weight": weights, "batch_size": 900}
    local = fit(url, engine="local", **values)
    monkeypatch.setattr("daskcluster.methods.nested.estimator.HOME_BYTES", home)
    same(fit(url, engine=client, **values), local)


def test_the_seed_decides():
    X = blobs(3000)
    same(fit(X, random_state=1), fit(X, random_state=1))
    assert not np.array_equal(
        fit(X, random_state=1).history_[0]["inertia"], fit(X, random_state=2).history_[0]["inertia"]
    )


# -- sampling ------------------------------------------------------------------------------------------


def test_sorted_rows_do_not_hurt():
    """Rows ordered by cluster: a batch of the first ones would know one cluster only."""
    X = blobs(6000, k=5, sort=True)
    best = dc.KMeans(5, n_init=5, random_state=0).fit(X).inertia_
    values = {"batch_size": 250, "max_iter": 15, "init": "k-means++"}
    found = [fit(X, random_state=seed, **values) for seed in range(6)]
    assert min(model.inertia_ for model in found) < 1.02 * best
    fooled = [fit(X, random_state=seed, shuffle=False, **values) for seed in range(6)]
    assert max(sizes(model)[-1] for model in fooled) < 6000
    assert min(model.inertia_ for model in fooled) > 1.2 * best


def test_shuffled_rows_are_taken_as_they_are_stored():
    X = blobs(3000)
    model = fit(X, init=X[:5], batch_size=100, shuffle=False, max_iter=1)
    members = X[:100]
    nearest = ((members[:, None] - X[:5]) ** 2).sum(axis=2).argmin(axis=1)
    means = [members[nearest == j].mean(axis=0) for j in range(5)]
    np.testing.assert_allclose(model.cluster_centers_, means, rtol=1e-12)


def test_one_pass_gathers_all_batches_of_a_store(tmp_path):
    X = blobs(3000, dtype=np.float32)
    url = zarr_of(tmp_path / "rows", X, 100)
    model = fit(url, init=X[:5], batch_size=100, rho=1.0, max_iter=8)
    assert len(set(sizes(model))) > 2
    assert sizes(model)[-1] < 3000
    assert model.passes_ == 2  # to gather, and for the final inertia
    assert model.bytes_read_ <= 2 * X.nbytes + X.nbytes // 30


def test_the_beginning_of_a_shuffled_store_is_read_only(tmp_path):
    X = blobs(3000, dtype=np.float32)
    url = zarr_of(tmp_path / "rows", X, 100)
    model = fit(url, init=X[:5], batch_size=100, shuffle=False, max_iter=3)
    assert sizes(model)[-1] == 100
    assert sum(record["bytes_read"] for record in model.history_) == 0
    assert model.bytes_read_ <= X.nbytes * 1.05


# -- weights, sparse rows, cosine ------------------------------------------------------------------------


@pytest.mark.parametrize("seeds_vote", [False, True])
@pytest.mark.parametrize("weight", [1.0, 0.25])
def test_equal_weights_change_no_bit_of_the_doubling(weight, seeds_vote):
    X = blobs(2000)
    options = {"rho": 3.0, "seeds_vote": seeds_vote, "init": X[:5]}
    one, other = fit(X, **options), fit(X, sample_weight=np.full(2000, weight), **options)
    ratios = [[record["doubling_ratio"] for record in m.history_] for m in (one, other)]
    np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)
    assert sizes(one) == sizes(other)
    assert ratios[0] == ratios[1]


def test_uneven_weights_do_not_depend_on_the_engine_or_on_kept_labels(tmp_path, client):
    X = blobs(2000)
    weights = np.random.default_rng(2).lognormal(sigma=1.0, size=2000)
    expected = fit(X, rho=2.0, sample_weight=weights, bounds=False, init=X[:5])
    url = zarr_of(tmp_path / "rows", X, 90)
    other = fit(url, rho=2.0, sample_weight=weights, engine=client, bounds="elkan", init=X[:5])
    same(expected, other)


def test_rows_without_weight_have_no_vote():
    X = blobs(2000)
    weights = np.ones(2000)
    X[::2] += 50.0
    weights[::2] = 0.0
    model = fit(X, sample_weight=weights, init=X[1:11:2])
    assert np.abs(model.cluster_centers_).max() < 20.0


def test_sparse_rows_are_the_same_rows():
    X = np.where(np.random.default_rng(0).random((2500, 20)) < 0.1, blobs(2500, 20), 0.0)
    model = fit(sparse.csr_array(X), init=X[:5], tol=0)
    dense = fit(X, init=X[:5], tol=0)
    np.testing.assert_allclose(model.cluster_centers_, dense.cluster_centers_, atol=1e-9)
    assert sizes(model) == sizes(dense)


def test_sparse_batches_that_stay_where_they_are_have_the_same_bits(monkeypatch):
    X = np.where(np.random.default_rng(0).random((2500, 20)) < 0.1, blobs(2500, 20), 0.0)
    rows = sparse.csr_array(X)
    plain = fit(rows, init=X[:5], tol=0)
    monkeypatch.setattr("daskcluster.methods.nested.estimator.HOME_BYTES", 0)
    same(fit(rows, init=X[:5], tol=0), plain)


def test_bounds_do_not_change_a_bit_of_cosine_fits():
    X = np.abs(blobs(2000)) + 0.1
    same(fit(X, metric="cosine", bounds=False), fit(X, metric="cosine", bounds="hamerly"))


# -- rounds, stopping, history ---------------------------------------------------------------------------


def test_rounds_are_counted_on_batches_of_any_size():
    model = fit(blobs(3000), max_iter=7)
    assert (model.n_iter_, len(model.history_), model.stop_reason_) == (7, 7, "max_iter")
    np.testing.assert_array_equal(model.labels_, model.predict(blobs(3000)))
    assert model.passes_ == 1  # for inertia and labels together


def test_a_small_rho_doubles_in_every_round():
    model = fit(blobs(3000), rho=0.0, batch_size=100)
    assert sizes(model)[:6] == [100, 200, 400, 800, 1600, 3000]


def test_a_batch_that_stands_still_doubles_for_any_rho():
    model = fit(blobs(1000), rho=1e300, batch_size=100)
    assert sizes(model)[-1] == 1000
    last = [r for r in model.history_ if r["batch_size"] < 1000]
    assert [r["doubling_ratio"] for r in last if r["shift"] == 0.0] == [None] * 4


def test_validation_is_measured_after_each_round_and_not_timed():
    X, other = blobs(2000), blobs(300, seed=1)
    model = fit(X, validation=other, max_iter=4)
    assert model.history_[-1]["validation"] == pytest.approx(-model.score(other) / 300, rel=1e-12)
    assert fit(X, max_iter=1).history_[0]["validation"] is None


def test_callbacks_get_every_round():
    heard = []

    def listen(event):
        heard.append(event)
        if isinstance(event, RoundEnded) and event.iteration == 3:
            raise StopFit

    model = fit(blobs(2000), callbacks=(listen,))
    assert (model.n_iter_, model.stop_reason_) == (3, "callback")
    assert model.history_ == [vars(event) for event in heard if isinstance(event, RoundEnded)]
    assert any(isinstance(event, PassStarted) for event in heard)


# -- parameters ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"batch_size": 4}, InvalidParameterError, "batch_size=4 should be >= n_clusters=5"),
        ({"batch_size": 2.5}, WrongTypeError, "'batch_size' parameter"),
        ({"bounds": "exact"}, InvalidParameterError, "'auto', 'hamerly', 'yinyang', 'elkan'"),
        ({"validation": np.zeros((3, 2))}, ValueError, "features"),
        (
            {"n_clusters": 3000},
            InvalidParameterError,
            "n_samples=2000 should be >= n_clusters=3000",
        ),
    ],
)
def test_bad_parameters(changes, error, text):
    with pytest.raises(error, match=text):
        fit(blobs(2000), **changes)
