"""BackwardEulerKMeans: starts alone and among others, every source and engine, the estimator's contract."""

from __future__ import annotations

import numpy as np
import pytest
import zarr
from sklearn.base import clone

import daskcluster as dc
from daskcluster import events
from daskcluster.methods.backward_euler.estimator import plan_fit
from daskcluster.methods.catalogue import ALGORITHMS
from daskcluster.methods.minibatch import estimator as minibatch_fit
from daskcluster.methods.minibatch.batches import Batches
from daskcluster.randomness import Key
from tests.laws.data import CASES, case
from tests.reference import backward_euler as truth
from tests.reference import kmeans

X = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
SMALL = {"batch_size": 60, "inner_iter": 3, "max_iter": 6, "random_state": 0}


def stored(folder, rows, chunk=100):
    array = zarr.create_array(
        folder / "rows.zarr", shape=rows.shape, chunks=(chunk, rows.shape[1]), dtype=rows.dtype
    )
    array[:] = rows
    return str(folder / "rows.zarr")


def same_bits(one, other):
    assert one.cluster_centers_.dtype == other.cluster_centers_.dtype
    assert np.array_equal(one.cluster_centers_, other.cluster_centers_)
    assert np.array_equal(np.asarray(one.labels_), np.asarray(other.labels_))
    assert np.array_equal(one.start_inertias_, other.start_inertias_)
    assert (one.inertia_, one.n_iter_, one.stop_reason_) == (
        other.inertia_, other.n_iter_, other.stop_reason_,
    )  # fmt: skip
    steps = ("inertia", "shift", "step_size", "n_empty", "n_touched")
    for mine, theirs in zip(one.history_, other.history_, strict=True):
        assert [mine[name] for name in steps] == [theirs[name] for name in steps]


@pytest.mark.parametrize("name", CASES)
def test_fit_follows_the_reference(name):
    rows, weights = case(name, n=300)
    model = dc.BackwardEulerKMeans(4, init=rows[:4], **SMALL).fit(rows, sample_weight=weights)
    seed = Key(0, "restart", 0).derived_seed()
    with Batches(dc.open_dataset(rows, weights=weights), 60, seed) as batches:
        drawn = [batches.next() and [batches.row_of(i) for i in range(60)] for _ in range(40)]
    centres, _, halvings = truth.run(
        rows, weights, rows[:4], [np.array(listed) for listed in drawn],
        gamma=2.2 * 4, beta=1 / 1.02, alpha=0.9, imaxit=3, omaxit=6, size_limit=1.25,
    )  # fmt: skip
    tolerance = 1e-9 if rows.dtype == np.float64 else 2e-4
    scale = np.abs(rows).max()
    np.testing.assert_allclose(
        model.cluster_centers_, centres, rtol=tolerance, atol=tolerance * scale
    )
    assert [record["n_halved"] for record in model.history_] == halvings
    final = kmeans.inertia(rows, model.cluster_centers_, weights)
    np.testing.assert_allclose(model.inertia_, final, rtol=1e-6)
    assert model.start_inertias_.tolist() == [model.inertia_]
    assert np.array_equal(model.labels_, model.predict(rows))
    assert (model.n_iter_, model.stop_reason_, len(model.history_)) == (6, "max_iter", 6)
    assert model.passes_ == -(-19 * 60 // 300) + 1
    assert model.history_[0]["step_size"] == 2.2 * 4


def test_a_limit_of_steps_by_size_lets_unequal_clusters_settle():
    random = np.random.default_rng(3)
    sizes, middles = [4000, *[100] * 7], 40.0 * np.arange(8)[:, None] * [1.0, 0.3]
    rows = np.concatenate(
        [middle + random.normal(size=(n, 2)) for middle, n in zip(middles, sizes, strict=True)]
    )
    model = dc.BackwardEulerKMeans(8, init=middles, batch_size=500, random_state=0)
    free = clone(model).set_params(size_limit=None).fit(rows)
    limited = model.fit(rows)
    halved = [sum(record["n_halved"] for record in each.history_) for each in (free, limited)]
    assert halved[1] < halved[0] / 10
    assert limited.inertia_ < 0.5 * free.inertia_
    assert limited.inertia_ < 1.02 * kmeans.inertia(rows, middles, None)


@pytest.mark.parametrize("n_init", [1, 3])
def test_lloyds_algorithm_finishes_the_best_start(n_init):
    options = {**SMALL, "n_init": n_init}
    plain = dc.BackwardEulerKMeans(5, **options).fit(X)
    fixed = dc.BackwardEulerKMeans(5, refine_iter=100, **options).fit(X)
    after = dc.KMeans(5, init=plain.cluster_centers_, algorithm="lloyd", tol=0.0).fit(X)
    assert np.array_equal(fixed.cluster_centers_, after.cluster_centers_)
    assert np.array_equal(fixed.labels_, fixed.predict(X))
    assert fixed.inertia_ < plain.inertia_
    assert (fixed.n_iter_, len(fixed.history_)) == (plain.n_iter_, len(plain.history_))
    assert fixed.passes_ == plain.passes_ + after.n_iter_


def test_starts_are_the_same_alone_and_among_others():
    model = dc.BackwardEulerKMeans(5, **SMALL)
    five = clone(model).set_params(n_init=5).fit(X)
    two = clone(model).set_params(n_init=2, engine=dc.LocalEngine(n_threads=1)).fit(X)
    one = clone(model).fit(X)
    assert np.array_equal(five.start_inertias_[:2], two.start_inertias_)
    assert two.start_inertias_[0] == one.inertia_
    assert len(set(five.start_inertias_)) == 5
    assert five.inertia_ == five.start_inertias_.min()
    assert np.array_equal(five.labels_, five.predict(X))
    first_is_best = clone(model).set_params(n_init=2, max_iter=0, init=X[:5]).fit(X)
    assert first_is_best.inertia_ == first_is_best.start_inertias_[0]


@pytest.mark.parametrize("name", CASES)
def test_sources_and_threads_give_the_same_bits(tmp_path, name):
    import dask.array as da

    rows, weights = case(name, n=400)
    model = dc.BackwardEulerKMeans(5, n_init=3, **SMALL)
    expected = clone(model).set_params(engine=dc.LocalEngine(n_threads=1)).fit(rows, None, weights)
    two = dc.LocalEngine(n_threads=2)
    for source in (np.asfortranarray(rows), stored(tmp_path, rows), da.from_array(rows, 70)):
        same_bits(clone(model).set_params(engine=two).fit(source, None, weights), expected)


def test_a_cluster_gives_the_same_bits(tmp_path, client, monkeypatch):
    rows, weights = case("weighted float32", n=400)
    source = stored(tmp_path, rows, chunk=20)
    model = dc.BackwardEulerKMeans(5, n_init=3, **SMALL)
    for given in (rows, source):
        expected = clone(model).set_params(engine="local").fit(given, None, weights)
        same_bits(clone(model).set_params(engine=client).fit(given, None, weights), expected)
    # A worker's start reads its pools itself; weights that only this process has keep starts here.
    monkeypatch.setattr(minibatch_fit, "ROOM_BYTES", rows.nbytes // 2)
    expected = clone(model).set_params(engine="local").fit(source)
    same_bits(clone(model).set_params(engine=client).fit(source), expected)
    single = clone(model).set_params(n_init=1, engine=client).fit(source)
    assert single.inertia_ == expected.start_inertias_[0]
    assert expected.bytes_read_ > 3 * rows.nbytes / 2


def test_starts_run_on_workers_that_can_read_the_rows(tmp_path, client, monkeypatch):
    asked = []

    def run(self, tasks):
        asked.append(len(tasks))
        return [task() for task in tasks]

    monkeypatch.setattr(dc.DaskEngine, "run", run)
    model = dc.BackwardEulerKMeans(5, n_init=3, engine=client, **SMALL)
    clone(model).fit(X)
    assert asked == []
    clone(model).fit(stored(tmp_path, X))
    assert asked == [2]  # a share for each of two threads


def test_a_poor_start_is_left_behind():
    # Lloyd's algorithm ends with two centres in one cluster, and one between two others.
    random = np.random.default_rng(0)
    middles = np.array([[-5.0, -3.0], [5.0, -3.0], [0.0, 5.0], [2.5, 4.0]])
    rows = np.repeat(middles, 500, axis=0) + 0.8 * random.normal(size=(2000, 2))
    start = np.array([[-5.0, -3.0], [4.0, -3.6], [6.0, -2.4], [1.2, 4.5]])
    stuck = dc.KMeans(4, init=start).fit(rows)
    best = dc.KMeans(4, init=middles).fit(rows).inertia_
    assert stuck.inertia_ > 1.2 * best
    model = dc.BackwardEulerKMeans(
        4, init=stuck.cluster_centers_, n_init=8, batch_size=200, random_state=0
    ).fit(rows)
    assert (model.start_inertias_ < 1.02 * best).sum() >= 6


def test_callbacks_get_the_steps_of_one_start_or_the_ends_of_several():
    heard = []
    dc.BackwardEulerKMeans(4, callbacks=[heard.append], **SMALL).fit(X)
    names = [type(event).__name__ for event in heard]
    assert names.count("ImplicitStepEnded") == 6
    assert names[0] == "FitStarted"
    assert names[-1] == "FitEnded"
    heard.clear()
    several = dc.BackwardEulerKMeans(4, n_init=3, callbacks=[heard.append], **SMALL).fit(X)
    ends = [event for event in heard if isinstance(event, events.StartEnded)]
    assert [event.inertia for event in ends] == several.start_inertias_.tolist()

    def stop(event):
        if isinstance(event, (events.ImplicitStepEnded, events.StartEnded)):
            raise events.StopFit

    ended = dc.BackwardEulerKMeans(4, callbacks=[stop], **SMALL).fit(X)
    assert (ended.n_iter_, ended.stop_reason_) == (1, "callback")
    assert dc.BackwardEulerKMeans(4, n_init=2, callbacks=[stop], **SMALL).fit(X).n_iter_ == 6


def test_a_time_limit_leaves_starts_out():
    options = {**SMALL, "max_time": 1e-9, "engine": dc.LocalEngine(n_threads=1)}
    model = dc.BackwardEulerKMeans(4, n_init=3, **options).fit(X)
    assert (model.n_iter_, model.stop_reason_) == (1, "max_time")
    assert np.isnan(model.start_inertias_).tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("parameters", "error", "text"),
    [
        ({"step_size": "large"}, TypeError, r"'step_size' .*Got 'large'"),
        ({"n_clusters": 301}, ValueError, r"n_samples=300 should be >= n_clusters=301"),
        ({"init": X[:7]}, ValueError, r"initial centers \(7, 4\)"),
    ],
)
def test_bad_parameters(parameters, error, text):
    with pytest.raises(error, match=text):
        dc.BackwardEulerKMeans(**parameters).fit(X)


def test_a_plan_says_how_many_passes_a_fit_takes():
    defaults = {name: p.default for name, p in ALGORITHMS.find("backward-euler").parameters.items()}
    for changes in (SMALL, {**SMALL, "n_init": 3}, {**SMALL, "max_iter": 0, "refine_iter": 2}):
        values = {**defaults, **changes, "n_clusters": 4, "init": "k-means++"}
        plan = plan_fit(dc.open_dataset(X), values)
        model = dc.BackwardEulerKMeans(**values).fit(X)
        assert plan.passes_at_most == model.passes_
        assert plan.seeding == model.seeding_
